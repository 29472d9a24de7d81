//! Directories of archives.

use std::fs;

use index_table::{Durability, Error, Store};

use crate::{
    NoteRepository, Random, Rows, TestResult, change, fresh, options, rows_of, wait_for_archive,
};

#[test]
fn commits_continue_while_the_archive_cant_be_written() -> TestResult {
    let dir = tempfile::tempdir()?;
    let (path, archive) = (dir.path().join("store"), dir.path().join("disk").join("archive"));
    // A file is in the place of the directory.
    fs::write(dir.path().join("disk"), "")?;
    let (mut random, mut rows) = (Random(6), Rows::new());
    for _ in 0..2 {
        let store = options(&archive).open(&path)?;
        let notes = NoteRepository::open(&store)?;
        for _ in 0..200 {
            change(&store, &notes, &mut rows, &mut random)?;
        }
        let lag = store.archive_lag().ok_or("no archive")?;
        assert!(lag.commits >= 200, "{lag:?}");
        assert!(lag.error.is_some_and(|error| error.contains("archive")));
        assert!(!lag.has_base);
    }
    fs::remove_file(dir.path().join("disk"))?;
    let store = options(&archive).open(&path)?;
    let notes = NoteRepository::open(&store)?;
    wait_for_archive(&store);
    change(&store, &notes, &mut rows, &mut random)?;
    drop((store, notes));
    let to = fresh(dir.path(), "restored");
    Store::restore_archive(&archive).run(&to)?;
    assert!(rows_of(&to)? == rows);
    Ok(())
}

#[test]
fn an_archive_that_was_unavailable_gets_all_commits() -> TestResult {
    let dir = tempfile::tempdir()?;
    let (path, archive) = (dir.path().join("store"), dir.path().join("archive"));
    let (mut random, mut rows) = (Random(7), Rows::new());
    let store = options(&archive).open(&path)?;
    let notes = NoteRepository::open(&store)?;
    wait_for_archive(&store);
    drop((store, notes));
    let away = dir.path().join("away");
    fs::rename(&archive, &away)?;
    fs::write(&archive, "")?;
    let mut then = Vec::new();
    for _ in 0..2 {
        let store = options(&archive).open(&path)?;
        let notes = NoteRepository::open(&store)?;
        for _ in 0..200 {
            change(&store, &notes, &mut rows, &mut random)?;
            then.push((crate::last_commit(&store)?, rows.clone()));
        }
    }
    fs::remove_file(&archive)?;
    fs::rename(&away, &archive)?;
    drop(options(&archive).open(&path)?);
    for (commit, rows) in then.into_iter().step_by(37) {
        let to = fresh(dir.path(), "restored");
        Store::restore_archive(&archive).until_commit(commit).run(&to)?;
        assert!(rows_of(&to)? == rows);
    }
    Ok(())
}

#[test]
fn a_lost_outbox_leaves_a_gap_and_a_new_base() -> TestResult {
    let dir = tempfile::tempdir()?;
    let (path, archive) = (dir.path().join("store"), dir.path().join("archive"));
    let (mut random, mut rows) = (Random(13), Rows::new());
    let store = options(&archive).open(&path)?;
    let notes = NoteRepository::open(&store)?;
    wait_for_archive(&store);
    let (before, rows_before) = (crate::last_commit(&store)?, rows.clone());
    drop((store, notes));
    let store = options(&archive).open(&path)?;
    let notes = NoteRepository::open(&store)?;
    fs::remove_dir_all(path.join("archive.pending"))?;
    for _ in 0..100 {
        change(&store, &notes, &mut rows, &mut random)?;
    }
    let gap = crate::last_commit(&store)?;
    for _ in 0..100 {
        change(&store, &notes, &mut rows, &mut random)?;
    }
    drop((store, notes));
    let store = options(&archive).open(&path)?;
    wait_for_archive(&store);
    drop(store);
    let to = fresh(dir.path(), "restored");
    let outcome = Store::restore_archive(&archive).until_commit(gap).run(&to);
    assert!(matches!(outcome, Err(Error::NotInArchive { .. })), "{outcome:?}");
    Store::restore_archive(&archive).until_commit(before).run(&to)?;
    assert!(rows_of(&to)? == rows_before);
    let to = fresh(dir.path(), "restored");
    Store::restore_archive(&archive).run(&to)?;
    assert!(rows_of(&to)? == rows);
    Ok(())
}

