//! `verify` and `repair` of files that are damaged without this crate, one kind of damage at a time and at
//! random.

mod defaults;
mod elements;
mod kinds;
mod methods;
mod random;
mod raw;
mod rows;
mod unordered;

use index_table::{Durability, FindingKind, IndexTable, ReadTxn, Result, Store, VerifyReport};
use serde::{Deserialize, Serialize};

/// A row with an index of each layout, each strategy and each form of key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "items")]
#[allow(clippy::duplicated_attributes, reason = "two indexes may have a field in common")]
#[index(town)]
#[index(town, name, include = [code])]
#[index(name, strategy = "full")]
#[index(code, unique)]
#[index(code, town, unique, include = [name], name = "coded")]
#[index(each(tags))]
#[index(note, sparse, include = [town], name = "noted")]
#[index(desc(code), filter = is_live, name = "live")]
#[index(computed(initial: String), name = "initial")]
#[index(hash(url), unique, name = "once")]
#[index(hash(url), include = [url], name = "linked")]
struct Item {
    #[primary_key]
    id: u16,
    town: String,
    name: String,
    code: u32,
    tags: Vec<String>,
    note: Option<String>,
    url: String,
    live: bool,
}

const INDEXES: [&str; 11] = [
    "town",
    "town_name",
    "name",
    "code",
    "coded",
    "tags",
    "noted",
    "live",
    "initial",
    "once",
    "linked",
];

impl Item {
    fn is_live(&self) -> bool {
        self.live
    }

    fn initial(&self) -> String {
        self.name.chars().take(1).collect()
    }
}

/// A place with a primary key of variable length, so that no index is packed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "places")]
#[index(town)]
#[index(code, unique)]
struct Place {
    #[primary_key]
    name: String,
    town: String,
    code: u32,
}

fn item(id: u16) -> Item {
    let name = |names: [&str; 3]| names[usize::from(id) % 3].to_owned();
    Item {
        id,
        town: name(["Oz", "Rome", "Oz"]),
        name: name(["Li", "Smith", "S\0"]),
        code: u32::from(id) + 100,
        tags: vec![name(["a", "b", "c"]), "all".to_owned()],
        note: (id.is_multiple_of(2)).then(|| format!("note {id}")),
        url: format!("https://example.com/{id}"),
        live: !id.is_multiple_of(3),
    }
}

fn open(dir: &tempfile::TempDir) -> Result<(Store, ItemRepository)> {
    let store = Store::options().map_size(1 << 24).durability(Durability::None).open(dir.path())?;
    let items = ItemRepository::open(&store)?;
    Ok((store, items))
}

fn filled(rows: impl IntoIterator<Item = Item>) -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    let (store, items) = open(&dir).expect("a store");
    let mut txn = store.write().expect("a transaction");
    rows.into_iter().for_each(|row| items.insert(&mut txn, &row).expect("a row"));
    txn.commit().expect("a commit");
    dir
}

fn counts(report: &VerifyReport) -> Vec<(FindingKind, u64)> {
    report.counts.iter().map(|(kind, count)| (*kind, *count)).collect()
}

/// Verifies in steps from cursor to cursor. Each cursor is converted to text and back.
fn in_steps(items: &ItemRepository, txn: &ReadTxn<'_>, steps: u64) -> Result<VerifyReport> {
    let mut whole = items.verify(txn).limit(0).run()?;
    while let Some(next) = whole.next.take() {
        let part = items.verify(txn).after(&next.to_string().parse()?).limit(steps).run()?;
        whole.rows += part.rows;
        whole.entries += part.entries;
        part.counts.iter().for_each(|(kind, n)| *whole.counts.entry(*kind).or_default() += n);
        whole.left += part.left;
        whole.findings.extend(part.findings);
        whole.next = part.next;
    }
    Ok(whole)
}

#[test]
fn an_intact_store_has_no_findings() -> Result<()> {
    let dir = filled((0..300).map(item));
    let (lmdb, _) = open(&dir)?;
    for store in [lmdb, Store::in_memory()] {
        let items = ItemRepository::open(&store)?;
        let mut txn = store.write()?;
        (0..300).try_for_each(|id| items.put(&mut txn, &item(id)))?;
        let report = items.verify(&txn).run()?;
        assert!(report.is_clean(), "{report}");
        // Each row has two tags, half of the rows have a note, and two thirds are live.
        let entries = 8 * 300 + 600 + 150 + 200;
        assert_eq!((report.rows, report.entries, &report.next), (300, entries, &None));
        assert_eq!(in_steps(&items, &txn, 7)?, report);
        assert!(items.repair(&mut txn).delete_unreadable_rows().run()?.is_clean());
        txn.commit()?;
    }
    Ok(())
}

#[test]
fn cursors_of_other_tables_are_refused() -> Result<()> {
    let dir = filled((0..3).map(item));
    let (store, items) = open(&dir)?;
    let places = PlaceRepository::open(&store)?;
    let txn = store.read()?;
    let same_table = items.verify(&txn).limit(4).run()?.next.expect("no next page");
    let other_table = places.verify(&txn).limit(0).run()?.next.expect("no next page");
    let scan = items.all(&txn).page(1)?.next.expect("no next page");
    assert!(items.verify(&txn).after(&same_table).run()?.is_clean());
    for cursor in [other_table, scan] {
        let result = items.verify(&txn).after(&cursor).run();
        assert!(matches!(result, Err(index_table::Error::InvalidCursor { .. })), "{result:?}");
    }
    assert!(items.all(&txn).after(&same_table).rows().next().is_some_and(|row| row.is_err()));
    Ok(())
}
