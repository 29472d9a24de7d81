//! Damaged, truncated and foreign files.

use std::path::Path;

use heed::{CommitOrAbort, EnvOpenOptions, types::Bytes};
use index_table::Error;
use proptest::prelude::*;

use super::{NAMES, TestResult, dump, hex, open, raw, write};

/// A scan returns the rows before a damaged entry, then an error, and nothing after it.
#[test]
fn a_scan_ends_at_a_damaged_entry() -> TestResult {
    let dir = tempfile::tempdir()?;
    let damaged: [(&str, &[u8], &[u8]); 7] = [
        // A block with half a primary key, two without a primary key, and one whose primary keys lack all bytes.
        ("people.town", b"Oslo\0", &[0, 1, 0, 1]),
        ("people.town", b"Pisa\0", &[]),
        ("people.town", b"Pisa\0", &[1]),
        ("people.town", b"Pisa\0", &[2, 1]),
        // A key with bytes after its end.
        ("people.town", b"Quito\0xyz", &[1, 1]),
        // A primary key of three bytes.
        ("people.email", b"0\0", &[0, 0, 1]),
        // An entry in a full index without a row.
        ("people.age", &[0, 0, 9], &[1, 9]),
    ];
    for (name, key, value) in damaged {
        let path = dir.path().join(hex(&[key, value].concat()));
        std::fs::create_dir(&path)?;
        write(&path)?;
        raw(
            &path,
            |found, database, txn| {
                if found == name { database.put(txn, key, value) } else { Ok(()) }
            },
        )?;
        let (store, people, _) = open(&path)?;
        let txn = store.read()?;
        let mut rows: Vec<_> = match name {
            "people.town" => people.by_town(&txn).rows().collect(),
            "people.email" => people.by_email(&txn).rows().collect(),
            _ => people.by_age(&txn).rows().collect(),
        };
        let last = rows.pop().ok_or("no result")?;
        assert!(matches!(last, Err(Error::Corrupt { table: "people", .. })), "{last:?}");
        assert!(rows.iter().all(Result::is_ok), "the scan continued after an error");
        assert!(rows.len() < 3, "{rows:?}");
    }
    Ok(())
}

/// Bytes that can't be read as a row can't be read as a view either, with the same reason.
#[test]
fn views_are_read_as_strictly_as_rows() -> TestResult {
    type Damage = fn(&mut Vec<u8>);
    let damages: [(Damage, &str); 5] = [
        (|row| row.push(0), "bytes"),
        (|row| row.truncate(row.len() - 1), ""),
        // A list that is not recorded, and version 0 before the number of the list.
        (|row| row[0] = 1, "not recorded"),
        (|row| drop(row.splice(..0, [0x80, 0x40])), "version"),
        // The first letter of the town, after the list, the id and a length.
        (|row| row[3] = 0xff, ""),
    ];
    for (damage, reason) in damages {
        let dir = tempfile::tempdir()?;
        write(dir.path())?;
        raw(dir.path(), |name, database, txn| {
            if name != "people" {
                return Ok(());
            }
            let mut row = database.get(txn, &[0, 1])?.unwrap_or_default().to_vec();
            damage(&mut row);
            database.put(txn, &[0, 1], &row)
        })?;
        let (store, people, _) = open(dir.path())?;
        let txn = store.read()?;
        let row = people.get(&txn, 1).err().ok_or("the damaged row was read")?;
        assert!(matches!(row, Error::Corrupt { table: "people", .. }), "{row:?}");
        assert!(row.to_string().contains(reason), "{row}");
        let views = [
            people.get_view(&txn, 1).err(),
            people.all(&txn).or(people.all(&txn)).views().next().and_then(Result::err),
            people.get_many(&txn, [1]).views().next().and_then(Result::err),
        ];
        for view in views {
            assert_eq!(view.map(|error| error.to_string()), Some(row.to_string()));
        }
        assert_eq!(outcomes(people.all(&txn).views()), outcomes(people.all(&txn).rows()));
        assert_eq!(outcomes(people.by_email(&txn).views()), outcomes(people.by_email(&txn).rows()));
    }
    Ok(())
}

