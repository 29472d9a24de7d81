//! The record of a table's lists stands twice in a data file, and one copy is enough.

use std::{env, error, fs, path::Path, process::Command};

use heed::{CommitOrAbort, Database, EnvOpenOptions, RwTxn, types::Bytes};
use index_table::{Durability, Error, IndexTable, Result, ShardMap, Store};
use serde::{Deserialize, Serialize};

type TestResult = std::result::Result<(), Box<dyn error::Error>>;

/// Each note of another kind makes another list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "orders", shard_by = tenant, shard_map = "tenants", repository = Orders)]
struct Order {
    #[primary_key]
    tenant: u32,
    note: Option<Note>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
enum Note {
    Text(String),
    Number(u64),
}

/// A table whose record is longer than a page.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "wide", repository = Wides)]
struct Wide {
    #[primary_key]
    id: u32,
    more: Option<u8>,
    the_name_of_a_field_which_is_long_enough_that_the_record_of_the_lists_is_on_pages_of_its_own_00:
        u8,
    the_name_of_a_field_which_is_long_enough_that_the_record_of_the_lists_is_on_pages_of_its_own_01:
        u8,
    the_name_of_a_field_which_is_long_enough_that_the_record_of_the_lists_is_on_pages_of_its_own_02:
        u8,
    the_name_of_a_field_which_is_long_enough_that_the_record_of_the_lists_is_on_pages_of_its_own_03:
        u8,
    the_name_of_a_field_which_is_long_enough_that_the_record_of_the_lists_is_on_pages_of_its_own_04:
        u8,
    the_name_of_a_field_which_is_long_enough_that_the_record_of_the_lists_is_on_pages_of_its_own_05:
        u8,
    the_name_of_a_field_which_is_long_enough_that_the_record_of_the_lists_is_on_pages_of_its_own_06:
        u8,
    the_name_of_a_field_which_is_long_enough_that_the_record_of_the_lists_is_on_pages_of_its_own_07:
        u8,
    the_name_of_a_field_which_is_long_enough_that_the_record_of_the_lists_is_on_pages_of_its_own_08:
        u8,
    the_name_of_a_field_which_is_long_enough_that_the_record_of_the_lists_is_on_pages_of_its_own_09:
        u8,
    the_name_of_a_field_which_is_long_enough_that_the_record_of_the_lists_is_on_pages_of_its_own_10:
        u8,
    the_name_of_a_field_which_is_long_enough_that_the_record_of_the_lists_is_on_pages_of_its_own_11:
        u8,
    the_name_of_a_field_which_is_long_enough_that_the_record_of_the_lists_is_on_pages_of_its_own_12:
        u8,
    the_name_of_a_field_which_is_long_enough_that_the_record_of_the_lists_is_on_pages_of_its_own_13:
        u8,
    the_name_of_a_field_which_is_long_enough_that_the_record_of_the_lists_is_on_pages_of_its_own_14:
        u8,
    the_name_of_a_field_which_is_long_enough_that_the_record_of_the_lists_is_on_pages_of_its_own_15:
        u8,
    the_name_of_a_field_which_is_long_enough_that_the_record_of_the_lists_is_on_pages_of_its_own_16:
        u8,
    the_name_of_a_field_which_is_long_enough_that_the_record_of_the_lists_is_on_pages_of_its_own_17:
        u8,
    the_name_of_a_field_which_is_long_enough_that_the_record_of_the_lists_is_on_pages_of_its_own_18:
        u8,
    the_name_of_a_field_which_is_long_enough_that_the_record_of_the_lists_is_on_pages_of_its_own_19:
        u8,
    the_name_of_a_field_which_is_long_enough_that_the_record_of_the_lists_is_on_pages_of_its_own_20:
        u8,
    the_name_of_a_field_which_is_long_enough_that_the_record_of_the_lists_is_on_pages_of_its_own_21:
        u8,
    the_name_of_a_field_which_is_long_enough_that_the_record_of_the_lists_is_on_pages_of_its_own_22:
        u8,
    the_name_of_a_field_which_is_long_enough_that_the_record_of_the_lists_is_on_pages_of_its_own_23:
        u8,
}

fn text(tenant: u32) -> Order {
    Order { tenant, note: Some(Note::Text("t".into())) }
}

fn number(tenant: u32) -> Order {
    Order { tenant, note: Some(Note::Number(7)) }
}

fn options() -> index_table::Options {
    Store::options().durability(Durability::Full).map_size(1 << 24)
}

fn open(path: &Path) -> Result<Store> {
    options().open(path)
}

fn insert(path: &Path, order: &Order) -> Result<()> {
    let store = open(path)?;
    let orders = Orders::open(&store)?;
    store.transaction(|txn| orders.insert(txn, order))
}

/// Returns all rows, as a process reads them that can't write.
fn rows(path: &Path) -> Result<Vec<Order>> {
    let store = Store::options().read_only(true).open(path)?;
    let orders = Orders::open(&store)?;
    orders.all(&store.read()?).rows().collect()
}

/// Runs `work` on the databases with the two copies in a write transaction.
fn raw(
    path: &Path,
    work: impl FnOnce([Database<'_, Bytes, Bytes>; 2], &mut RwTxn<'_>) -> heed::Result<()>,
) -> TestResult {
    #[expect(unsafe_code, reason = "heed marks the whole environment unsafe")]
    // SAFETY: a process that has the file open uses LMDB's locks.
    let env = unsafe { EnvOpenOptions::new().max_dbs(4).map_size(1 << 24).open(path)? };
    let txn = env.write_txn()?;
    env.create_databases_and_commit(txn, |opener, txn| {
        let first = opener.create_database(txn, Some(".catalog"))?;
        let second = opener.create_database(txn, Some(".lists"))?;
        work([first, second], txn)?;
        Ok::<_, heed::Error>(CommitOrAbort::<(), ()>::Commit(()))
    })?;
    Ok(())
}

const KEYS: [&[u8]; 2] = [b"orders.@lists", b"orders"];

/// Returns both copies.
fn copies(path: &Path) -> std::result::Result<[Option<Vec<u8>>; 2], Box<dyn error::Error>> {
    let mut found = [None, None];
    raw(path, |databases, txn| {
        for (found, (database, key)) in found.iter_mut().zip(databases.into_iter().zip(KEYS)) {
            *found = database.get(txn, key)?.map(<[u8]>::to_vec);
        }
        Ok(())
    })?;
    Ok(found)
}

/// Replaces a copy, or removes it.
fn replace(path: &Path, at: usize, copy: Option<&[u8]>) -> TestResult {
    raw(path, |databases, txn| match copy {
        Some(copy) => databases[at].put(txn, KEYS[at], copy),
        None => databases[at].delete(txn, KEYS[at]).map(drop),
    })
}

/// Returns a copy with a changed byte after the checksum.
fn damaged(copy: &[u8]) -> Vec<u8> {
    let mut copy = copy.to_vec();
    copy[12] ^= 1;
    copy
}

/// Returns the text of the finding of a check.
fn finding(path: &Path) -> std::result::Result<String, Box<dyn error::Error>> {
    let store = Store::options().read_only(true).open(path)?;
    let Err(error) = store.check() else { return Err("nothing was found".into()) };
    Ok(error.to_string())
}

#[test]
fn a_commit_writes_both_copies() -> TestResult {
    let dir = tempfile::tempdir()?;
    insert(dir.path(), &text(1))?;
    for row in [number(2), text(3)] {
        let [first, second] = copies(dir.path())?;
        assert!(first.is_some() && first == second);
        open(dir.path())?.check()?;
        insert(dir.path(), &row)?;
    }
    Ok(())
}

#[test]
fn one_copy_is_enough_and_a_writer_mends_the_other_one() -> TestResult {
    for (at, name) in ["first", "second"].into_iter().enumerate() {
        for (fault, reason) in ["damaged", "missing", "earlier"].into_iter().zip([
            "is damaged",
            "is missing",
            "lacks lists",
        ]) {
            let dir = tempfile::tempdir()?;
            insert(dir.path(), &text(1))?;
            let [before, _] = copies(dir.path())?;
            insert(dir.path(), &number(2))?;
            let [Some(intact), _] = copies(dir.path())? else { return Err("no record".into()) };
            let copy = match fault {
                "damaged" => Some(damaged(&intact)),
                "missing" => None,
                _ => before,
            };
            replace(dir.path(), at, copy.as_deref())?;

            let found = finding(dir.path())?;
            let expected = format!("the {name} copy of their record {reason}");
            assert!(found.contains("table `orders`") && found.contains(&expected), "{found}");
            assert!(
                found.contains("opening the table for writing writes that copy again"),
                "{found}"
            );
            assert_eq!(rows(dir.path())?, [text(1), number(2)]);
            // Reading changes nothing.
            assert_eq!(copies(dir.path())?[at], copy);

            insert(dir.path(), &text(3))?;
            assert_eq!(copies(dir.path())?, [Some(intact.clone()), Some(intact)]);
            open(dir.path())?.check()?;
            assert_eq!(rows(dir.path())?, [text(1), number(2), text(3)]);
        }
    }
    Ok(())
}

/// A process that has the store open notices nothing until it needs a new list.
#[test]
fn a_commit_mends_a_copy_that_was_damaged_meanwhile() -> TestResult {
    let dir = tempfile::tempdir()?;
    let store = open(dir.path())?;
    let orders = Orders::open(&store)?;
    store.transaction(|txn| orders.insert(txn, &text(1)))?;
    in_another_process(dir.path(), "damage")?;
    store.transaction(|txn| orders.insert(txn, &number(2)))?;
    store.check()?;
    drop((orders, store));
    assert_eq!(rows(dir.path())?, [text(1), number(2)]);
    Ok(())
}

#[test]
fn two_unusable_copies_are_an_error_and_nothing_is_written() -> TestResult {
    let dir = tempfile::tempdir()?;
    insert(dir.path(), &text(1))?;
    let other = tempfile::tempdir()?;
    insert(other.path(), &number(1))?;
    let ([Some(intact), _], [Some(contradicting), _]) =
        (copies(dir.path())?, copies(other.path())?)
    else {
        return Err("no record".into());
    };
    for (one, reason) in [
        (damaged(&intact), "no copy of their record is intact"),
        (contradicting, "the two copies of their record contradict each other"),
    ] {
        for at in [0, 1] {
            replace(dir.path(), at, Some(&one))?;
            let other = if reason.contains("contradict") { intact.clone() } else { one.clone() };
            replace(dir.path(), 1 - at, Some(&other))?;
            let before = copies(dir.path())?;
            let store = open(dir.path())?;
            let number = store.read()?.commit_number();
            for outcome in [Orders::open(&store).map(drop), store.check()] {
                let Err(error @ Error::Corrupt { table: "orders", .. }) = outcome else {
                    return Err(format!("{outcome:?}").into());
                };
                let error = error.to_string();
                assert!(error.contains(reason), "{error}");
                assert!(error.contains("restore the directory from a copy"), "{error}");
            }
            assert_eq!(store.read()?.commit_number(), number);
            // The process that can't open the table uses others.
            {
                let others = Wides::open(&store)?;
                store.transaction(|txn| others.put(txn, &Wide::default()))?;
            }
            drop(store);
            assert!(rows(dir.path()).is_err());
            assert_eq!(copies(dir.path())?, before);
        }
    }
    Ok(())
}

#[test]
fn a_commit_against_lost_records_writes_nothing() -> TestResult {
    let dir = tempfile::tempdir()?;
    let store = open(dir.path())?;
    let orders = Orders::open(&store)?;
    store.transaction(|txn| orders.insert(txn, &text(1)))?;
    in_another_process(dir.path(), "lose")?;
    let number_of = |store: &Store| Ok::<_, Error>(store.read()?.commit_number());
    let before = number_of(&store)?;
    let refused = store.transaction(|txn| orders.insert(txn, &number(2)));
    let Err(error @ Error::Corrupt { table: "orders", .. }) = refused else {
        return Err(format!("{refused:?}").into());
    };
    assert!(error.to_string().contains("both copies of their record are missing"), "{error}");
    assert_eq!(number_of(&store)?, before);
    assert_eq!(orders.get(&store.read()?, 2)?, None);
    drop((orders, store));
    assert_eq!(copies(dir.path())?, [None, None]);
    Ok(())
}

/// A commit that writes other tables only, in a process that has claimed lists of this one.
#[test]
fn a_commit_against_lost_claims_writes_nothing() -> TestResult {
    let dir = tempfile::tempdir()?;
    let store = open(dir.path())?;
    let (orders, wides) = (Orders::open(&store)?, Wides::open(&store)?);
    let mut txn = store.write()?;
    orders.insert(&mut txn, &text(1))?;
    drop(txn);
    in_another_process(dir.path(), "insert")?;
    let mut txn = store.write()?;
    wides.insert(&mut txn, &Wide::default())?;
    let refused = txn.commit();
    let expected =
        "another process has recorded other fields of the rows of table `orders`; run it again";
    assert!(
        matches!(&refused, Err(Error::TransactionFailed { reason }) if reason == expected),
        "{refused:?}"
    );
    assert_eq!(wides.get(&store.read()?, 0)?, None);
    store.transaction(|txn| wides.insert(txn, &Wide::default()))?;
    assert_eq!(wides.get(&store.read()?, 0)?, Some(Wide::default()));
    assert_eq!(orders.get(&store.read()?, 2)?, Some(number(2)));
    Ok(())
}

const DIRECTORY: &str = "LIST_COPIES_DIRECTORY";
const WORK: &str = "LIST_COPIES_WORK";

/// The other process.
#[test]
#[ignore = "other tests in this file run it"]
fn another_process() -> TestResult {
    let (Some(dir), Ok(work)) = (env::var_os(DIRECTORY), env::var(WORK)) else { return Ok(()) };
    let dir = Path::new(&dir);
    match &*work {
        "insert" => Ok(insert(dir, &number(2))?),
        "lose" => [0, 1].into_iter().try_for_each(|at| replace(dir, at, None)),
        _ => {
            let [first, _] = copies(dir)?;
            replace(dir, 0, Some(&damaged(&first.unwrap_or_default())))
        }
    }
}

fn in_another_process(dir: &Path, work: &str) -> TestResult {
    let mut child = Command::new(env::current_exe()?);
    child.args(["another_process", "--exact", "--ignored"]).env(DIRECTORY, dir).env(WORK, work);
    let done = child.output()?;
    let output = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(done.status.success() && output.contains("1 passed"), "{output}");
    Ok(())
}

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
fn zero_page(path: &Path, database: &str, key: &str) -> TestResult {
    let path = path.join("data.mdb");
    let mut file = fs::read(&path)?;
    let newest = if long(&file, 128 + 16) < long(&file, PAGE + 128 + 16) { PAGE } else { 0 };
    let names = long(&file, newest + 16 + 24 + 48 + 40);
    let (record, _) = value(&file, names, database.as_bytes()).ok_or("no database")?;
    let root = long(record, 40);
    let (found, is_long) = value(&file, root, key.as_bytes()).ok_or("no record")?;
    let page = if is_long { long(found, 0) } else { root };
    file[page * PAGE..(page + 1) * PAGE].fill(0);
    Ok(fs::write(&path, file)?)
}

/// One page has the second copies of all tables.
#[test]
fn a_store_without_a_readable_page_of_second_copies_is_read_and_written() -> TestResult {
    let dir = tempfile::tempdir()?;
    insert(dir.path(), &text(1))?;
    zero_page(dir.path(), ".lists", "orders")?;
    let found = finding(dir.path())?;
    assert!(found.contains("database `.lists`"), "{found}");
    assert!(found.contains("restore the directory from a copy"), "{found}");
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
            wides.all(&store.read()?).rows().collect::<Result<Vec<_>>>()
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
        assert!(finding(dir.path())?.contains(&format!("database `{database}`")));
    }
    Ok(())
}

fn open_shards(path: &Path) -> Result<(Store, Orders)> {
    let map = ShardMap::ranges().to("north", ..10u32).to("south", 10u32..);
    let options = Store::options().durability(Durability::None);
    let options = options.shard("north", "north").shard("south", "south");
    let store = options.map("tenants", map).open(path)?;
    let orders = Orders::open(&store)?;
    Ok((store, orders))
}

#[test]
fn one_copy_is_enough_in_each_shard() -> TestResult {
    for shard in ["north", "south"] {
        for at in [0, 1] {
            let dir = tempfile::tempdir()?;
            {
                let (store, orders) = open_shards(dir.path())?;
                store.transaction(|txn| {
                    orders.insert(txn, &text(1))?;
                    orders.insert(txn, &number(11))
                })?;
                store.check()?;
            }
            let file = dir.path().join(shard);
            let [Some(intact), _] = copies(&file)? else { return Err("no record".into()) };
            replace(&file, at, Some(&damaged(&intact)))?;
            {
                let store = Store::options().read_only(true).open(dir.path())?;
                let orders = Orders::open(&store)?;
                let rows = orders.all(&store.read()?).rows().collect::<Result<Vec<_>>>()?;
                assert_eq!(rows, [text(1), number(11)]);
                let found = store.check().err().ok_or("nothing was found")?.to_string();
                assert!(found.contains("copy of their record is damaged"), "{found}");
            }
            let (store, orders) = open_shards(dir.path())?;
            store.transaction(|txn| orders.insert(txn, &Order { tenant: 2, note: None }))?;
            store.check()?;
            drop((orders, store));
            assert_eq!(copies(&file)?, [Some(intact.clone()), Some(intact)]);
        }
    }
    Ok(())
}

#[test]
fn a_check_reads_the_pages_of_the_shard_map_manager() -> TestResult {
    let dir = tempfile::tempdir()?;
    let (store, orders) = open_shards(dir.path())?;
    store.transaction(|txn| orders.insert(txn, &text(1)))?;
    store.check()?;
    drop((orders, store));
    zero_page(dir.path(), ".lists", "orders")?;
    let found = finding(dir.path())?;
    assert!(found.contains("database `.lists`"), "{found}");
    Ok(())
}

/// The shard map manager has the record of each table twice, too.
#[test]
fn one_copy_is_enough_for_the_shard_map_manager() -> TestResult {
    for (database, key) in [(".shards", "lists.orders"), (".lists", "orders")] {
        for is_missing in [false, true] {
            let dir = tempfile::tempdir()?;
            {
                let (store, orders) = open_shards(dir.path())?;
                store.transaction(|txn| orders.insert(txn, &text(1)))?;
                store.check()?;
            }
            let change = |change: &mut dyn FnMut(&[u8]) -> Option<Vec<u8>>| -> TestResult {
                #[expect(unsafe_code, reason = "heed marks the whole environment unsafe")]
                // SAFETY: nothing else has the files of this test open.
                let env = unsafe { EnvOpenOptions::new().max_dbs(1).open(dir.path())? };
                let txn = env.write_txn()?;
                env.create_databases_and_commit(txn, |opener, txn| {
                    let records = opener.create_database::<Bytes, Bytes>(txn, Some(database))?;
                    let key = key.as_bytes();
                    let before = records.get(txn, key)?.unwrap_or_default().to_vec();
                    match change(&before) {
                        Some(after) => records.put(txn, key, &after)?,
                        None => drop(records.delete(txn, key)?),
                    }
                    Ok::<_, heed::Error>(CommitOrAbort::<(), ()>::Commit(()))
                })?;
                Ok(())
            };
            let mut intact = Vec::new();
            change(&mut |record| {
                intact = record.to_vec();
                (!is_missing).then(|| damaged(record))
            })?;
            let found = finding(dir.path())?;
            assert!(found.contains("table `orders`") && found.contains("copy of their"), "{found}");
            let (store, orders) = open_shards(dir.path())?;
            store.check()?;
            drop((orders, store));
            change(&mut |record| {
                assert_eq!(record, intact);
                Some(record.to_vec())
            })?;
        }
    }
    Ok(())
}
