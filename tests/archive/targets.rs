//! Directories of archives.

use std::{
    fs,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use index_table::{Durability, Error};

use crate::{
    Archived, Kind, Random, Rows, TestResult, change, last_commit, on_each_kind, open, wait_for,
    wait_for_archive, without_archive,
};

on_each_kind! {
    commits_continue_while_the_archive_cant_be_written,
    an_archive_that_was_unavailable_gets_all_commits,
    a_lost_outbox_leaves_a_gap_and_a_new_base,
    two_open_stores_have_different_archives,
    an_archive_needs_a_journal_and_a_directory_of_its_own,
    #[cfg(unix)] files_of_an_archive_have_the_modes_of_the_store,
    a_directory_that_becomes_empty_gets_no_new_archive,
    #[cfg(unix)] a_directory_that_may_have_a_store_gets_no_archive,
}

#[cfg(unix)]
fn a_directory_that_may_have_a_store_gets_no_archive(kind: Kind) -> TestResult {
    let (it, mut random, mut rows) = (Archived::new(kind)?, Random(22), Rows::new());
    fs::create_dir(&it.archive)?;
    // The file can't be read, because of a loop of links.
    let data = it.archive.join("data.mdb");
    std::os::unix::fs::symlink(&data, &data)?;
    let (store, orders) = it.open()?;
    for _ in 0..10 {
        change(&store, &orders, &mut rows, &mut random)?;
    }
    wait_for(&store, |lag| lag.error.is_some());
    drop((store, orders));
    assert_eq!(fs::read_dir(&it.archive)?.count(), 1);
    fs::remove_file(data)?;
    let (store, orders) = it.open()?;
    wait_for_archive(&store);
    drop((store, orders));
    assert!(it.restored_rows()? == rows);
    Ok(())
}

fn commits_continue_while_the_archive_cant_be_written(kind: Kind) -> TestResult {
    let (mut it, mut random, mut rows) = (Archived::new(kind)?, Random(6), Rows::new());
    // A file is in the place of the directory.
    let disk = it.path("disk");
    it.archive = disk.join("archive");
    fs::write(&disk, "")?;
    for _ in 0..2 {
        let (store, orders) = it.open()?;
        for _ in 0..100 {
            change(&store, &orders, &mut rows, &mut random)?;
        }
        let lag = store.archive_lag().ok_or("no archive")?;
        assert!(lag.commits >= 100, "{lag:?}");
        assert!(lag.error.is_some_and(|error| error.contains("archive")));
        assert!(!lag.has_base);
    }
    fs::remove_file(disk)?;
    let (store, orders) = it.open()?;
    wait_for_archive(&store);
    change(&store, &orders, &mut rows, &mut random)?;
    drop((store, orders));
    assert!(it.restored_rows()? == rows);
    Ok(())
}

fn an_archive_that_was_unavailable_gets_all_commits(kind: Kind) -> TestResult {
    let (it, mut random, mut rows) = (Archived::new(kind)?, Random(7), Rows::new());
    let (store, orders) = it.open()?;
    wait_for_archive(&store);
    drop((store, orders));
    let away = it.path("away");
    fs::rename(&it.archive, &away)?;
    fs::write(&it.archive, "")?;
    let mut then = Vec::new();
    for _ in 0..2 {
        let (store, orders) = it.open()?;
        for _ in 0..100 {
            change(&store, &orders, &mut rows, &mut random)?;
            then.push((last_commit(&store)?, rows.clone()));
        }
    }
    fs::remove_file(&it.archive)?;
    fs::rename(&away, &it.archive)?;
    drop(it.options().open(&it.store)?);
    then.iter().step_by(27).try_for_each(|(commit, rows)| it.has(commit, rows))
}

fn a_lost_outbox_leaves_a_gap_and_a_new_base(kind: Kind) -> TestResult {
    let (it, mut random, mut rows) = (Archived::new(kind)?, Random(13), Rows::new());
    let (store, orders) = it.open()?;
    wait_for_archive(&store);
    let (before, rows_before) = (last_commit(&store)?, rows.clone());
    drop((store, orders));
    let (store, orders) = it.open()?;
    let (pending, begun) = (it.store.join("archive.pending"), Instant::now());
    while pending.exists() {
        // The archiver may write a file there at the same time.
        let _ = fs::remove_dir_all(&pending);
        assert!(begun.elapsed() < Duration::from_mins(1), "{}", pending.display());
    }
    for _ in 0..100 {
        change(&store, &orders, &mut rows, &mut random)?;
    }
    let gap = last_commit(&store)?;
    for _ in 0..100 {
        change(&store, &orders, &mut rows, &mut random)?;
    }
    drop((store, orders));
    let store = it.options().open(&it.store)?;
    wait_for_archive(&store);
    drop(store);
    it.lacks(it.restore().until_commit(gap));
    it.has(&before, &rows_before)?;
    assert!(it.restored_rows()? == rows);
    Ok(())
}

fn two_open_stores_have_different_archives(kind: Kind) -> TestResult {
    let (it, mut random, mut rows) = (Archived::new(kind)?, Random(8), Rows::new());
    let (first, orders) = it.open()?;
    change(&first, &orders, &mut rows, &mut random)?;
    // A new store is refused.
    drop(open(&without_archive(kind), &it.path("second"))?);
    let (second, others) = open(&it.options(), &it.path("second"))?;
    let error = second.archive_lag().and_then(|lag| lag.error).ok_or("no error")?;
    assert!(error.contains("another process archives"), "{error}");
    change(&second, &others, &mut Rows::new(), &mut Random(9))?;
    wait_for_archive(&first);
    drop((second, others));
    drop((first, orders));
    assert!(it.restored_rows()? == rows);
    Ok(())
}

fn an_archive_needs_a_journal_and_a_directory_of_its_own(kind: Kind) -> TestResult {
    let it = Archived::new(kind)?;
    let outcome = it.options().durability(Durability::Full).open(&it.store);
    assert!(matches!(&outcome, Err(Error::Io { .. } | Error::NotOffered { .. })), "{outcome:?}");
    let store = it.to(&it.store).open(&it.store)?;
    let error = store.archive_lag().and_then(|lag| lag.error).ok_or("no error")?;
    assert!(error.contains("it is a store"), "{error}");
    drop(store);
    let plain = without_archive(kind).open(&it.store)?;
    assert!(plain.archive_lag().is_none());
    Ok(())
}

#[cfg(unix)]
fn files_of_an_archive_have_the_modes_of_the_store(kind: Kind) -> TestResult {
    use std::os::unix::fs::PermissionsExt as _;

    let it = Archived::new(kind)?;
    let options = it.options().directory_mode(0o750).file_mode(0o640);
    let (store, orders) = open(&options, &it.store)?;
    change(&store, &orders, &mut Rows::new(), &mut Random(10))?;
    wait_for_archive(&store);
    let check = |path: &Path| -> TestResult {
        let mut directories = vec![path.to_owned()];
        while let Some(path) = directories.pop() {
            let metadata = fs::metadata(&path)?;
            let mode = metadata.permissions().mode() & 0o777;
            assert_eq!(mode, if metadata.is_dir() { 0o750 } else { 0o640 }, "{}", path.display());
            if metadata.is_dir() {
                for entry in fs::read_dir(path)? {
                    directories.push(entry?.path());
                }
            }
        }
        Ok(())
    };
    check(&it.archive)?;
    drop((store, orders));
    check(&it.archive)?;
    check(&it.store)?;
    let to = it.path("restored");
    it.restore().run(&to)?;
    check(&to)
}

fn a_directory_that_becomes_empty_gets_no_new_archive(kind: Kind) -> TestResult {
    let (it, mut random, mut rows) = (Archived::new(kind)?, Random(14), Rows::new());
    let (store, orders) = it.open()?;
    change(&store, &orders, &mut rows, &mut random)?;
    wait_for_archive(&store);
    // The disk of the archive is unmounted, and mounted again.
    let away = it.path("away");
    for is_empty in [true, false] {
        fs::rename(&it.archive, &away)?;
        if is_empty {
            fs::create_dir(&it.archive)?;
        }
        let mut errors = 0;
        while errors < 8 {
            change(&store, &orders, &mut rows, &mut random)?;
            let error = store.archive_lag().and_then(|lag| lag.error);
            errors += usize::from(error.is_some_and(|error| error.contains("manifest is gone")));
            thread::sleep(Duration::from_millis(100));
        }
        let is_new = it.archive.exists() && fs::read_dir(&it.archive)?.next().is_some();
        assert!(!is_new, "a new archive");
        let _ = fs::remove_dir(&it.archive);
        fs::rename(&away, &it.archive)?;
        wait_for_archive(&store);
    }
    drop((store, orders));
    // It is the same generation.
    let names = fs::read_dir(&it.archive)?
        .map(|it| Ok(it?.file_name()))
        .collect::<std::io::Result<Vec<_>>>()?;
    let bases = names.iter().filter(|name| name.to_string_lossy().starts_with("base."));
    assert_eq!(bases.count(), kind.of(1, 3), "{names:?}");
    assert!(it.restored_rows()? == rows);
    Ok(())
}