/// A database with the name of a table that is not a table is refused and not changed.
#[test]
fn databases_of_other_programs_are_not_changed() -> TestResult {
    let dir = tempfile::tempdir()?;
    #[expect(unsafe_code, reason = "heed marks the whole environment unsafe")]
    // SAFETY: nothing else has the files of this test open.
    let env = unsafe { EnvOpenOptions::new().max_dbs(20).map_size(1 << 24).open(dir.path())? };
    let txn = env.write_txn()?;
    env.create_databases_and_commit(txn, |opener, txn| {
        let database = opener.create_database::<Bytes, Bytes>(txn, Some("people"))?;
        database.put(txn, b"some", b"thing")?;
        Ok::<_, heed::Error>(CommitOrAbort::<(), ()>::Commit(()))
    })?;
    drop(env);
    let result = open(dir.path()).map(drop);
    assert!(matches!(result, Err(Error::SchemaMismatch { table: "people", .. })), "{result:?}");
    assert_eq!(dump(dir.path())?["people"], [(b"some".to_vec(), b"thing".to_vec())]);
    Ok(())
}

#[test]
fn truncated_and_foreign_files_are_refused() -> TestResult {
    let dir = tempfile::tempdir()?;
    write(dir.path())?;
    let whole = std::fs::read(dir.path().join("data.mdb"))?;
    let page = 4096;
    for length in [0, 17, page, 2 * page, 2 * page + 1, whole.len() / 2, whole.len() - 1] {
        let dir = tempfile::tempdir()?;
        std::fs::write(dir.path().join("data.mdb"), &whole[..length])?;
        match open(dir.path()).map(drop) {
            // LMDB treats an empty file as a new file.
            Ok(()) => assert_eq!(length, 0),
            Err(error) => {
                assert!(matches!(error, Error::DamagedFile { .. }), "{length}: {error:?}");
            }
        }
    }
    let dir = tempfile::tempdir()?;
    std::fs::write(dir.path().join("data.mdb"), "x".repeat(20_000))?;
    let result = open(dir.path()).map(drop);
    assert!(matches!(result, Err(Error::DamagedFile { .. })), "{result:?}");
    Ok(())
}

/// LMDB's files have the byte order and the addresses of the machine that writes them.
#[test]
fn a_file_of_another_machine_is_not_called_damaged() -> TestResult {
    const META: u16 = 8;
    const MAGIC: u32 = 0xBEEF_C0DE;
    for (word, is_big) in [(4, false), (4, true), (8, false), (8, true)] {
        if (word, is_big) == (size_of::<usize>(), cfg!(target_endian = "big")) {
            continue;
        }
        let mut file = vec![0; 8 * 4096];
        for page in [0, 4096] {
            let (flags, magic) = if is_big {
                (META.to_be_bytes(), MAGIC.to_be_bytes())
            } else {
                (META.to_le_bytes(), MAGIC.to_le_bytes())
            };
            file[page + word + 2..][..2].copy_from_slice(&flags);
            file[page + word + 8..][..4].copy_from_slice(&magic);
        }
        let dir = tempfile::tempdir()?;
        std::fs::write(dir.path().join("data.mdb"), file)?;
        let error = open(dir.path()).map(drop).expect_err("another machine's file");
        assert!(matches!(error, Error::DamagedFile { .. }), "{error:?}");
        let order = if is_big { "big-endian" } else { "little-endian" };
        let machine = format!("a machine with {}-bit addresses and {order} numbers", 8 * word);
        let error = error.to_string();
        assert!(error.contains(&machine) && error.ends_with("`mdb_load` here"), "{error}");
    }
    Ok(())
}

