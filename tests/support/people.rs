//! A table with an index of each kind, and some rows.

use index_table::{IndexTable, Result, Store};
use serde::{Deserialize, Serialize};

pub(crate) type TestResult<T = ()> = Result<T, Box<dyn std::error::Error>>;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(view)]
#[indexes(
    (town, name),
    (name, strategy = "full"),
    (code, unique, include = [town]),
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

pub(crate) fn on_both_engines(
    test: impl Fn(&Store, &PersonRepository) -> TestResult,
) -> TestResult {
    let directory = tempfile::tempdir()?;
    for store in [Store::open(directory.path())?, Store::in_memory()] {
        let people = PersonRepository::open(&store)?;
        store.transaction(|txn| (0..30).try_for_each(|id| people.insert(txn, &person(id))))?;
        test(&store, &people)?;
    }
    Ok(())
}
