//! Messages that can't be applied.

use std::path::Path;

use heed::{CommitOrAbort, Database, EnvFlags, EnvOpenOptions, RwTxn, types::Bytes};
use index_table::{Store, WhenFull};

use crate::{ItemRepository, TestResult, assert_clean, assert_drained, item, on_each};

pub(crate) type Raw<'a> = Database<'a, Bytes, Bytes>;

/// Runs `work` on a database of the closed store, without this crate.
pub(crate) fn on(
    path: &Path,
    name: &str,
    work: impl FnOnce(&Raw<'_>, &mut RwTxn<'_>) -> heed::Result<()>,
) {
    #[expect(unsafe_code, reason = "heed marks the whole environment unsafe")]
    // SAFETY: nothing else has the files of this test open.
    let env = unsafe {
        EnvOpenOptions::new().max_dbs(40).map_size(1 << 24).flags(EnvFlags::NO_SYNC).open(path)
    };
    let env = env.expect("a file of LMDB");
    let txn = env.write_txn().expect("a transaction");
    let done = env.create_databases_and_commit(txn, |opener, txn| {
        let database: Raw<'_> = opener.open_database(txn, Some(name))?.expect("a database");
        work(&database, txn)?;
        Ok::<_, heed::Error>(CommitOrAbort::<(), ()>::Commit(()))
    });
    done.expect("heed can write");
}

fn open(path: &Path) -> index_table::Result<(Store, ItemRepository)> {
    let store = Store::options().map_size(1 << 24).open(path)?;
    let items = ItemRepository::open(&store)?;
    Ok((store, items))
}

#[test]
fn a_message_about_an_unreadable_row_becomes_a_dead_letter() -> TestResult {
    let dir = tempfile::tempdir()?;
    let (store, items) = open(dir.path())?;
    store.transaction(|txn| (0..6).try_for_each(|id| items.insert(txn, &item(id, id))))?;
    items.drain(&store, 3)?;
    drop((items, store));
    let mut whole = Vec::new();
    on(dir.path(), "items", |rows, txn| {
        whole = rows.get(txn, &4_u32.to_be_bytes())?.expect("a row").to_vec();
        rows.put(txn, &4_u32.to_be_bytes(), &[1, 2, 0xff])
    });

    let (store, items) = open(dir.path())?;
    let drained = items.drain(&store, u64::MAX)?;
    assert_eq!((drained.applied, drained.dead_letters, drained.left), (2, 1, 0));
    let txn = store.read()?;
    assert_eq!(items.lag(&txn)?.dead_letters, 1);
    let dead_letters = items.dead_letters(&txn)?;
    assert_eq!((dead_letters[0].number, dead_letters[0].row.as_deref()), (5, Some("4")));
    assert_eq!(dead_letters[0].indexes.len(), 8);
    assert!(dead_letters[0].error.contains("key 4"), "{}", dead_letters[0].error);
    assert_eq!(items.find_by_town(&txn, &item(5, 5).town).verified().count()?, 2);
    drop(txn);
    // The row is still unreadable.
    let again = items.retry_dead_letters(&store)?;
    assert_eq!((again.applied, again.dead_letters), (0, 1));
    drop((items, store));

    on(dir.path(), "items", |rows, txn| rows.put(txn, &4_u32.to_be_bytes(), &whole));
    let (store, items) = open(dir.path())?;
    assert_clean(&items, &store.read()?)?;
    let again = items.retry_dead_letters(&store)?;
    assert_eq!((again.applied, again.dead_letters), (1, 0));
    assert!(items.dead_letters(&store.read()?)?.is_empty());
    assert_drained(&items, &store)?;
    Ok(())
}

