//! Damaged archives.

use std::{fs, path::Path};

use index_table::{Error, Store};

use crate::{
    Archived, Kind, Random, Rows, TestResult, change, directories::files, fresh, on_each_kind,
    rows_of, wait_for_archive,
};

on_each_kind! { no_damage_of_a_file_restores_other_rows }

fn no_damage_of_a_file_restores_other_rows(kind: Kind) -> TestResult {
    let (it, mut random, mut rows) = (Archived::new(kind)?, Random(11), Rows::new());
    // An archive with several complete segments.
    for _ in 0..3 {
        let (store, orders) = it.open()?;
        wait_for_archive(&store);
        for _ in 0..20 {
            change(&store, &orders, &mut rows, &mut random)?;
        }
    }
    let mut files = files(&it.archive)?;
    files.retain(|path, _| !path.ends_with("lock"));
    assert!(files.len() >= 6, "{:?}", files.keys());
    for (path, intact) in files {
        for change in 0..9 {
            let at = random.below(intact.len() as u32) as usize;
            let mut damaged = intact.clone();
            match change {
                0 => damaged.clear(),
                1 => damaged.truncate(at),
                2 => damaged.push(0),
                _ => damaged[at] ^= 1 << random.below(8),
            }
            fs::write(&path, &damaged)?;
            restores_nothing_else(&it, &rows, &path)?;
        }
        fs::remove_file(&path)?;
        restores_nothing_else(&it, &rows, &path)?;
        fs::write(&path, intact)?;
    }
    assert!(it.restored_rows()? == rows);
    Ok(())
}

/// Checks that a restore is refused, unless the damaged file is one that it does not read: one base of several has the
/// records of the shard map manager.
fn restores_nothing_else(it: &Archived, rows: &Rows, damaged: &Path) -> TestResult {
    let to = fresh(&it.path(""), "restored");
    match it.restore().run(&to) {
        Err(Error::DamagedArchive { .. } | Error::NotInArchive { .. }) => assert!(!to.exists()),
        Err(Error::Io { .. }) if !damaged.exists() => assert!(!to.exists()),
        Ok(_) if damaged.ends_with("manager") => assert!(rows_of(&to)? == *rows),
        outcome => panic!("{}: {outcome:?}", damaged.display()),
    }
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
