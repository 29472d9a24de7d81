//! A data file has the list of each of its rows, whatever wrote the row.

use std::path::Path;

use index_table::{Durability, IndexTable, Result, ShardMap, Store};
use serde::{Deserialize, Serialize};

/// Each of the optional fields makes another list when it first has a value.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "orders", shard_by = tenant, shard_map = "tenants", repository = Orders)]
#[index(tenant, town, include = [note])]
#[index(town, name = "whole", strategy = "full", scope = "global")]
#[index(town, name = "noted", include = [note], scope = "global")]
struct Order {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    id: u32,
    town: String,
    note: Option<Note>,
    more: Option<Note>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
enum Note {
    Text(String),
    Number(u64),
}

fn order(tenant: u32, id: u32, note: impl Into<Option<Note>>) -> Order {
    Order { tenant, id, town: "Rome".into(), note: note.into(), more: None }
}

fn text() -> Note {
    Note::Text("t".into())
}

const fn number() -> Note {
    Note::Number(7)
}

fn open(path: &Path) -> Result<(Store, Orders)> {
    let map = ShardMap::ranges().to("north", ..10u32).to("south", 10u32..);
    let options = Store::options().shard("north", "north").shard("south", "south");
    let store = options.map("tenants", map).open(path)?;
    let orders = Orders::open(&store)?;
    Ok((store, orders))
}

/// Checks that these are all rows, and that all entries are right.
fn check((store, orders): &(Store, Orders), expected: &[Order]) -> Result<()> {
    let txn = store.read()?;
    let rows = orders.all(&txn).rows().collect::<Result<Vec<_>>>()?;
    assert_eq!(rows, expected);
    let whole = orders.by_whole(&txn).entries().collect::<Result<Vec<_>>>()?;
    assert_eq!(whole.len(), expected.len());
    let noted = orders.by_noted(&txn).entries().collect::<Result<Vec<_>>>()?;
    let found: Vec<_> = noted.into_iter().map(|entry| entry.note).collect();
    assert_eq!(found, expected.iter().map(|order| order.note.clone()).collect::<Vec<_>>());
    let report = orders.verify(&txn).run()?;
    assert!(report.is_clean(), "{report}");
    Ok(())
}

#[test]
fn moved_rows_have_their_lists_in_the_other_file() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let rows = [order(1, 1, text()), order(2, 1, number())];
    {
        let (store, orders) = open(dir.path())?;
        store.transaction(|txn| rows.iter().try_for_each(|row| orders.insert(txn, row)))?;
        store.move_range("tenants", ..10u32, "south").run()?;
        store.remove_shard("north")?;
        check(&(store, orders), &rows)?;
    }
    let store = Store::open(dir.path())?;
    let orders = Orders::open(&store)?;
    check(&(store, orders), &rows)
}

/// A shard that is away while others get lists.
#[test]
fn a_number_means_the_same_list_in_a_shard_that_was_away() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let rows = [order(1, 1, None), order(2, 1, number()), order(11, 1, text())];
    {
        let (store, orders) = open(dir.path())?;
        store.transaction(|txn| orders.insert(txn, &rows[0]))?;
        store.transaction(|txn| orders.insert(txn, &rows[2]))?;
        store.detach_shard("south")?;
    }
    let store = Store::open(dir.path())?;
    let orders = Orders::open(&store)?;
    store.transaction(|txn| orders.insert(txn, &rows[1]))?;
    store.attach_shard("south", "south")?;
    check(&(store, orders), &rows)?;
    let store = Store::open(dir.path())?;
    let orders = Orders::open(&store)?;
    check(&(store, orders), &rows)
}

#[test]
fn a_store_that_grows_has_the_lists_in_both_files() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let rows =
        [order(1, 1, None), order(1, 2, text()), order(11, 1, text()), order(12, 1, number())];
    {
        let store = Store::open(dir.path())?;
        let orders = Orders::open(&store)?;
        store.transaction(|txn| orders.insert(txn, &rows[0]))?;
        store.add_shard("south", "south")?;
        store.move_range("tenants", 10u32.., "south").run()?;
        // The new shard has the list first.
        store.transaction(|txn| orders.insert(txn, &rows[2]))?;
        store.transaction(|txn| orders.insert(txn, &rows[1]))?;
        store.transaction(|txn| orders.insert(txn, &rows[3]))?;
        check(&(store, orders), &rows)?;
    }
    let store = Store::open(dir.path())?;
    let orders = Orders::open(&store)?;
    check(&(store, orders), &rows)
}