/// A repair deletes an unreadable row while messages about it are pending or are dead letters.
#[test]
fn a_row_deleted_by_a_repair_blocks_no_message() -> TestResult {
    let dir = tempfile::tempdir()?;
    let (store, items) = open(dir.path())?;
    store.transaction(|txn| (0..6).try_for_each(|id| items.insert(txn, &item(id, id))))?;
    items.drain(&store, u64::MAX)?;
    store.transaction(|txn| (0..6).try_for_each(|id| items.put(txn, &item(id, id + 1))))?;
    drop((items, store));
    on(dir.path(), "items", |rows, txn| rows.put(txn, &4_u32.to_be_bytes(), &[1, 2, 0xff]));
    let (store, items) = open(dir.path())?;
    assert_eq!(items.drain(&store, u64::MAX)?.dead_letters, 1);
    store.transaction(|txn| items.put(txn, &item(1, 9)))?;
    let mut txn = store.write()?;
    items.repair(&mut txn).delete_unreadable_rows().run()?;
    txn.commit()?;
    assert_eq!(items.retry_dead_letters(&store)?.applied, 1);
    items.drain(&store, u64::MAX)?;
    assert_drained(&items, &store)?;
    Ok(())
}

#[test]
fn damaged_messages_become_dead_letters_and_can_be_retried() -> TestResult {
    let dir = tempfile::tempdir()?;
    let (store, items) = open(dir.path())?;
    store.transaction(|txn| (0..6).try_for_each(|id| items.insert(txn, &item(id, id))))?;
    items.drain(&store, u64::MAX)?;
    for round in 1..4 {
        store.transaction(|txn| {
            (0..5).try_for_each(|id| items.put(txn, &item(id, id + round)))?;
            items.delete(txn, round).map(drop)
        })?;
    }
    drop((items, store));
    let mut messages = Vec::new();
    on(dir.path(), ".queue.items", |queue, txn| {
        for entry in queue.iter(txn)? {
            let (number, message) = entry?;
            messages.push((number.to_vec(), message.to_vec()));
        }
        Ok(())
    });
    let (store, items) = open(dir.path())?;
    items.drain(&store, u64::MAX)?;
    assert_drained(&items, &store)?;
    drop((items, store));
    // A second copy of each message in another order, and bytes that are no message.
    on(dir.path(), ".queue.items", |queue, txn| {
        let messages = messages.iter().filter(|(number, _)| **number != [0; 8]).rev();
        for (number, (_, message)) in (1000_u64..).zip(messages) {
            queue.put(txn, &number.to_be_bytes(), message)?;
        }
        queue.put(txn, &1003_u64.to_be_bytes(), b"no message")
    });
    let (store, items) = open(dir.path())?;
    let drained = items.drain(&store, u64::MAX)?;
    assert_eq!(drained.dead_letters, 1);
    assert!(drained.applied > 10);
    let txn = store.read()?;
    let [dead_letter] = &items.dead_letters(&txn)?[..] else {
        return Err("no dead letter".into());
    };
    assert_eq!((dead_letter.number, &dead_letter.row), (1003, &None));
    assert!(items.verify(&txn).run()?.is_clean());
    Ok(())
}

/// A method that computes keys may panic for a stored row.
#[test]
fn a_message_whose_method_panics_becomes_a_dead_letter() -> TestResult {
    let dir = tempfile::tempdir()?;
    let options = Store::options().map_size(1 << 24).index_queue(9, WhenFull::ApplyInLine);
    let store = options.open(dir.path())?;
    let items = ItemRepository::open(&store)?;
    store.transaction(|txn| (0..3).try_for_each(|id| items.insert(txn, &item(id, id))))?;
    drop((items, store));
    // The method panics for the new name of the second row.
    on(dir.path(), "items", |rows, txn| {
        let row = rows.get(txn, &1_u32.to_be_bytes())?.expect("a row").to_vec();
        let at = row.windows(3).position(|at| at == b"\x02Li").expect("its name");
        let panics = [&row[..at], b"\x05panic", &row[at + 3..]].concat();
        rows.put(txn, &1_u32.to_be_bytes(), &panics)
    });
    let store = options.open(dir.path())?;
    let items = ItemRepository::open(&store)?;
    let drained = items.drain(&store, u64::MAX)?;
    assert_eq!((drained.applied, drained.dead_letters), (2, 1));
    let dead_letters = items.dead_letters(&store.read()?)?;
    assert!(dead_letters[0].error.contains("no name"), "{}", dead_letters[0].error);
    Ok(())
}

#[test]
fn without_failures_there_are_no_dead_letters() -> TestResult {
    on_each(|store| {
        let items = ItemRepository::open(store)?;
        assert!(items.dead_letters(&store.read()?)?.is_empty());
        assert_eq!(items.retry_dead_letters(store)?, index_table::report::Drained::default());
        Ok(())
    })
}
