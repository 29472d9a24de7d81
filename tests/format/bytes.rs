//! The bytes of a file with rows.

use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
};

use index_table::{Durability, Error, IndexTable, Store};
use serde::{Deserialize, Serialize};

use super::{
    NAMES, NoteRepository, PersonRepository, TestResult, dump, hex, open, raw, store, write,
};

/// Tables of every strategy and layout. `docs/FORMAT.md` explains the bytes.
#[test]
fn the_bytes_of_every_layout_are_fixed() -> TestResult {
    let dir = tempfile::tempdir()?;
    write(dir.path())?;
    let dump = dump(dir.path())?;
    assert_eq!(dump.keys().map(String::as_str).collect::<Vec<_>>().len(), NAMES.len());
    let mut text = String::new();
    for name in NAMES {
        let _ = writeln!(text, "{name}");
        for (key, value) in &dump[name] {
            let _ = writeln!(text, "  {} -> {}", hex(key), hex(value));
        }
    }
    let expected = include_str!("../golden/format-2.txt");
    assert_eq!(
        text, expected,
        "the format has changed: it needs a new number, and the old format a reader"
    );
    Ok(())
}

#[derive(Debug, Serialize, Deserialize, IndexTable)]
#[table(name = "people")]
#[index(town)]
struct Citizen {
    #[primary_key]
    id: u16,
    town: String,
}

/// The blocks of `docs/FORMAT.md`: filled in order, split, and emptied from the start.
#[test]
fn blocks_are_filled_and_split() -> TestResult {
    let ids = |range: std::ops::RangeInclusive<u16>| -> Vec<u8> {
        std::iter::once(0).chain(range.flat_map(u16::to_be_bytes)).collect()
    };
    let short = |range: std::ops::RangeInclusive<u8>| -> Vec<u8> {
        std::iter::once(1).chain(range).collect()
    };
    let blocks = |path: &Path| -> Result<_, Box<dyn std::error::Error>> {
        Ok(dump(path)?.remove("people.town").unwrap_or_default())
    };
    let change = |path: &Path, put: &[u16], delete: &[u16]| {
        let store = store(path)?;
        let citizens = CitizenRepository::open(&store)?;
        store.transaction(|txn| {
            put.iter().try_for_each(|&id| citizens.put(txn, &Citizen { id, town: "Oz".into() }))?;
            delete.iter().try_for_each(|&id| citizens.delete(txn, id).map(drop))
        })
    };
    let (first, second) =
        (b"Oz\0".to_vec(), |separator: u16| [b"Oz\0", separator.to_be_bytes().as_slice()].concat());

    let dir = tempfile::tempdir()?;
    change(dir.path(), &(0..=256).collect::<Vec<_>>(), &[])?;
    let expected = [(first.clone(), short(0..=255)), (second(256), ids(256..=256))];
    assert_eq!(blocks(dir.path())?, expected);

    let dir = tempfile::tempdir()?;
    let mut order: Vec<u16> = (1..=256).collect();
    order.push(0);
    change(dir.path(), &order, &[])?;
    assert_eq!(blocks(dir.path())?, [(first.clone(), ids(0..=127)), (second(128), ids(128..=256))]);
    change(dir.path(), &[], &(0..=128).collect::<Vec<_>>())?;
    assert_eq!(blocks(dir.path())?, [(first.clone(), ids(129..=256))]);
    change(dir.path(), &[3], &[])?;
    assert_eq!(
        blocks(dir.path())?,
        [(first.clone(), [&ids(3..=3)[..], &ids(129..=256)[1..]].concat())]
    );

    // Primary keys that can lack a byte, then a primary key that can't, and a longer primary key in a block that is
    // full.
    let dir = tempfile::tempdir()?;
    change(dir.path(), &[7, 9, 8], &[])?;
    assert_eq!(blocks(dir.path())?, [(first.clone(), short(7..=9))]);
    change(dir.path(), &[300], &[])?;
    let expected = [&ids(7..=9)[..], &ids(300..=300)[1..]].concat();
    assert_eq!(blocks(dir.path())?, [(first.clone(), expected)]);
    change(dir.path(), &[], &[300])?;
    assert_eq!(blocks(dir.path())?, [(first, ids(7..=9))]);
    Ok(())
}

mod before {
    use super::{Deserialize, IndexTable, Serialize};

    #[derive(Debug, Serialize, Deserialize, IndexTable)]
    #[table(name = "people")]
    pub(super) struct Customer {
        #[primary_key]
        pub(super) id: u16,
        pub(super) email: String,
    }
}

#[derive(Debug, Serialize, Deserialize, IndexTable)]
#[table(name = "people")]
#[index(email, unique)]
struct Customer {
    #[primary_key]
    id: u16,
    email: String,
}

