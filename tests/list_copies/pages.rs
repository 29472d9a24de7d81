//! Damaged pages of the database with the second copies.

use std::{
    fs,
    io::{Seek as _, SeekFrom, Write as _},
    path::Path,
    result::Result,
};

use index_table::{Durability, Follower, Store};

use super::{
    Note, Orders, Purchase, Purchases, TestResult, Wide, Wides, finding, insert, number, open,
    rows, text,
};

const PAGE: usize = 4096;

fn short(bytes: &[u8], at: usize) -> usize {
    u16::from_ne_bytes([bytes[at], bytes[at + 1]]).into()
}

fn long(bytes: &[u8], at: usize) -> usize {
    let word = bytes[at..at + 8].first_chunk().copied();
    usize::try_from(u64::from_ne_bytes(word.expect("eight bytes"))).expect("a number of a page")
}

/// Returns the value of a key in the only page of a tree, or the page where a long value begins.
fn value<'f>(file: &'f [u8], page: usize, key: &[u8]) -> Option<(&'f [u8], bool)> {
    let page = &file[page * PAGE..(page + 1) * PAGE];
    let nodes = (16..short(page, 12)).step_by(2).map(|at| &page[short(page, at)..]);
    let mut found = nodes.filter(|node| node[8..8 + short(node, 6)] == *key);
    found.next().map(|node| (&node[8 + key.len()..], short(node, 4) & 1 != 0))
}

/// Fills the page with a copy by zeros. It is the only page of a database, or the first page of a long record.
pub(super) fn zero_page(path: &Path, database: &str, key: &str) -> TestResult {
    let path = path.join("data.mdb");
    let content = fs::read(&path)?;
    let root = long(described(&content, database)?, 40);
    let (found, is_long) = value(&content, root, key.as_bytes()).ok_or("no record")?;
    let page = if is_long { long(found, 0) } else { root };
    write_at(&path, page * PAGE, &[0; PAGE])
}

/// Returns the description of a database in the newest state.
fn described<'f>(file: &'f [u8], database: &str) -> Result<&'f [u8], &'static str> {
    let newest = if long(file, 128 + 16) < long(file, PAGE + 128 + 16) { PAGE } else { 0 };
    let names = long(file, newest + 16 + 24 + 48 + 40);
    value(file, names, database.as_bytes()).map(|(record, _)| record).ok_or("no database")
}

/// A process can have the file open, so it keeps its length.
fn write_at(path: &Path, at: usize, bytes: &[u8]) -> TestResult {
    let mut file = fs::File::options().write(true).open(path)?;
    file.seek(SeekFrom::Start(at as u64))?;
    Ok(file.write_all(bytes)?)
}

/// One page has the second copies of all tables.
#[test]
fn a_store_without_a_readable_page_of_second_copies_is_read_and_written() -> TestResult {
    let dir = tempfile::tempdir()?;
    insert(dir.path(), &text(1))?;
    zero_page(dir.path(), ".lists", "orders")?;
    let found = finding(dir.path())?;
    assert!(found.contains("database `.lists`"), "{found}");
    assert!(found.contains("`index-table salvage STORE TO` copies everything"), "{found}");
    assert_eq!(rows(dir.path())?, [text(1)]);
    insert(dir.path(), &number(2))?;
    assert_eq!(rows(dir.path())?, [text(1), number(2)]);
    assert!(finding(dir.path())?.contains("database `.lists`"));
    Ok(())
}

#[test]
fn a_long_record_is_read_without_the_page_of_one_copy() -> TestResult {
    for (database, key) in [(".catalog", "wide.@lists"), (".lists", "wide")] {
        let dir = tempfile::tempdir()?;
        let insert = |wide: &Wide| {
            let store = open(dir.path())?;
            let wides = Wides::open(&store)?;
            store.transaction(|txn| wides.insert(txn, wide))
        };
        let rows = || {
            let store = Store::options().read_only(true).open(dir.path())?;
            let wides = Wides::open(&store)?;
            wides.all(&store.read()?).rows().collect::<index_table::Result<Vec<_>>>()
        };
        let first = Wide::default();
        insert(&first)?;
        zero_page(dir.path(), database, key)?;
        let found = finding(dir.path())?;
        assert!(found.contains(&format!("database `{database}`")), "{found}");
        assert_eq!(rows()?, std::slice::from_ref(&first));
        // With a new list.
        let second = Wide { id: 1, more: Some(3), ..Wide::default() };
        insert(&second)?;
        assert_eq!(rows()?, [first, second]);
        // LMDB has not replaced the damaged value.
        assert_eq!(finding(dir.path())?, found);
    }
    Ok(())
}

