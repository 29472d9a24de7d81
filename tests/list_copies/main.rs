//! The record of a table's lists stands twice in a data file, and one copy is enough.

mod pages;
mod shards;

use std::{
    env, error,
    path::Path,
    process::{Command, Output, Stdio},
};

use heed::{CommitOrAbort, Database, EnvOpenOptions, RwTxn, types::Bytes};
use index_table::{Durability, Error, IndexTable, Result, Store};
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

/// The same table with another name.
#[derive(Debug, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "purchases", was = "orders", repository = Purchases)]
struct Purchase {
    #[primary_key]
    tenant: u32,
    note: Option<Note>,
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

/// Compares the declarations of this program, and reads all rows by their lists. Returns the keys of unreadable ones.
fn compare(path: &Path) -> std::result::Result<Vec<(String, String)>, Box<dyn error::Error>> {
    let store = Store::options().read_only(true).open(path)?;
    let changes = store.compare_schema(&index_table::schema::<Order>(), true)?;
    let orders = changes.tables.into_iter().next().ok_or("no table")?;
    match orders.refused {
        Some(refused) => Err(refused.into()),
        None => Ok(orders.unreadable.unwrap_or_default().first),
    }
}

#[test]
fn rows_without_their_list_and_damaged_rows_are_unreadable_in_a_comparison() -> TestResult {
    let dir = tempfile::tempdir()?;
    for tenant in 1..=3 {
        insert(dir.path(), &text(tenant))?;
    }
    assert_eq!(compare(dir.path())?, []);
    #[expect(unsafe_code, reason = "heed marks the whole environment unsafe")]
    // SAFETY: a process that has the file open uses LMDB's locks.
    let env = unsafe { EnvOpenOptions::new().max_dbs(4).map_size(1 << 24).open(dir.path())? };
    let txn = env.write_txn()?;
    env.create_databases_and_commit(txn, |opener, txn| {
        let facts: Database<'_, Bytes, Bytes> = opener.create_database(txn, Some("orders"))?;
        // The version, and the number of a list that is not recorded.
        facts.put(txn, &1_u32.to_be_bytes(), &[1, 77, 0])?;
        facts.put(txn, &3_u32.to_be_bytes(), &[])?;
        Ok::<_, heed::Error>(CommitOrAbort::<(), ()>::Commit(()))
    })?;
    drop(env);
    let damaged = |key: &str| (key.to_owned(), "damaged".to_owned());
    assert_eq!(compare(dir.path())?, [damaged("1"), damaged("3")]);
    Ok(())
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
            assert_eq!(compare(dir.path())?, []);
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
        "text" => Ok(insert(dir, &text(1))?),
        "insert other" => Ok(insert(dir, &text(3))?),
        "rename" => {
            let store = open(dir)?;
            let _renamed = Purchases::open(&store)?;
            Ok(Orders::open(&store).map(drop)?)
        }
        "lose" => [0, 1].into_iter().try_for_each(|at| replace(dir, at, None)),
        _ => {
            let [first, _] = copies(dir)?;
            replace(dir, 0, Some(&damaged(&first.unwrap_or_default())))
        }
    }
}

fn other_process(dir: &Path, work: &str) -> std::io::Result<Command> {
    let mut child = Command::new(env::current_exe()?);
    child.args(["another_process", "--exact", "--ignored"]).env(DIRECTORY, dir).env(WORK, work);
    child.stdout(Stdio::piped()).stderr(Stdio::piped());
    Ok(child)
}

fn done(child: &Output) {
    let output = String::from_utf8_lossy(&child.stdout).into_owned();
    assert!(child.status.success() && output.contains("1 passed"), "{output}");
}

fn in_another_process(dir: &Path, work: &str) -> TestResult {
    done(&other_process(dir, work)?.output()?);
    Ok(())
}

/// Each process makes lists of its own for the new table.
#[test]
fn processes_that_open_a_new_store_at_once_write_both_copies() -> TestResult {
    for _ in 0..3 {
        let dir = tempfile::tempdir()?;
        let children = ["insert", "text", "insert other"];
        let children =
            children.map(|work| other_process(dir.path(), work).and_then(|mut it| it.spawn()));
        for child in children {
            done(&child?.wait_with_output()?);
        }
        assert_eq!(rows(dir.path())?, [text(1), number(2), text(3)]);
        open(dir.path())?.check()?;
        let [first, second] = copies(dir.path())?;
        assert!(first.is_some() && first == second);
    }
    Ok(())
}

/// The new table has no lists yet.
#[test]
fn a_table_with_the_name_of_a_renamed_one_does_not_stop_other_tables() -> TestResult {
    let dir = tempfile::tempdir()?;
    let store = open(dir.path())?;
    let (orders, wides) = (Orders::open(&store)?, Wides::open(&store)?);
    store.transaction(|txn| orders.insert(txn, &text(1)))?;
    in_another_process(dir.path(), "rename")?;
    // With a list that the file lacks.
    store.transaction(|txn| wides.insert(txn, &Wide::default()))?;
    drop((orders, wides));
    let orders = Orders::open(&store)?;
    store.transaction(|txn| orders.insert(txn, &number(2)))?;
    store.check()?;
    drop((orders, store));
    assert_eq!(rows(dir.path())?, [number(2)]);
    let store = open(dir.path())?;
    let purchases = Purchases::open(&store).map(drop);
    assert!(matches!(purchases, Err(Error::SchemaMismatch { .. })), "{purchases:?}");
    Ok(())
}

/// Removes the database of the second copies, as if a release without them had written the file.
fn remove_second_copies(path: &Path) -> TestResult {
    raw(path, |[_, second], txn| {
        #[expect(unsafe_code, reason = "other handles become invalid")]
        // SAFETY: there is no other handle.
        unsafe {
            second.remove(txn)
        }
    })
}

#[test]
fn a_file_that_never_had_second_copies_gets_all_of_them_at_once() -> TestResult {
    let dir = tempfile::tempdir()?;
    insert(dir.path(), &text(1))?;
    {
        let store = open(dir.path())?;
        let wides = Wides::open(&store)?;
        store.transaction(|txn| wides.insert(txn, &Wide::default()))?;
    }
    remove_second_copies(dir.path())?;
    Store::options().read_only(true).open(dir.path())?.check()?;
    let store = open(dir.path())?;
    store.check()?;
    drop(Wides::open(&store)?);
    store.check()?;
    drop(store);
    let [first, second] = copies(dir.path())?;
    assert!(first.is_some() && first == second);
    // Now, a missing copy is lost.
    replace(dir.path(), 1, None)?;
    assert!(finding(dir.path())?.contains("the second copy of their record is missing"));
    Ok(())
}