/// The further entries of `docs/FORMAT.md`, and the state of their index.
#[test]
fn further_entries_of_a_key_are_after_its_first_entry() -> TestResult {
    let dir = tempfile::tempdir()?;
    let change = |put: &[u16], delete: &[u16]| -> TestResult {
        let store = store(dir.path())?;
        let customers = CustomerRepository::open_online(&store)?;
        store.transaction(|txn| {
            let customer = |id| Customer { id, email: "l@x".into() };
            put.iter().try_for_each(|&id| customers.put(txn, &customer(id)))?;
            delete.iter().try_for_each(|&id| customers.delete(txn, id).map(drop))
        })?;
        customers.build(&store).run()?;
        Ok(())
    };
    let assert = |entries: &[(&[u8], &[u8])], state: Option<&[u8]>| -> TestResult {
        let mut dump = dump(dir.path())?;
        let emails = dump.remove("people.email").unwrap_or_default();
        let emails: Vec<_> = emails.iter().map(|(key, value)| (&key[..], &value[..])).collect();
        assert_eq!(emails, entries);
        let catalog = dump.remove(".catalog").unwrap_or_default();
        let found = catalog.iter().find(|(name, _)| name == b"people.email");
        assert_eq!(found.map(|(_, state)| state.as_slice()), state);
        Ok(())
    };
    {
        let store = store(dir.path())?;
        let customers = before::CustomerRepository::open(&store)?;
        let customer = |id| before::Customer { id, email: "l@x".into() };
        store.transaction(|txn| {
            customers.insert(txn, &customer(9))?;
            customers.insert(txn, &customer(7))
        })?;
    }
    change(&[], &[])?;
    let (seven, eight, nine) =
        (&b"\x07"[..], (&b"l@x\0\0\x08"[..], &b"\x08"[..]), (&b"l@x\0\0\x09"[..], &b"\x09"[..]));
    assert(&[(b"l@x\0", seven), nine], Some(b"\x04\x01\x01\x05\"l@x\"\x017\x019"))?;
    change(&[8], &[])?;
    let state = b"\x04\x02\x02\x05\"l@x\"\x017\x018\x05\"l@x\"\x017\x019";
    assert(&[(b"l@x\0", seven), eight, nine], Some(state))?;
    change(&[], &[7])?;
    assert(&[(b"l@x\0", eight.1), nine], Some(b"\x04\x01\x01\x05\"l@x\"\x018\x019"))?;
    change(&[], &[9])?;
    assert(&[(b"l@x\0", eight.1)], None)
}

/// The next block replaces an empty first block, in every method that can empty it.
#[test]
fn an_empty_first_block_is_replaced() -> TestResult {
    for other_town_before in [false, true] {
        let dir = tempfile::tempdir()?;
        {
            let store = store(dir.path())?;
            let citizens = CitizenRepository::open(&store)?;
            store.transaction(|txn| {
                (0..=256)
                    .try_for_each(|id| citizens.insert(txn, &Citizen { id, town: "Oz".into() }))?;
                (0..=254).try_for_each(|id| citizens.delete(txn, id).map(drop))?;
                if other_town_before {
                    // A new key, because the next change needs a different key.
                    citizens.insert(txn, &Citizen { id: 999, town: "Rome".into() })?;
                }
                citizens.delete(txn, 255).map(drop)
            })?;
            let txn = store.read()?;
            let ids = citizens.find_by_town(&txn, "Oz").keys().collect::<Result<Vec<_>, _>>()?;
            assert_eq!(ids, [256]);
        }
        let blocks = dump(dir.path())?.remove("people.town").unwrap_or_default();
        assert_eq!(blocks.first(), Some(&(b"Oz\0".to_vec(), vec![0, 1, 0])));
        assert_eq!(blocks.len(), 1 + usize::from(other_town_before));
    }
    Ok(())
}

fn golden(file: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(file)
}

/// Checks that a golden file is refused on a machine with other addresses or another byte order, and returns whether this is one.
fn is_of_another_machine(path: &Path) -> bool {
    if size_of::<usize>() == 8 && cfg!(target_endian = "little") {
        return false;
    }
    let error = store(path).map(drop).expect_err("another machine's file").to_string();
    assert!(error.contains("a machine with 64-bit addresses and little-endian numbers"), "{error}");
    true
}

/// Writes the file again, after a change of the format: `cargo test --test format -- --ignored`.
#[test]
#[ignore = "writes the file that the other test reads"]
fn the_file_is_written_again() -> TestResult {
    let dir = tempfile::tempdir()?;
    write(&dir.path().join("store"))?;
    store(&dir.path().join("store"))?.compact_to(dir.path().join("copy"))?;
    std::fs::copy(dir.path().join("copy").join("data.mdb"), golden("format-2.mdb"))?;
    Ok(())
}