/// A table with an older version, and one that converts it.
mod versions {
    use super::{Deserialize, IndexTable, Note, Serialize};

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
    #[table(name = "notes", repository = First)]
    pub(super) struct Old {
        #[primary_key]
        pub(super) id: u32,
        pub(super) town: String,
    }

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
    #[table(name = "notes", repository = Second, version = 2, previous = Old, changed = [note])]
    #[index(town, include = [note])]
    pub(super) struct New {
        #[primary_key]
        pub(super) id: u32,
        pub(super) town: String,
        pub(super) note: Note,
    }

    impl From<Old> for New {
        fn from(Old { id, town }: Old) -> Self {
            Self { id, town, note: Note::Number(id.into()) }
        }
    }
}

#[test]
fn an_index_that_is_built_when_a_table_is_opened_has_its_lists() -> Result<()> {
    use versions::{First, New, Old, Second};
    for durability in [Durability::Journal, Durability::Full] {
        let dir = tempfile::tempdir().expect("a directory");
        let open = || Store::options().durability(durability).open(dir.path());
        {
            let store = open()?;
            let notes = First::open(&store)?;
            store.transaction(|txn| notes.insert(txn, &Old { id: 1, town: "Rome".into() }))?;
        }
        drop(Second::open(&open()?)?);
        let store = open()?;
        let notes = Second::open(&store)?;
        let new = New { id: 2, town: "Rome".into(), note: Note::Text("t".into()) };
        store.transaction(|txn| notes.insert(txn, &new))?;
        let txn = store.read()?;
        let found = notes.find_by_town(&txn, "Rome").entries().collect::<Result<Vec<_>>>()?;
        let found: Vec<_> = found.into_iter().map(|entry| entry.note).collect();
        assert_eq!(found, [Note::Number(1), Note::Text("t".into())]);
        let report = notes.verify(&txn).run()?;
        assert!(report.is_clean(), "{report}");
    }
    Ok(())
}

/// A name is used again, by a table with the same fields.
mod renamed {
    use super::{Deserialize, IndexTable, Serialize};

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
    #[table(name = "customers", repository = Customers)]
    pub(super) struct Customer {
        #[primary_key]
        pub(super) id: u32,
        pub(super) town: String,
    }

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
    #[table(name = "clients", was = "customers", repository = Clients)]
    pub(super) struct Client {
        #[primary_key]
        pub(super) id: u32,
        pub(super) town: String,
    }

    /// The next release.
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
    #[table(name = "clients", repository = Known)]
    pub(super) struct KnownClient {
        #[primary_key]
        pub(super) id: u32,
        pub(super) town: String,
    }
}

#[test]
fn a_table_with_a_former_name_gets_lists_of_its_own() -> Result<()> {
    use renamed::{Clients, Customer, Customers, Known};
    let dir = tempfile::tempdir().expect("a directory");
    let row = |id| Customer { id, town: "Rome".into() };
    {
        let store = Store::open(dir.path())?;
        let customers = Customers::open(&store)?;
        store.transaction(|txn| customers.insert(txn, &row(1)))?;
        drop(customers);
        let _clients = Clients::open(&store)?;
        let customers = Customers::open(&store)?;
        store.transaction(|txn| customers.insert(txn, &row(2)))?;
    }
    let store = Store::open(dir.path())?;
    let clients = Known::open(&store)?;
    let customers = Customers::open(&store)?;
    let txn = store.read()?;
    assert_eq!(clients.get(&txn, 1)?.map(|client| client.id), Some(1));
    assert_eq!(customers.get(&txn, 2)?, Some(row(2)));
    Ok(())
}

/// A shard that was attached records the lists of the rows that it gets.
#[test]
fn an_attached_shard_has_the_lists_of_its_rows() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let rows = [order(1, 1, None), order(11, 1, text()), order(12, 1, number())];
    {
        let (store, orders) = open(dir.path())?;
        store.transaction(|txn| orders.insert(txn, &rows[0]))?;
        store.transaction(|txn| orders.insert(txn, &rows[1]))?;
        store.detach_shard("south")?;
        store.attach_shard("south", "south")?;
        store.transaction(|txn| orders.insert(txn, &rows[2]))?;
        let opened = (store, orders);
        check(&opened, &rows)?;
        opened.0.detach_shard("south")?;
    }
    let south = Store::open(dir.path().join("south"))?;
    let orders = Orders::open(&south)?;
    check(&(south, orders), &rows[1..])
}