/// Returns the outcome of each read item.
fn outcomes<T>(read: impl Iterator<Item = index_table::Result<T>>) -> Vec<Result<(), String>> {
    read.map(|outcome| outcome.map(drop).map_err(|error| error.to_string())).collect()
}

/// Runs all queries, which must return a result or an error.
fn run_all_queries(path: &Path) -> index_table::Result<()> {
    let (store, people, notes) = open(path)?;
    let txn = store.read()?;
    let mut failures = Vec::new();
    macro_rules! run {
        ($($scan:expr),+) => {$(
            failures.extend($scan.rows().filter_map(Result::err));
            assert_eq!(outcomes($scan.views()), outcomes($scan.rows()));
            failures.extend($scan.rev().entries().filter_map(Result::err));
            failures.extend($scan.keys().filter_map(Result::err));
            failures.extend($scan.count().err());
            match $scan.page(1) {
                Ok(page) => {
                    if let Some(next) = page.next {
                        failures.extend($scan.after(&next).rows().filter_map(Result::err));
                    }
                }
                Err(error) => failures.push(error),
            }
        )+};
    }
    run!(
        people.all(&txn),
        people.by_town(&txn),
        people.find_by_town(&txn, "Rome"),
        people.by_town_with_age(&txn),
        people.by_age(&txn),
        people.by_email(&txn),
        people.by_tags(&txn),
        notes.all(&txn),
        notes.by_author(&txn)
    );
    failures.extend(people.get_by_email(&txn, "1@x").err());
    failures.extend(people.get_view_by_email(&txn, "1@x").err());
    failures.extend(people.get_view(&txn, 1).err());
    drop(txn);
    let mut txn = store.write()?;
    failures.extend(people.update(&mut txn, 1, |person| person.town.push('!')).err());
    failures.extend(people.delete(&mut txn, 2).err());
    failures.extend(notes.delete(&mut txn, "in", 9).err());
    for failure in failures {
        assert!(
            matches!(
                failure,
                Error::Corrupt { .. } | Error::NewerRow { .. } | Error::UniqueViolation { .. }
            ),
            "{failure:?}"
        );
        assert!(failure.to_string().contains("people") || failure.to_string().contains("notes"));
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// With any contents of a table's databases, queries return a result or an error, and never panic.
    #[test]
    fn damaged_entries_are_errors(
        name in 1..NAMES.len(),
        entry in 0..3_usize,
        key in prop::option::of(prop::collection::vec(any::<u8>(), 1..12)),
        value in prop::collection::vec(any::<u8>(), 0..12),
    ) {
        let check = || -> TestResult {
            let dir = tempfile::tempdir()?;
            write(dir.path())?;
            raw(dir.path(), |database_name, database, txn| {
                if database_name != NAMES[name] {
                    return Ok(());
                }
                let old = database.iter(txn)?.nth(entry).transpose()?.map(|(key, _)| key.to_vec());
                match (&key, old) {
                    (Some(key), _) => database.put(txn, key, &value),
                    (None, Some(old)) => database.put(txn, &old, &value),
                    (None, None) => Ok(()),
                }
            })?;
            run_all_queries(dir.path())?;
            Ok(())
        };
        check().map_err(|error| TestCaseError::fail(error.to_string()))?;
    }

    /// A damaged catalog is refused, and nothing is written.
    #[test]
    fn damaged_catalogs_are_refused(value in prop::collection::vec(any::<u8>(), 0..40)) {
        let check = || -> TestResult {
            let dir = tempfile::tempdir()?;
            write(dir.path())?;
            raw(dir.path(), |name, database, txn| match name {
                ".catalog" => database.put(txn, b"people", &value),
                _ => Ok(()),
            })?;
            let before = dump(dir.path())?;
            let result = open(dir.path()).map(drop);
            assert!(matches!(result, Err(Error::SchemaMismatch { table: "people", .. })), "{result:?}");
            assert_eq!(dump(dir.path())?, before);
            Ok(())
        };
        check().map_err(|error| TestCaseError::fail(error.to_string()))?;
    }
}
