//! Bulk loads, compared with single inserts of the same rows.

mod killed;
#[cfg(feature = "postgres")]
#[path = "../support/postgres.rs"]
mod postgres;
mod random;
mod rows;

use index_table::{Durability, IndexTable, ReadTxn, Result, Store};
use serde::{Deserialize, Serialize};

/// A row with an index of each layout, each strategy and each form of key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "items")]
#[allow(clippy::duplicated_attributes, reason = "two indexes may have a field in common")]
#[index(town)]
#[index(town, name, include = [code])]
#[index(name, strategy = "full")]
#[index(code, unique)]
#[index(each(tags), unique, include = [name], name = "tagged")]
#[index(each(tags))]
#[index(note, sparse, include = [town], name = "noted")]
#[index(desc(code), filter = is_live, name = "live")]
#[index(computed(initial: String), name = "initial")]
#[index(hash(url), unique, name = "once")]
#[index(hash(url), include = [url], name = "linked")]
struct Item {
    #[primary_key]
    id: u32,
    town: String,
    name: String,
    code: u32,
    tags: Vec<String>,
    note: Option<String>,
    url: String,
    live: bool,
}

impl Item {
    fn is_live(&self) -> bool {
        self.live
    }

    fn initial(&self) -> String {
        self.name.chars().take(1).collect()
    }
}

/// A row with a primary key of variable length, so that no index is packed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[index(town)]
#[index(code, unique)]
struct Place {
    #[primary_key]
    name: String,
    #[primary_key]
    number: i16,
    town: String,
    code: u32,
}

/// Returns a row whose unique keys no other row has.
fn item(id: u32) -> Item {
    Item {
        id,
        town: ["Redmond", "Oz", "Kirkland"][id as usize % 3].to_owned(),
        name: format!("Name {}", id.wrapping_mul(7919) % 50),
        code: id.wrapping_mul(2_654_435_761),
        tags: (0..id % 3).map(|tag| format!("{id}.{tag}")).collect(),
        note: id.is_multiple_of(2).then(|| format!("note {id}")),
        url: format!("https://example.com/{id}"),
        live: !id.is_multiple_of(5),
    }
}

fn open(path: &std::path::Path) -> Result<(Store, ItemRepository)> {
    let store = Store::options().durability(Durability::None).open(path)?;
    let items = ItemRepository::open(&store)?;
    Ok((store, items))
}

/// Checks the indexes, and returns all rows.
fn all(items: &ItemRepository, txn: &ReadTxn<'_>) -> Result<Vec<Item>> {
    let report = items.verify(txn).run()?;
    assert!(report.is_clean(), "{report}");
    items.all(txn).rows().collect()
}
