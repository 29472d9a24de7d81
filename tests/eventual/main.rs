//! Eventual indexes.

mod damaged;
mod killed;
#[path = "../support/killed.rs"]
mod killing;
mod poison;
mod policies;
#[cfg(feature = "postgres")]
#[path = "../support/postgres.rs"]
mod postgres;
mod queries;
mod random;
mod redeclared;
mod room;
mod tokens;

use index_table::{ReadTxn, Result, Store};

type TestResult = Result<(), Box<dyn std::error::Error>>;

/// A table with an eventual index of each kind, and with strong indexes.
mod items {
    use index_table::IndexTable;
    use serde::{Deserialize, Serialize};

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
    #[table(name = "items")]
    #[allow(clippy::duplicated_attributes, reason = "two indexes may have a field in common")]
    #[index(town, consistency = "eventual")]
    #[index(town, name, include = [code], consistency = "eventual")]
    #[index(name, strategy = "full", consistency = "eventual")]
    #[index(each(tags), consistency = "eventual")]
    #[index(note, sparse, consistency = "eventual")]
    #[index(desc(code), filter = is_live, name = "live", consistency = "eventual")]
    #[index(computed(initial: String), name = "initial", consistency = "eventual")]
    #[index(hash(url), consistency = "eventual")]
    #[index(hash(url), include = [url], name = "linked", consistency = "eventual")]
    #[index(town, name = "now", consistency = "strong")]
    #[index(number, unique)]
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
        pub(crate) number: u32,
    }

    impl Item {
        fn is_live(&self) -> bool {
            self.live
        }

        fn initial(&self) -> String {
            assert_ne!(self.name, "panic", "no name");
            self.name.chars().take(1).collect()
        }
    }
}

use items::{Item, ItemRepository};

const TOWNS: [&str; 3] = ["Oz", "Rome", "Oslo"];

/// Returns a row whose fields depend on `content`.
fn item(id: u32, content: u32) -> Item {
    let one_of = |names: [&str; 3], number: u32| names[number as usize % 3].to_owned();
    Item {
        id,
        town: one_of(TOWNS, content),
        name: one_of(["Li", "Smith", "S\0"], content / 3),
        code: u64::from(content) / 2,
        tags: (0..content % 4).map(|tag| one_of(["a", "b", "c"], tag + content)).collect(),
        note: content.is_multiple_of(2).then(|| format!("note {content}")),
        url: format!("https://example.com/{}", content / 5),
        live: !content.is_multiple_of(3),
        number: id,
    }
}

/// Runs `check` on a store of each kind.
fn on_each(check: impl Fn(&Store) -> TestResult) -> TestResult {
    #[cfg(feature = "postgres")]
    if let Some(schema) = postgres::Schema::new() {
        check(&schema.open()?)?;
    }
    on_each_local(check)
}

/// Runs `check` on a store of each kind except a server.
fn on_each_local(check: impl Fn(&Store) -> TestResult) -> TestResult {
    let dir = tempfile::tempdir()?;
    let options = Store::options().map_size(1 << 26).durability(index_table::Durability::None);
    check(&options.open(dir.path())?)?;
    check(&killing::journal(options).open(dir.path().join("journal"))?)?;
    check(&Store::in_memory())
}

/// Checks that all indexes match the rows, except for pending messages.
fn assert_clean(items: &ItemRepository, txn: &ReadTxn<'_>) -> Result<()> {
    let report = items.verify(txn).run()?;
    assert!(report.is_clean(), "{report}");
    Ok(())
}

/// Returns the number of entries of a row.
fn entries(row: &Item) -> u64 {
    let tags: std::collections::BTreeSet<_> = row.tags.iter().collect();
    8 + tags.len() as u64 + u64::from(row.note.is_some()) + u64::from(row.live)
}

/// Checks that all indexes match the rows, and that the queue is empty.
fn assert_drained(items: &ItemRepository, store: &Store) -> Result<()> {
    let txn = store.read()?;
    let lag = items.lag(&txn)?;
    assert_eq!((lag.messages, lag.dead_letters), (0, 0));
    let report = items.verify(&txn).run()?;
    assert!(report.is_clean(), "{report}");
    let rows: Vec<Item> = items.all(&txn).rows().collect::<Result<_>>()?;
    assert_eq!(report.entries, rows.iter().map(entries).sum::<u64>());
    for town in TOWNS {
        let expected: Vec<_> = rows.iter().filter(|row| row.town == town).cloned().collect();
        let found: Vec<_> =
            items.find_by_town(&txn, town).verified().rows().collect::<Result<_>>()?;
        assert_eq!(found, expected);
        assert_eq!(items.find_by_town(&txn, town).stale().count()?, expected.len() as u64);
    }
    Ok(())
}
