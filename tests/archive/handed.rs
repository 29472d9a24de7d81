//! Archives whose files a function gets.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering::SeqCst},
    },
    time::{Duration, SystemTime},
};

use index_table::{ArchiveFile, Durability, Error, Options, Store};

use crate::{
    NoteRepository, Random, Rows, TestResult, change, fresh, last_commit, rows_of, shards,
};

/// Returns options with a function that copies the files to a directory.
fn options(bucket: &Path, fails: impl Fn(&str) -> bool + Send + Sync + 'static) -> Options {
    let options = Store::options().durability(Durability::Journal);
    let options = options.archive_with(function(bucket, fails));
    options.checkpoint(1 << 16, 1 << 14, Duration::from_hours(1))
}

fn function(
    bucket: &Path,
    fails: impl Fn(&str) -> bool + Send + Sync + 'static,
) -> impl Fn(ArchiveFile<'_>) -> io::Result<()> + Send + Sync + 'static {
    let bucket = bucket.to_owned();
    move |file: ArchiveFile<'_>| {
        if fails(file.name) {
            return Err(io::Error::other("the network is down"));
        }
        let object = bucket.join(file.name);
        fs::create_dir_all(object.parent().ok_or(io::ErrorKind::InvalidInput)?)?;
        fs::copy(file.path, object).map(drop)
    }
}

/// Returns the directories of all identities.
fn identities(bucket: &Path) -> io::Result<Vec<PathBuf>> {
    fs::read_dir(bucket)?.map(|entry| Ok(entry?.path())).collect()
}

#[test]
fn a_function_gets_every_commit_although_it_fails_often() -> TestResult {
    let dir = tempfile::tempdir()?;
    let (path, bucket) = (dir.path().join("store"), dir.path().join("bucket"));
    let (mut random, mut rows) = (Random(21), Rows::new());
    let mut then = Vec::new();
    for _ in 0..4 {
        // Every second call with a segment fails, and is repeated.
        let calls = AtomicU32::new(0);
        let options = options(&bucket, move |name| {
            name.contains("segment") && calls.fetch_add(1, SeqCst).is_multiple_of(2)
        });
        let store = options.open(&path)?;
        let notes = NoteRepository::open(&store)?;
        let begun = std::time::Instant::now();
        while store.archive_lag().is_none_or(|lag| !lag.has_base) {
            assert!(begun.elapsed() < Duration::from_mins(1), "{:?}", store.archive_lag());
            std::thread::sleep(Duration::from_millis(5));
        }
        for _ in 0..50 {
            change(&store, &notes, &mut rows, &mut random)?;
            then.push((last_commit(&store)?, rows.clone()));
        }
    }
    drop(options(&bucket, |_| false).open(&path)?);
    let archives = identities(&bucket)?;
    let [archive] = &archives[..] else { panic!("{archives:?}") };
    let to = fresh(dir.path(), "restored");
    Store::restore_archive(archive).run(&to)?;
    assert!(rows_of(&to)? == rows);
    for (commit, rows) in then.into_iter().step_by(23) {
        let to = fresh(dir.path(), "restored");
        Store::restore_archive(archive).until_commit(commit).run(&to)?;
        assert!(rows_of(&to)? == rows);
    }
    Ok(())
}

#[test]
fn a_function_gets_the_files_of_all_shards() -> TestResult {
    let dir = tempfile::tempdir()?;
    let (path, bucket) = (dir.path().join("store"), dir.path().join("bucket"));
    let (mut random, mut rows) = (Random(23), shards::Orders::new());
    let mut then = Vec::new();
    for _ in 0..3 {
        let calls = AtomicU32::new(0);
        let function = function(&bucket, move |name| {
            name.contains("segment") && calls.fetch_add(1, SeqCst).is_multiple_of(2)
        });
        let store = shards::options(&bucket).archive_with(function).open(&path)?;
        let orders = shards::OrderRepository::open(&store)?;
        let begun = std::time::Instant::now();
        while store.archive_lag().is_none_or(|lag| !lag.has_base) {
            assert!(begun.elapsed() < Duration::from_mins(1), "{:?}", store.archive_lag());
            std::thread::sleep(Duration::from_millis(5));
        }
        for _ in 0..30 {
            shards::change(&store, &orders, &mut rows, &mut random)?;
            then.push((last_commit(&store)?, rows.clone()));
        }
    }
    // The last call may have failed.
    drop(shards::options(&bucket).archive_with(function(&bucket, |_| false)).open(&path)?);
    let archives = identities(&bucket)?;
    assert_eq!(archives.len(), 1);
    for (commit, rows) in then.into_iter().step_by(13) {
        let to = fresh(dir.path(), "restored");
        assert_eq!(
            Store::restore_archive(&archives[0]).until_commit(commit.clone()).run(&to)?,
            commit
        );
        assert!(shards::rows_in(&Store::open(&to)?)? == rows);
    }
    Ok(())
}

