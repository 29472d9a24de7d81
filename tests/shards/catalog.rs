//! The catalog of all shards, and dropping indexes that are no longer declared.

use index_table::{IndexState, IndexTable, Options, Result, ShardMap, Store};
use serde::{Deserialize, Serialize};

mod before {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize, IndexTable)]
    #[table(name = "customers", shard_by = tenant)]
    #[index(town)]
    #[index(name)]
    pub(super) struct Customer {
        #[primary_key]
        pub(super) tenant: u32,
        #[primary_key]
        pub(super) id: u32,
        pub(super) town: String,
        pub(super) name: String,
    }
}

#[derive(Debug, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "customers", shard_by = tenant)]
#[index(name)]
struct Customer {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    id: u32,
    town: String,
    name: String,
}

#[derive(Debug, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "invoices")]
struct Invoice {
    #[primary_key]
    number: u32,
}

fn options() -> Options {
    Store::options()
        .shard("north", "north")
        .shard("south", "south")
        .place("invoices", "south")
        .map("customers", ShardMap::ranges().to("north", ..100u32).to("south", 100u32..))
}

#[test]
fn the_catalog_has_the_tables_of_all_shards_once() -> Result<()> {
    let store = options().in_memory()?;
    CustomerRepository::open(&store)?;
    InvoiceRepository::open(&store)?;
    let catalog = store.catalog()?;
    let names: Vec<_> = catalog.tables.iter().map(|table| table.name.as_str()).collect();
    assert_eq!(names, ["customers", "invoices"]);
    let [index] = &catalog.tables[0].indexes[..] else { panic!("{catalog}") };
    assert_eq!((index.name.as_str(), &index.state), ("name", &IndexState::Readable));
    Ok(())
}

#[test]
fn retired_indexes_are_dropped_in_all_shards() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("shop");
    {
        let store = options().open(&path)?;
        let customers = before::CustomerRepository::open(&store)?;
        for tenant in [1, 101] {
            let (town, name) = ("Oslo".to_owned(), "Ann".to_owned());
            let row = before::Customer { tenant, id: 1, town, name };
            store.transaction(|txn| customers.insert(txn, &row))?;
        }
    }
    {
        let store = Store::open(&path)?;
        let customers = CustomerRepository::open(&store)?;
        let catalog = store.catalog()?;
        let states: Vec<_> =
            catalog.tables[0].indexes.iter().map(|it| (it.name.as_str(), &it.state)).collect();
        assert_eq!(states, [("name", &IndexState::Readable), ("town", &IndexState::Retired)]);
        assert_eq!(store.drop_retired()?, ["customers.town"]);
        assert!(store.drop_retired()?.is_empty());
        assert_eq!(store.catalog()?.tables[0].indexes.len(), 1);
        assert_eq!(customers.find_by_name(&store.read()?, "Ann").count()?, 2);
    }
    // The index can be declared again, and is built in each shard.
    let store = Store::open(&path)?;
    let customers = before::CustomerRepository::open(&store)?;
    assert_eq!(customers.find_by_town(&store.read()?, "Oslo").count()?, 2);
    Ok(())
}