#[test]
fn two_open_stores_have_different_archives() -> TestResult {
    let dir = tempfile::tempdir()?;
    let archive = dir.path().join("archive");
    let (mut random, mut rows) = (Random(8), Rows::new());
    let first = options(&archive).open(dir.path().join("first"))?;
    let notes = NoteRepository::open(&first)?;
    change(&first, &notes, &mut rows, &mut random)?;
    let second = options(&archive).open(dir.path().join("second"))?;
    let error = second.archive_lag().and_then(|lag| lag.error).ok_or("no error")?;
    assert!(error.contains("another process archives"), "{error}");
    change(&second, &NoteRepository::open(&second)?, &mut Rows::new(), &mut Random(9))?;
    wait_for_archive(&first);
    drop(second);
    drop((first, notes));
    let to = dir.path().join("restored");
    Store::restore_archive(&archive).run(&to)?;
    assert!(rows_of(&to)? == rows);
    Ok(())
}

#[test]
fn an_archive_needs_a_journal_and_a_directory_of_its_own() -> TestResult {
    let dir = tempfile::tempdir()?;
    let (path, archive) = (dir.path().join("store"), dir.path().join("archive"));
    let full = Store::options().durability(Durability::Full);
    let outcome = full.archive(&archive).open(&path);
    assert!(matches!(&outcome, Err(Error::Io { .. })), "{outcome:?}");
    let store = options(&path).open(&path)?;
    let error = store.archive_lag().and_then(|lag| lag.error).ok_or("no error")?;
    assert!(error.contains("it is a store"), "{error}");
    drop(store);
    let plain = Store::options().durability(Durability::Journal).open(&path)?;
    assert!(plain.archive_lag().is_none());
    Ok(())
}

#[cfg(unix)]
#[test]
fn files_of_an_archive_have_the_modes_of_the_store() -> TestResult {
    use std::os::unix::fs::PermissionsExt as _;

    let dir = tempfile::tempdir()?;
    let (path, archive) = (dir.path().join("store"), dir.path().join("archive"));
    let store = options(&archive).directory_mode(0o750).file_mode(0o640).open(&path)?;
    let notes = NoteRepository::open(&store)?;
    change(&store, &notes, &mut Rows::new(), &mut Random(10))?;
    wait_for_archive(&store);
    let check = |path: &std::path::Path| -> TestResult {
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
    check(&archive)?;
    drop((store, notes));
    check(&archive)?;
    check(&path)?;
    let to = dir.path().join("restored");
    Store::restore_archive(&archive).run(&to)?;
    check(&to)
}

#[test]
fn a_directory_that_becomes_empty_gets_no_new_archive() -> TestResult {
    let dir = tempfile::tempdir()?;
    let (path, archive) = (dir.path().join("store"), dir.path().join("archive"));
    let (mut random, mut rows) = (Random(14), Rows::new());
    let store = options(&archive).open(&path)?;
    let notes = NoteRepository::open(&store)?;
    change(&store, &notes, &mut rows, &mut random)?;
    wait_for_archive(&store);
    // The disk of the archive is unmounted, and mounted again.
    let away = dir.path().join("away");
    for is_empty in [true, false] {
        fs::rename(&archive, &away)?;
        if is_empty {
            fs::create_dir(&archive)?;
        }
        let mut errors = 0;
        while errors < 8 {
            change(&store, &notes, &mut rows, &mut random)?;
            let error = store.archive_lag().and_then(|lag| lag.error);
            errors += usize::from(error.is_some_and(|error| error.contains("manifest is gone")));
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        assert!(!archive.exists() || fs::read_dir(&archive)?.next().is_none(), "a new archive");
        let _ = fs::remove_dir(&archive);
        fs::rename(&away, &archive)?;
        wait_for_archive(&store);
    }
    drop((store, notes));
    // It is the same generation.
    let names = fs::read_dir(&archive)?
        .map(|it| Ok(it?.file_name()))
        .collect::<std::io::Result<Vec<_>>>()?;
    let bases = names.iter().filter(|name| name.to_string_lossy().starts_with("base."));
    assert_eq!(bases.count(), 1, "{names:?}");
    let to = fresh(dir.path(), "restored");
    Store::restore_archive(&archive).run(&to)?;
    assert!(rows_of(&to)? == rows);
    Ok(())
}