#[test]
fn commits_continue_while_the_function_fails() -> TestResult {
    let dir = tempfile::tempdir()?;
    let (path, bucket) = (dir.path().join("store"), dir.path().join("bucket"));
    let (mut random, mut rows) = (Random(22), Rows::new());
    let is_down = Arc::new(AtomicBool::new(true));
    let down = Arc::clone(&is_down);
    let options = options(&bucket, move |_| down.load(SeqCst));
    let store = options.clone().open(&path)?;
    let notes = NoteRepository::open(&store)?;
    for _ in 0..200 {
        change(&store, &notes, &mut rows, &mut random)?;
    }
    let lag = store.archive_lag().ok_or("no archive")?;
    assert!(lag.commits >= 200, "{lag:?}");
    assert!(lag.error.is_some_and(|error| error.contains("the network is down")));
    drop((store, notes));
    assert!(!bucket.exists());
    is_down.store(false, SeqCst);
    drop(options.open(&path)?);
    let archives = identities(&bucket)?;
    let to = fresh(dir.path(), "restored");
    Store::restore_archive(&archives[0]).run(&to)?;
    assert!(rows_of(&to)? == rows);
    Ok(())
}

#[test]
fn an_open_store_has_one_function() -> TestResult {
    let dir = tempfile::tempdir()?;
    let (path, bucket) = (dir.path().join("store"), dir.path().join("bucket"));
    let first = options(&bucket, |_| false);
    let _store = first.clone().open(&path)?;
    assert!(first.open(&path).is_ok());
    let outcome = options(&bucket, |_| false).open(&path);
    assert!(matches!(outcome, Err(Error::AlreadyOpen { .. })), "{outcome:?}");
    Ok(())
}

fn refused_without_base<T: std::fmt::Debug>(outcome: &index_table::Result<T>) {
    let is_refused = matches!(outcome, Err(Error::NotInArchive { reason, .. })
        if reason.contains("base after the gap") && reason.contains("`until_end`"));
    assert!(is_refused, "{outcome:?}");
}

#[test]
fn a_restore_to_now_needs_a_base_after_the_last_gap() -> TestResult {
    let dir = tempfile::tempdir()?;
    let (path, bucket) = (dir.path().join("store"), dir.path().join("bucket"));
    let (mut random, mut rows) = (Random(24), Rows::new());
    let mut write = |options: &Options, rows: &mut Rows| -> TestResult {
        let store = options.open(&path)?;
        let notes = NoteRepository::open(&store)?;
        Ok((0..5).try_for_each(|_| change(&store, &notes, rows, &mut random))?)
    };
    write(&options(&bucket, |_| false), &mut rows)?;
    let before = rows.clone();
    write(&Store::options().without_archive(), &mut rows)?;
    write(&options(&bucket, |name| name.contains("/base.")), &mut rows)?;

    let archive = identities(&bucket)?.remove(0);
    let to = dir.path().join("to");
    refused_without_base(&Store::restore_archive(&archive).run(&to));
    let late = Store::restore_archive(&archive).until(SystemTime::now()).run(&to);
    refused_without_base(&late);
    assert!(!to.exists());
    Store::restore_archive(&archive).until_end().run(&to)?;
    assert!(rows_of(&to)? == before);
    write(&options(&bucket, |_| false), &mut rows)?;
    let to = dir.path().join("all");
    Store::restore_archive(&archive).run(&to)?;
    assert!(rows_of(&to)? == rows);
    Ok(())
}

#[test]
fn a_restore_to_now_needs_a_base_of_each_shard_after_the_last_gap() -> TestResult {
    let dir = tempfile::tempdir()?;
    let (path, bucket) = (dir.path().join("store"), dir.path().join("bucket"));
    let (mut random, mut rows) = (Random(25), shards::Orders::new());
    let mut write = |options: Options, rows: &mut shards::Orders| -> TestResult {
        let store = options.open(&path)?;
        let orders = shards::OrderRepository::open(&store)?;
        Ok((0..5).try_for_each(|_| shards::change(&store, &orders, rows, &mut random))?)
    };
    let with =
        |fails: fn(&str) -> bool| shards::options(&bucket).archive_with(function(&bucket, fails));
    write(with(|_| false), &mut rows)?;
    let before = rows.clone();
    write(shards::options(&bucket).without_archive(), &mut rows)?;
    // The base of one shard is missing.
    write(with(|name| name.contains("/base.") && name.contains(".1/")), &mut rows)?;

    let archive = identities(&bucket)?.remove(0);
    let to = dir.path().join("to");
    refused_without_base(&Store::restore_archive(&archive).run(&to));
    let late = Store::restore_archive(&archive).until(SystemTime::now()).run(&to);
    refused_without_base(&late);
    assert!(!to.exists());
    Store::restore_archive(&archive).until_end().run(&to)?;
    assert!(shards::rows_in(&Store::open(&to)?)? == before);
    write(with(|_| false), &mut rows)?;
    let to = dir.path().join("all");
    Store::restore_archive(&archive).run(&to)?;
    assert!(shards::rows_in(&Store::open(&to)?)? == rows);
    Ok(())
}