/// A file written by an earlier build.
#[test]
fn a_file_of_an_earlier_build_opens() -> TestResult {
    let dir = tempfile::tempdir()?;
    std::fs::copy(golden("format-2.mdb"), dir.path().join("data.mdb"))?;
    if is_of_another_machine(dir.path()) {
        return Ok(());
    }
    check(dir.path())?;
    // No table was rebuilt: the file still has the same bytes.
    let written = tempfile::tempdir()?;
    write(written.path())?;
    assert_eq!(dump(dir.path())?, dump(written.path())?);
    Ok(())
}

/// The files have the rows of `write`. In the second one, primary keys are whole.
#[test]
fn a_file_of_format_1_is_refused_and_not_changed() -> TestResult {
    for file in ["format-1.mdb", "whole-keys.mdb"] {
        let dir = tempfile::tempdir()?;
        let (path, bytes) = (dir.path().join("data.mdb"), std::fs::read(golden(file))?);
        std::fs::write(&path, &bytes)?;
        if !is_of_another_machine(dir.path()) {
            let store =
                Store::options().durability(Durability::Full).reserve(0).open(dir.path())?;
            let errors = [
                ("people", PersonRepository::open(&store).map(drop)),
                ("notes", NoteRepository::open(&store).map(drop)),
            ];
            for (name, outcome) in errors {
                let Err(Error::SchemaMismatch { table, difference, way_out }) = outcome else {
                    return Err(format!("{file}: {outcome:?}").into());
                };
                assert_eq!(table, name);
                assert_eq!(difference, "the file has format 1, this release reads format 2");
                assert!(way_out.contains("by the command `dump`"), "{way_out}");
                assert!(way_out.contains("by `load --no-changes`"), "{way_out}");
            }
        }
        assert!(std::fs::read(&path)? == bytes, "{file} was changed");
    }
    Ok(())
}

/// Replaces one text with its length in a record.
fn replaced(record: &[u8], old: &str, new: &str) -> Vec<u8> {
    let text = |text: &str| [&[text.len() as u8], text.as_bytes()].concat();
    let (old, new) = (text(old), text(new));
    let mut record = record.to_vec();
    while let Some(at) = record.windows(old.len()).position(|window| window == old) {
        record.splice(at..at + old.len(), new.clone());
    }
    record
}

/// The indexes of a file with whole primary keys are rebuilt, with short primary keys.
#[test]
fn indexes_in_a_layout_of_an_earlier_build_are_built_again() -> TestResult {
    let dir = tempfile::tempdir()?;
    write(dir.path())?;
    let mut written = dump(dir.path())?;
    raw(dir.path(), |name, database, txn| match name {
        ".catalog" => {
            let record = database.get(txn, b"people")?.unwrap_or_default();
            let record = replaced(record, "short-blocks", "blocks");
            database.put(txn, b"people", &replaced(&record, "short-unique", "unique"))
        }
        "people.town" => {
            database.put(txn, b"\x01\x01\x01\x02\0", &[0, 2])?;
            database.put(txn, b"Rome\0", &[0, 1, 2, 3])
        }
        "people.email" => {
            database.put(txn, b"1@x\0", &[0, 1])?;
            database.put(txn, b"2@x\0", &[0, 2])
        }
        _ => Ok(()),
    })?;
    check(dir.path())?;
    let mut built = dump(dir.path())?;
    // The record of the table counts its changes.
    let catalogs = [&mut built, &mut written].map(|dump| dump.remove(".catalog"));
    assert_ne!(catalogs[0], catalogs[1]);
    assert_eq!(built, written);
    Ok(())
}

/// Opens a file with the rows of `write`, and runs queries.
fn check(path: &Path) -> TestResult {
    let (store, people, notes) = open(path)?;
    let txn = store.read()?;
    assert_eq!(
        people.find_by_town(&txn, "Rome").keys().collect::<Result<Vec<_>, _>>()?,
        [1, 0x0203]
    );
    assert_eq!(people.get_by_tags(&txn, "b")?.map(|person| person.id), Some(1));
    let ages = people.by_age(&txn).entries().map(|entry| entry.map(|entry| entry.age));
    assert_eq!(ages.collect::<Result<Vec<_>, _>>()?, [None, Some(-1), Some(5)]);
    assert_eq!(notes.find_by_author(&txn, 'é').count()?, 1);
    assert_eq!(people.get_by_email(&txn, "515@x")?.map(|person| person.id), Some(0x0203));
    let reports = [people.verify(&txn).run()?, notes.verify(&txn).run()?];
    assert!(reports.iter().all(|report| report.is_clean() && report.rows > 0), "{reports:?}");
    Ok(())
}
