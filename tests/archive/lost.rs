//! Archives that lack commits: a part of the files was lost, or the archive could not be written when it was given up.

use std::{
    fs, thread,
    time::{Duration, SystemTime},
};

use index_table::{Error, Store};

use crate::{
    TestResult,
    directories::copied,
    fresh,
    shards::{OrderRepository, options, order, rows_in},
    wait_for_archive,
};

#[test]
fn commits_that_are_neither_in_the_archive_nor_beside_the_store_are_found() -> TestResult {
    let dir = tempfile::tempdir()?;
    let (path, archive) = (dir.path().join("store"), dir.path().join("archive"));
    let pending = path.join("archive.pending");
    let insert = |version: u32, begun: &dyn Fn() -> TestResult| -> TestResult {
        let store = options(&archive).open(&path)?;
        let orders = OrderRepository::open(&store)?;
        wait_for_archive(&store);
        begun()?;
        // Each transaction is followed by a checkpoint, so the journal has no records after the last one.
        for tenant in [5, 15, 25] {
            store.transaction(|txn| {
                (0..40).try_for_each(|id| orders.put(txn, &order(tenant, id, version)))
            })?;
            thread::sleep(Duration::from_millis(100));
        }
        wait_for_archive(&store);
        Ok(())
    };
    let kept = [(&archive, dir.path().join("archive.1")), (&pending, dir.path().join("pending.1"))];
    insert(1, &|| Ok(()))?;
    insert(2, &|| Ok(kept.iter().try_for_each(|(from, to)| copied(from, to))?))?;
    // Nothing of the second process was written, because its disk was full.
    for (to, from) in &kept {
        fs::remove_dir_all(to)?;
        copied(from, to)?;
    }
    insert(3, &|| Ok(()))?;
    let to = fresh(dir.path(), "restored");
    Store::restore_archive(&archive).run(&to)?;
    let restored = rows_in(&Store::open(&to)?)?;
    assert_eq!(restored, rows_in(&Store::options().read_only(true).open(&path)?)?);
    Ok(())
}

#[test]
fn an_archive_that_was_not_there_when_it_was_given_up_ends_at_its_last_commit() -> TestResult {
    let dir = tempfile::tempdir()?;
    let (path, archive) = (dir.path().join("store"), dir.path().join("archive"));
    let elsewhere = dir.path().join("elsewhere");
    {
        let store = options(&archive).open(&path)?;
        let orders = OrderRepository::open(&store)?;
        store.transaction(|txn| orders.put(txn, &order(5, 1, 0)))?;
        wait_for_archive(&store);
    }
    thread::sleep(Duration::from_millis(2));
    fs::rename(&archive, &elsewhere)?;
    let without = || Store::options().without_archive().open(&path);
    {
        let store = without()?;
        let orders = OrderRepository::open(&store)?;
        store.transaction(|txn| orders.put(txn, &order(5, 2, 0)))?;
    }
    let between = SystemTime::now();
    thread::sleep(Duration::from_millis(2));
    fs::rename(&elsewhere, &archive)?;
    drop(without()?);
    let to = fresh(dir.path(), "restored");
    let refused = Store::restore_archive(&archive).until(between).run(&to);
    assert!(matches!(refused, Err(Error::NotInArchive { .. })), "{refused:?}");
    Store::restore_archive(&archive).until_end().run(&to)?;
    assert_eq!(rows_in(&Store::open(&to)?)?.len(), 1);
    Ok(())
}
