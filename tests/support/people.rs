//! A table with an index of each kind, and some rows.

use index_table::{IndexTable, Result};
use serde::{Deserialize, Serialize};

use crate::stores::{self, Tried};

pub(crate) type TestResult<T = ()> = Result<T, Box<dyn std::error::Error>>;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(view, shard_by = hash(region))]
#[indexes(
    (town, name),
    (name, strategy = "full"),
    (code, region, unique, include = [town]),
    (hash(url)),
    (hash(name), include = [name], name = "hashed"),
)]
pub(crate) struct Person {
    #[primary_key]
    pub(crate) region: String,
    #[primary_key]
    pub(crate) id: u32,
    pub(crate) town: String,
    pub(crate) name: String,
    pub(crate) code: u32,
    pub(crate) url: String,
}

pub(crate) fn person(id: u32) -> Person {
    Person {
        region: format!("region {}", id % 3),
        id,
        town: format!("town {}", id % 2),
        name: format!("name {}", id % 5),
        code: 100 - id,
        url: format!("https://example.com/{}", id % 4),
    }
}

/// Runs `test` on plain and on sharded stores.
pub(crate) fn on_all_stores(test: impl Fn(&Tried, &PersonRepository) -> TestResult) -> TestResult {
    for store in stores::stores("person")? {
        let people = PersonRepository::open(&store)?;
        store.fill(0..30, |txn, id| people.insert(txn, &person(*id)))?;
        test(&store, &people)?;
    }
    Ok(())
}