/// A detached shard is written as a store of its own. Its lists are those of the store when it is attached again.
#[test]
fn a_shard_with_further_lists_is_attached() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let rows = [
        order(1, 1, None),
        order(2, 1, text()),
        Order { more: Some(text()), ..order(3, 1, number()) },
        order(11, 1, None),
        order(12, 1, number()),
    ];
    {
        let (store, orders) = open(dir.path())?;
        store.transaction(|txn| orders.insert(txn, &rows[0]))?;
        store.transaction(|txn| orders.insert(txn, &rows[3]))?;
        store.detach_shard("south")?;
    }
    {
        let south = Store::open(dir.path().join("south"))?;
        let orders = Orders::open(&south)?;
        south.transaction(|txn| orders.insert(txn, &rows[4]))?;
    }
    {
        let store = Store::open(dir.path())?;
        let orders = Orders::open(&store)?;
        store.attach_shard("south", "south")?;
        // It is away again before the other shard records a list.
        store.detach_shard("south")?;
        drop((store, orders));
    }
    let store = Store::open(dir.path())?;
    let orders = Orders::open(&store)?;
    store.transaction(|txn| orders.insert(txn, &rows[1]))?;
    store.attach_shard("south", "south")?;
    store.transaction(|txn| orders.insert(txn, &rows[2]))?;
    check(&(store, orders), &rows)
}

/// Another table gets its former name, while a shard lacks the last list.
#[test]
fn a_renamed_table_keeps_the_lists_of_others() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let rows = [order(1, 1, None), order(2, 1, number()), order(11, 1, text())];
    {
        let (store, orders) = open(dir.path())?;
        let customers = renamed::Customers::open(&store)?;
        let customer = renamed::Customer { id: 1, town: "Oz".into() };
        store.transaction(|txn| customers.insert(txn, &customer))?;
        store.transaction(|txn| orders.insert(txn, &rows[0]))?;
        store.transaction(|txn| orders.insert(txn, &rows[2]))?;
    }
    {
        let (store, orders) = open(dir.path())?;
        renamed::Clients::open(&store)?;
        store.detach_shard("south")?;
        drop((store, orders));
    }
    let store = Store::open(dir.path())?;
    let orders = Orders::open(&store)?;
    store.transaction(|txn| orders.insert(txn, &rows[1]))?;
    store.attach_shard("south", "south")?;
    check(&(store, orders), &rows)
}

/// A table whose index has the same entries in both versions.
mod kept {
    use super::{Deserialize, IndexTable, Serialize};

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
    #[table(name = "notes", repository = First)]
    #[index(town, include = [phone])]
    pub(super) struct Old {
        #[primary_key]
        pub(super) id: u32,
        pub(super) town: String,
        pub(super) phone: String,
    }

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
    #[table(name = "notes", repository = Second, version = 2, previous = Old)]
    #[index(town, include = [phone])]
    pub(super) struct New {
        #[primary_key]
        pub(super) id: u32,
        pub(super) nick: Option<String>,
        pub(super) phone: String,
        pub(super) town: String,
    }

    impl From<Old> for New {
        fn from(Old { id, town, phone }: Old) -> Self {
            Self { id, nick: None, phone, town }
        }
    }
}

/// A process that only reads has no list for the rows of an older version, and records none.
#[test]
fn a_reader_verifies_rows_of_an_older_version() -> Result<()> {
    use kept::{First, Old, Second};
    let dir = tempfile::tempdir().expect("a directory");
    {
        let (store, _orders) = open(dir.path())?;
        let notes = First::open(&store)?;
        let old = |id| Old { id, town: "Rome".into(), phone: id.to_string() };
        store.transaction(|txn| (0..3).try_for_each(|id| notes.insert(txn, &old(id))))?;
        drop(notes);
        Second::open(&store)?;
    }
    let store = Store::options().read_only(true).open(dir.path())?;
    let notes = Second::open(&store)?;
    let report = notes.verify(&store.read()?).run()?;
    assert!(report.is_clean() && report.entries == 3, "{report}");
    Ok(())
}
