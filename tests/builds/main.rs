//! Indexes that are built while their table is in use.

mod killed;
#[path = "../support/killed.rs"]
mod killing;
mod opening;
mod otherwise;
#[cfg(feature = "postgres")]
#[path = "../support/postgres.rs"]
mod postgres;
mod random;
mod readable;
#[path = "../support/threads.rs"]
mod support;
mod unique;
mod violated;

use index_table::{IndexState, ReadTxn, Result, Store};

type TestResult = Result<(), Box<dyn std::error::Error>>;

/// The table without indexes.
mod before {
    use index_table::IndexTable;
    use serde::{Deserialize, Serialize};

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
    #[table(name = "items")]
    pub(crate) struct Item {
        #[primary_key]
        pub(crate) id: u32,
        pub(crate) town: String,
        pub(crate) name: String,
        pub(crate) code: u64,
        pub(crate) tags: Vec<String>,
        pub(crate) note: Option<String>,
        pub(crate) url: String,
        pub(crate) live: bool,
    }
}

/// The table with an index of each kind.
mod after {
    use index_table::IndexTable;
    use serde::{Deserialize, Serialize};

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
    #[table(name = "items")]
    #[allow(clippy::duplicated_attributes, reason = "two indexes may have a field in common")]
    #[index(town)]
    #[index(town, name, include = [code])]
    #[index(name, strategy = "full")]
    #[index(code, unique)]
    #[index(code, town, unique, include = [name], name = "coded")]
    #[index(each(tags))]
    #[index(note, sparse, unique, include = [town], name = "noted")]
    #[index(desc(code), filter = is_live, name = "live")]
    #[index(computed(initial: String), name = "initial")]
    #[index(hash(url), unique, name = "once")]
    #[index(hash(url), include = [url], name = "linked")]
    pub(crate) struct Item {
        #[primary_key]
        pub(crate) id: u32,
        pub(crate) town: String,
        pub(crate) name: String,
        pub(crate) code: u64,
        pub(crate) tags: Vec<String>,
        pub(crate) note: Option<String>,
        pub(crate) url: String,
        pub(crate) live: bool,
    }

    impl Item {
        fn is_live(&self) -> bool {
            self.live
        }

        fn initial(&self) -> String {
            self.name.chars().take(1).collect()
        }
    }
}

/// Returns a row with the unique keys of row `number`.
fn item(id: u32, number: u32) -> after::Item {
    let name = |names: [&str; 3], number: u32| names[number as usize % 3].to_owned();
    after::Item {
        id,
        town: name(["Oz", "Rome", "Oslo"], id / 3),
        name: name(["Li", "Smith", "S\0"], id),
        code: u64::from(number) + 100,
        tags: vec![name(["a", "b", "c"], id), "all".to_owned()],
        note: number.is_multiple_of(2).then(|| format!("note {number}")),
        url: format!("https://example.com/{number}"),
        live: !id.is_multiple_of(3),
    }
}

fn plain(row: after::Item) -> before::Item {
    let after::Item { id, town, name, code, tags, note, url, live } = row;
    before::Item { id, town, name, code, tags, note, url, live }
}

/// Writes rows to the table without indexes.
#[expect(clippy::needless_pass_by_value, reason = "ranges are handed over")]
fn fill(store: &Store, rows: impl IntoIterator<Item = after::Item> + Clone) -> Result<()> {
    let items = before::ItemRepository::open(store)?;
    store
        .transaction(|txn| rows.clone().into_iter().try_for_each(|row| items.put(txn, &plain(row))))
}

/// Runs a test on each kind of store, with these rows and no indexes.
fn on_each(
    rows: impl IntoIterator<Item = after::Item> + Clone,
    check: impl Fn(&Store) -> TestResult,
) -> TestResult {
    on_each_local(rows.clone(), &check)?;
    #[cfg(feature = "postgres")]
    if let Some(schema) = postgres::Schema::new() {
        let store = schema.open()?;
        fill(&store, rows)?;
        check(&store)?;
    }
    Ok(())
}

/// Runs a test on each kind of store except a server.
#[expect(clippy::needless_pass_by_value, reason = "ranges are handed over")]
fn on_each_local(
    rows: impl IntoIterator<Item = after::Item> + Clone,
    check: impl Fn(&Store) -> TestResult,
) -> TestResult {
    let dir = tempfile::tempdir()?;
    let options = Store::options().map_size(1 << 28).durability(index_table::Durability::None);
    let journalled = killing::journal(options.clone()).open(dir.path().join("journal"))?;
    for store in [options.open(dir.path())?, journalled, Store::in_memory()] {
        fill(&store, rows.clone())?;
        check(&store)?;
    }
    Ok(())
}

/// Returns the states of the indexes that are not readable.
fn unreadable(store: &Store) -> Result<Vec<(String, IndexState)>> {
    let catalog = store.catalog()?;
    let indexes = catalog.tables.into_iter().flat_map(|table| table.indexes);
    let unreadable = indexes.filter(|index| index.state != IndexState::Readable);
    Ok(unreadable.map(|index| (index.name, index.state)).collect())
}

/// Checks that all indexes match the rows.
fn assert_clean(items: &after::ItemRepository, txn: &ReadTxn<'_>) -> Result<()> {
    let report = items.verify(txn).run()?;
    assert!(report.is_clean(), "{report}");
    Ok(())
}
