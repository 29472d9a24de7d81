//! Archives whose files a function gets.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering::SeqCst},
    },
    time::{Duration, Instant, SystemTime},
};

use index_table::{ArchiveFile, Error, Options, Store};

use crate::{
    Archived, Kind, Random, Rows, TestResult, change, last_commit, on_each_kind, open, order,
    wait_for, wait_for_archive, without_archive,
};

on_each_kind! {
    a_function_gets_every_commit_although_it_fails_often,
    commits_continue_while_the_function_fails,
    an_open_store_has_one_function,
    a_restore_to_now_needs_a_base_of_each_data_file_after_the_last_gap,
}

/// Returns options with a function that copies the files to a directory.
fn options(
    kind: Kind,
    bucket: &Path,
    fails: impl Fn(&str) -> bool + Send + Sync + 'static,
) -> Options {
    let bucket = bucket.to_owned();
    without_archive(kind).archive_with(move |file: ArchiveFile<'_>| {
        if fails(file.name) {
            return Err(io::Error::other("the network is down"));
        }
        let object = bucket.join(file.name);
        fs::create_dir_all(object.parent().ok_or(io::ErrorKind::InvalidInput)?)?;
        fs::copy(file.path, object).map(drop)
    })
}

/// Returns the directory of the only identity.
fn identity(bucket: &Path) -> io::Result<PathBuf> {
    let all: Vec<_> =
        fs::read_dir(bucket)?.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?;
    assert_eq!(all.len(), 1, "{all:?}");
    all.into_iter().next().ok_or_else(|| io::ErrorKind::NotFound.into())
}

fn a_function_gets_every_commit_although_it_fails_often(kind: Kind) -> TestResult {
    let (mut it, mut random, mut rows) = (Archived::new(kind)?, Random(21), Rows::new());
    let bucket = it.path("bucket");
    let mut then = Vec::new();
    for _ in 0..4 {
        // Every second call with a segment fails, and is repeated.
        let calls = AtomicU32::new(0);
        let options = options(kind, &bucket, move |name| {
            name.contains("segment") && calls.fetch_add(1, SeqCst).is_multiple_of(2)
        });
        let (store, orders) = open(&options, &it.store)?;
        wait_for(&store, |lag| lag.has_base);
        for _ in 0..40 {
            change(&store, &orders, &mut rows, &mut random)?;
            then.push((last_commit(&store)?, rows.clone()));
        }
    }
    // The last call may have failed.
    drop(options(kind, &bucket, |_| false).open(&it.store)?);
    it.archive = identity(&bucket)?;
    assert!(it.restored_rows()? == rows);
    then.iter().step_by(17).try_for_each(|(commit, rows)| it.has(commit, rows))
}

fn commits_continue_while_the_function_fails(kind: Kind) -> TestResult {
    let (mut it, mut random, mut rows) = (Archived::new(kind)?, Random(22), Rows::new());
    let bucket = it.path("bucket");
    let is_down = Arc::new(AtomicBool::new(true));
    let down = Arc::clone(&is_down);
    let options = options(kind, &bucket, move |_| down.load(SeqCst));
    let (store, orders) = open(&options, &it.store)?;
    for _ in 0..100 {
        change(&store, &orders, &mut rows, &mut random)?;
    }
    let lag = store.archive_lag().ok_or("no archive")?;
    assert!(lag.commits >= 100, "{lag:?}");
    assert!(lag.error.is_some_and(|error| error.contains("the network is down")));
    drop((store, orders));
    assert!(!bucket.exists());
    is_down.store(false, SeqCst);
    drop(options.open(&it.store)?);
    it.archive = identity(&bucket)?;
    assert!(it.restored_rows()? == rows);
    Ok(())
}

fn an_open_store_has_one_function(kind: Kind) -> TestResult {
    let it = Archived::new(kind)?;
    let first = options(kind, &it.path("bucket"), |_| false);
    let _store = first.open(&it.store)?;
    assert!(kind.of(first, Store::options()).open(&it.store).is_ok());
    let outcome = options(kind, &it.path("bucket"), |_| false).open(&it.store);
    assert!(matches!(outcome, Err(Error::AlreadyOpen { .. })), "{outcome:?}");
    Ok(())
}

fn a_restore_to_now_needs_a_base_of_each_data_file_after_the_last_gap(kind: Kind) -> TestResult {
    let (mut it, mut random, mut rows) = (Archived::new(kind)?, Random(24), Rows::new());
    let (bucket, store) = (it.path("bucket"), it.store.clone());
    let mut write = |options: &Options, rows: &mut Rows| -> TestResult {
        let (store, orders) = open(options, &store)?;
        Ok((0..5).try_for_each(|_| change(&store, &orders, rows, &mut random))?)
    };
    write(&options(kind, &bucket, |_| false), &mut rows)?;
    let before = rows.clone();
    write(&without_archive(kind).without_archive(), &mut rows)?;
    // The base of one data file is missing.
    let last = kind.of("", ".1/");
    let fails = move |name: &str| name.contains("/base.") && name.contains(last);
    write(&options(kind, &bucket, fails), &mut rows)?;

    it.archive = identity(&bucket)?;
    for restore in [it.restore(), it.restore().until(SystemTime::now())] {
        let reason = it.lacks(restore);
        assert!(reason.contains("base after the gap") && reason.contains("`until_end`"));
    }
    assert!(it.restored(it.restore().until_end())?.1 == before);
    write(&options(kind, &bucket, |_| false), &mut rows)?;
    assert!(it.restored_rows()? == rows);
    Ok(())
}

#[test]
fn a_base_is_not_handed_over_before_the_segments_with_its_commits() -> TestResult {
    let mut it = Archived::new(Kind::Several)?;
    let bucket = it.path("bucket");
    let (takes_segments, takes_bases) =
        (Arc::new(AtomicBool::new(true)), Arc::new(AtomicBool::new(true)));
    let (segments, bases) = (Arc::clone(&takes_segments), Arc::clone(&takes_bases));
    let options = options(it.kind, &bucket, move |name| {
        !if name.contains("/base.") { &bases } else { &segments }.load(SeqCst)
    });
    let (store, orders) = open(&options, &it.store)?;
    store.transaction(|txn| orders.insert(txn, &order(5, 0, 0)))?;
    wait_for_archive(&store);
    takes_bases.store(false, SeqCst);
    store.add_shard("d", "d")?;
    // The first state of the shard is not taken, so that a later state is pinned.
    wait_for(&store, |lag| lag.error.is_some());
    takes_segments.store(false, SeqCst);
    takes_bases.store(true, SeqCst);
    store.transaction(|txn| orders.insert(txn, &order(6, 0, 0)))?;
    // The next attempt follows 10 s later.
    let begun = Instant::now();
    it.archive = identity(&bucket)?;
    while begun.elapsed() < Duration::from_secs(12) {
        for entry in fs::read_dir(&it.archive)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            assert!(!(name.starts_with("base.") && name.ends_with(".3")), "{name}");
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    takes_segments.store(true, SeqCst);
    wait_for_archive(&store);
    drop((store, orders));
    assert_eq!(it.restored_rows()?.len(), 2);
    Ok(())
}
