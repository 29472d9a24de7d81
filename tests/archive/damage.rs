//! Damaged archives.

use std::{
    fs,
    path::{Path, PathBuf},
};

use index_table::{Error, Store};

use crate::{
    NoteRepository, Random, Rows, TestResult, change, fresh, options, rows_of, wait_for_archive,
};

/// Writes an archive with several complete segments.
fn archive(dir: &Path) -> Result<(PathBuf, Rows), Box<dyn std::error::Error>> {
    let (path, archive) = (dir.join("store"), dir.join("archive"));
    let (mut random, mut rows) = (Random(11), Rows::new());
    for _ in 0..3 {
        let store = options(&archive).open(&path)?;
        let notes = NoteRepository::open(&store)?;
        wait_for_archive(&store);
        for _ in 0..20 {
            change(&store, &notes, &mut rows, &mut random)?;
        }
    }
    Ok((archive, rows))
}

/// Returns all files, without the lock.
fn files(archive: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(archive)? {
        let path = entry?.path();
        if path.is_dir() {
            files.extend(fs::read_dir(path)?.filter_map(|it| Some(it.ok()?.path())));
        } else if path.file_name().is_none_or(|name| name != "lock") {
            files.push(path);
        }
    }
    Ok(files)
}

#[test]
fn no_damage_of_a_file_restores_other_rows() -> TestResult {
    let dir = tempfile::tempdir()?;
    let (archive, rows) = archive(dir.path())?;
    let mut random = Random(12);
    let files = files(&archive)?;
    assert!(files.len() >= 6, "{files:?}");
    for path in files {
        let intact = fs::read(&path)?;
        for change in 0..12 {
            let at = random.below(intact.len() as u32) as usize;
            let mut damaged = intact.clone();
            match change {
                0 => damaged.clear(),
                1 => damaged.truncate(at),
                2 => damaged.push(0),
                _ => damaged[at] ^= 1 << random.below(8),
            }
            fs::write(&path, &damaged)?;
            let to = fresh(dir.path(), "restored");
            let outcome = Store::restore_archive(&archive).run(&to);
            let is_refused =
                matches!(outcome, Err(Error::DamagedArchive { .. } | Error::NotInArchive { .. }));
            assert!(is_refused, "{} at {at}: {outcome:?}", path.display());
            assert!(!to.exists());
        }
        fs::remove_file(&path)?;
        let outcome = Store::restore_archive(&archive).run(fresh(dir.path(), "restored"));
        assert!(outcome.is_err(), "without {}", path.display());
        fs::write(&path, intact)?;
    }
    let to = fresh(dir.path(), "restored");
    Store::restore_archive(&archive).run(&to)?;
    assert!(rows_of(&to)? == rows);
    Ok(())
}

#[test]
fn a_missing_archive_is_not_found() -> TestResult {
    let dir = tempfile::tempdir()?;
    let to = dir.path().join("restored");
    let outcome = Store::restore_archive(dir.path().join("archive")).run(&to);
    assert!(
        matches!(&outcome, Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound),
        "{outcome:?}"
    );
    assert!(!to.exists());
    Ok(())
}