/// The tree of the second copies begins at the page of another database.
#[test]
fn a_page_of_another_database_among_those_of_second_copies_harms_nothing_else() -> TestResult {
    for other in ["orders", ".sequences", ".catalog"] {
        let dir = tempfile::tempdir()?;
        insert(dir.path(), &text(1))?;
        let path = dir.path().join("data.mdb");
        let content = fs::read(&path)?;
        let copies = described(&content, ".lists")?;
        let at = copies.as_ptr() as usize - content.as_ptr() as usize + 40;
        let Ok(root) = described(&content, other).map(|other| &other[40..48]) else { continue };
        write_at(&path, at, root)?;
        assert_eq!(rows(dir.path())?, [text(1)]);
        let found = finding(dir.path())?;
        assert!(found.contains("database `.lists`"), "{found}");
        insert(dir.path(), &number(2))?;
        assert_eq!(rows(dir.path())?, [text(1), number(2)]);
        assert!(finding(dir.path())?.contains("database `.lists`"));
    }
    Ok(())
}

#[test]
fn second_copies_that_are_damaged_while_the_store_is_open_are_not_used() -> TestResult {
    let dir = tempfile::tempdir()?;
    insert(dir.path(), &text(1))?;
    let store = open(dir.path())?;
    let orders = Orders::open(&store)?;
    zero_page(dir.path(), ".lists", "orders")?;
    store.transaction(|txn| orders.insert(txn, &number(2)))?;
    assert_eq!(orders.all(&store.read()?).rows().count(), 2);
    drop((orders, store));
    assert_eq!(rows(dir.path())?, [text(1), number(2)]);
    assert!(finding(dir.path())?.contains("database `.lists`"));
    Ok(())
}

#[test]
fn a_table_is_renamed_without_its_damaged_second_copy() -> TestResult {
    let dir = tempfile::tempdir()?;
    insert(dir.path(), &text(1))?;
    {
        let store = open(dir.path())?;
        zero_page(dir.path(), ".lists", "orders")?;
        let purchases = Purchases::open(&store)?;
        let second = Purchase { tenant: 2, note: Some(Note::Number(3)) };
        store.transaction(|txn| purchases.insert(txn, &second))?;
    }
    let store = open(dir.path())?;
    let purchases = Purchases::open(&store)?;
    assert_eq!(purchases.all(&store.read()?).rows().count(), 2);
    assert_eq!(purchases.get(&store.read()?, 1)?.and_then(|row| row.note), text(1).note);
    drop((purchases, store));
    assert!(finding(dir.path())?.contains("database `.lists`"));
    Ok(())
}

/// A follower applies the records of the archive to its file.
#[test]
fn a_follower_applies_records_without_its_damaged_second_copies() -> TestResult {
    let dir = tempfile::tempdir()?;
    let path = |name: &str| dir.path().join(name);
    let store = Store::options()
        .durability(Durability::Journal)
        .map_size(1 << 24)
        .archive(path("archive"))
        .open(path("store"))?;
    let orders = Orders::open(&store)?;
    store.transaction(|txn| orders.insert(txn, &text(1)))?;
    drop((orders, store));
    drop(Follower::open(path("standby"), path("archive"))?);
    zero_page(&path("standby"), ".lists", "orders")?;
    let store = Store::options()
        .durability(Durability::Journal)
        .map_size(1 << 24)
        .archive(path("archive"))
        .open(path("store"))?;
    let orders = Orders::open(&store)?;
    store.transaction(|txn| orders.insert(txn, &number(2)))?;
    drop((orders, store));
    let follower = Follower::open(path("standby"), path("archive"))?;
    let orders = Orders::open(follower.store())?;
    let found =
        orders.all(&follower.store().read()?).rows().collect::<index_table::Result<Vec<_>>>()?;
    assert_eq!(found, [text(1), number(2)]);
    Ok(())
}
