//! The archive of a store with several shards after a shard could not join the journal.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use index_table::{Error, Store};

use crate::{
    TestResult, fresh,
    joining::{Step, StepRepository},
    rows_of,
    shards::{OrderRepository, options, order},
    wait_for_archive,
};

/// The archive of a store, which can be made unavailable.
struct Bucket(PathBuf);

impl Bucket {
    /// Makes the archive unavailable, and commits a row that it then lacks.
    fn lose(&self, store: &Store, id: u32) -> TestResult {
        let steps = StepRepository::open(store)?;
        fs::rename(&self.0, self.0.with_extension("away"))?;
        store.transaction(|txn| steps.insert(txn, &Step { tenant: 5, id }))?;
        let begun = Instant::now();
        while store.archive_lag().ok_or("an archive")?.error.is_none() {
            assert!(begun.elapsed() < Duration::from_mins(1), "no error");
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    fn come_back(&self) -> io::Result<()> {
        fs::rename(self.0.with_extension("away"), &self.0)
    }

    /// Returns the names of all bases.
    fn bases(&self) -> io::Result<BTreeSet<String>> {
        let names = fs::read_dir(&self.0)?
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
        let names: io::Result<BTreeSet<_>> = names.collect();
        Ok(names?.into_iter().filter(|name| name.starts_with("base.")).collect())
    }
}

/// Calls `join` while a file of the journal is missing, so that no checkpoint can be made with the shard.
fn without_checkpoint(store: &Path, join: impl FnOnce() -> index_table::Result<()>) -> TestResult {
    let (file, away) = (store.join("shards.journal.0"), store.join("away"));
    fs::rename(&file, &away)?;
    let joined = join();
    fs::rename(&away, &file)?;
    let Err(Error::Io { source, .. }) = &joined else { panic!("{joined:?}") };
    assert!(source.to_string().contains("a file of the journal could not be opened"), "{source}");
    Ok(())
}

/// Checks that the archive does not change when `join` fails, and has the shard after `join` has succeeded.
fn fails_first(
    (dir, bucket): (&Path, &Bucket),
    store: Store,
    leave: &dyn Fn(&Store) -> index_table::Result<()>,
    join: &dyn Fn(&Store) -> index_table::Result<()>,
    what: &str,
) -> TestResult {
    let path = dir.join("store");
    let (orders, steps) = (OrderRepository::open(&store)?, StepRepository::open(&store)?);
    leave(&store)?;
    wait_for_archive(&store);
    let bases = bucket.bases()?;

    // The archive can't get a base.
    bucket.lose(&store, 0)?;
    without_checkpoint(&path, || join(&store))?;
    let lag = store.archive_lag().ok_or("an archive")?;
    assert!(lag.has_base, "{what}: {lag:?}");
    bucket.come_back()?;
    wait_for_archive(&store);
    without_checkpoint(&path, || join(&store))?;
    wait_for_archive(&store);
    assert_eq!(bucket.bases()?, bases, "{what}");

    join(&store)?;
    if store.shard("d").is_ok() {
        store.move_range("orders", 15u32..=15, "d").run()?;
    }
    store.transaction(|txn| orders.insert(txn, &order(15, 1, 0)))?;
    wait_for_archive(&store);
    drop((store, orders, steps));
    let to = fresh(dir, "restored");
    Store::restore_archive(&bucket.0).run(&to)?;
    let rows = (0..2).map(|id| ((15, id), order(15, id, 0))).collect();
    assert!(rows_of(&to)? == rows, "{what}");
    Ok(())
}

/// Creates a store with a row in shard `b`.
fn created(dir: &Path) -> Result<(Bucket, Store), Error> {
    let bucket = Bucket(dir.join("bucket"));
    let store = options(&bucket.0).open(dir.join("store"))?;
    let (orders, _steps) = (OrderRepository::open(&store)?, StepRepository::open(&store)?);
    store.transaction(|txn| orders.insert(txn, &order(15, 0, 0)))?;
    Ok((bucket, store))
}

#[test]
fn a_shard_that_can_not_be_added_does_not_change_the_archive() -> TestResult {
    let dir = tempfile::tempdir()?;
    let (bucket, store) = created(dir.path())?;
    let join = |store: &Store| store.add_shard("d", "d").map(drop);
    fails_first((dir.path(), &bucket), store, &|_| Ok(()), &join, "added")
}

fn attach(store: &Store) -> index_table::Result<()> {
    store.attach_shard("b", "b").map(drop)
}

#[test]
fn a_shard_that_can_not_be_attached_does_not_change_the_archive() -> TestResult {
    for is_open in [false, true] {
        let dir = tempfile::tempdir()?;
        let (bucket, store) = created(dir.path())?;
        let leave = |store: &Store| {
            let before = is_open.then(|| store.read()).transpose()?;
            store.detach_shard("b")?;
            if before.is_some() {
                let joined = without_checkpoint(&dir.path().join("store"), || attach(store));
                joined.map_err(|error| error.to_string()).expect("a failure");
            }
            Ok(())
        };
        fails_first((dir.path(), &bucket), store, &leave, &attach, "attached")?;
    }
    Ok(())
}

#[test]
fn a_shard_that_can_not_be_restored_does_not_change_the_archive() -> TestResult {
    let dir = tempfile::tempdir()?;
    let (bucket, store) = created(dir.path())?;
    store.backup_to(dir.path().join("backup"))?;
    wait_for_archive(&store);
    drop(store);
    fs::remove_dir_all(dir.path().join("store").join("b"))?;
    let store = Store::options().archive(&bucket.0).open(dir.path().join("store"))?;
    let backup = dir.path().join("backup").join("shard.1");
    let join = |store: &Store| store.restore_shard(&store.shard("b")?, &backup);
    fails_first((dir.path(), &bucket), store, &|_| Ok(()), &join, "restored")
}
