//! The versions in a file, compared with the versions of the declaration.

use std::path::Path;

use index_table::Error;

use crate::{TestResult, store};

/// Declares a module with the table `notes`, its previous versions and their conversions.
macro_rules! notes {
    ($(
        $name:ident {
            $(older $version:literal $(($before:ident))? $old:ident { $($old_field:ident: $old_type:ty),* })*
            now $number:literal $(($last:ident))? { $($field:ident: $type:ty),* }
        }
    )*) => {$(
        mod $name {
            #![allow(dead_code, reason = "some are only declared")]

            $(
                #[derive(Default, serde::Deserialize, index_table::RowVersion)]
                #[table(version = $version $(, previous = $before, changed = [text])?)]
                pub(crate) struct $old {
                    id: u32,
                    $($old_field: $old_type,)*
                }

                $(impl From<$before> for $old {
                    fn from(old: $before) -> Self {
                        Self { id: old.id, ..Self::default() }
                    }
                })?
            )*

            #[derive(Debug, Default, serde::Serialize, serde::Deserialize, index_table::IndexTable)]
            #[table(name = "notes", version = $number $(, previous = $last, changed = [text])?)]
            #[index(text)]
            pub(crate) struct Note {
                #[primary_key]
                pub(crate) id: u32,
                $(pub(crate) $field: $type,)*
            }

            $(impl From<$last> for Note {
                fn from(old: $last) -> Self {
                    Self { id: old.id, ..Self::default() }
                }
            })?
        }
    )*};
}

notes! {
    first { now 1 { text: String } }
    second { older 1 One { text: String } now 2 (One) { text: String, stars: u8 } }
    third {
        older 1 One { text: String }
        older 2 (One) Two { text: String, stars: u8 }
        now 3 (Two) { stars: u8, text: String }
    }
    // Without the first version.
    from_second { older 2 Two { text: String, stars: u8 } now 3 (Two) { stars: u8, text: String } }
    // Without any previous version, and without the second version.
    alone { now 3 { stars: u8, text: String } }
    skipping { older 1 One { text: String } now 3 (One) { stars: u8, text: String } }
    // Older versions that differ from the versions in the file.
    other_first { older 1 One { body: String } now 2 (One) { text: String, stars: u8 } }
    other_type {
        older 1 One { text: String }
        older 2 (One) Two { text: String, stars: u16 }
        now 3 (Two) { stars: u8, text: String }
    }
    other_now { older 1 One { text: String } now 2 (One) { text: String, stars: u16 } }
    far { older 1 One { text: String } now 300 (One) { text: String, stars: u8 } }
}

/// Opens the table as this module declares it, and returns the message of the error.
macro_rules! open {
    ($path:expr, $name:ident) => {{
        let store = store($path)?;
        match $name::NoteRepository::open(&store) {
            Ok(notes) => {
                let report = notes.verify(&store.read()?).run()?;
                assert!(report.is_clean(), "{report}");
                None
            }
            Err(error @ Error::SchemaMismatch { table: "notes", .. }) => Some(error.to_string()),
            Err(error) => return Err(error.into()),
        }
    }};
}

/// Inserts a row as this module declares it.
macro_rules! insert {
    ($path:expr, $name:ident, $($field:ident: $value:expr),*) => {{
        let store = store($path)?;
        let notes = $name::NoteRepository::open(&store)?;
        store.transaction(|txn| notes.insert(txn, &$name::Note { $($field: $value),* }))?
    }};
}

/// Writes a table with a row of the first version and a row of the second.
fn two_versions(path: &Path) -> TestResult {
    insert!(path, first, id: 1, text: "a".into());
    insert!(path, second, id: 2, text: "b".into(), stars: 5);
    Ok(())
}

#[test]
fn a_chain_leads_from_the_file_to_the_code() -> TestResult {
    let dir = tempfile::tempdir()?;
    two_versions(dir.path())?;
    assert_eq!(open!(dir.path(), second), None);
    assert_eq!(open!(dir.path(), third), None);
    let result = open!(dir.path(), second).ok_or("it opens")?;
    assert!(
        result.contains("version 3 in the file and 2 in the code; open it with the release"),
        "{result}"
    );
    assert_eq!(open!(dir.path(), third), None);

    // The chain has a version that the file never had.
    let dir = tempfile::tempdir()?;
    insert!(dir.path(), first, id: 1, text: "a".into());
    assert_eq!(open!(dir.path(), third), None);
    let dir = tempfile::tempdir()?;
    insert!(dir.path(), first, id: 1, text: "a".into());
    assert_eq!(open!(dir.path(), skipping), None);
    // A version with more than one byte.
    let dir = tempfile::tempdir()?;
    insert!(dir.path(), first, id: 1, text: "a".into());
    assert_eq!(open!(dir.path(), far), None);
    insert!(dir.path(), far, id: 2, text: "b".into(), stars: 1);
    assert_eq!(open!(dir.path(), far), None);
    Ok(())
}

#[test]
fn a_broken_chain_is_refused_before_an_upgrade() -> TestResult {
    let dir = tempfile::tempdir()?;
    two_versions(dir.path())?;
    for (version, result) in [
        (1, open!(dir.path(), from_second)),
        (2, open!(dir.path(), alone)),
        (2, open!(dir.path(), skipping)),
    ] {
        let result = result.ok_or("it opens")?;
        let reason = format!(
            "it may have rows of version {version}, and the chain of `previous` from version 3 does not include it"
        );
        assert!(result.contains(&reason) && result.contains("run `upgrade` with"), "{result}");
    }
    {
        let store = store(dir.path())?;
        let notes = second::NoteRepository::open(&store)?;
        notes.upgrade(&store).run()?;
    }
    let result = open!(dir.path(), alone).ok_or("it opens")?;
    assert!(result.contains("rows of version 2"), "{result}");
    assert_eq!(open!(dir.path(), from_second), None);
    let result = open!(dir.path(), alone).ok_or("it opens")?;
    assert!(result.contains("rows of version 2"), "{result}");
    {
        let store = store(dir.path())?;
        let notes = from_second::NoteRepository::open(&store)?;
        assert_eq!(notes.upgrade(&store).run()?.upgraded, 2);
    }
    assert_eq!(open!(dir.path(), alone), None);
    assert_eq!(open!(dir.path(), third), None);
    Ok(())
}

#[test]
fn an_older_struct_is_compared_with_the_file() -> TestResult {
    let dir = tempfile::tempdir()?;
    insert!(dir.path(), first, id: 1, text: "a".into());
    let result = open!(dir.path(), other_first).ok_or("it opens")?;
    let unreadable = "the row with primary key 1 can't be read: missing field `body`";
    assert!(result.contains(unreadable), "{result}");
    assert_eq!(open!(dir.path(), second), None);
    let result = open!(dir.path(), other_first).ok_or("it opens")?;
    assert!(result.contains(unreadable), "{result}");
    // A wider integer reads the rows of both versions.
    assert_eq!(open!(dir.path(), other_now), None);
    assert_eq!(open!(dir.path(), other_type), None);
    assert_eq!(open!(dir.path(), third), None);
    Ok(())
}

/// A refusal commits nothing.
#[test]
fn a_refused_chain_changes_nothing() -> TestResult {
    let dir = tempfile::tempdir()?;
    two_versions(dir.path())?;
    let last = || store(dir.path()).and_then(|store| Ok(store.read()?.commit_number()));
    let before = last()?;
    open!(dir.path(), alone).ok_or("it opens")?;
    open!(dir.path(), other_first).ok_or("it opens")?;
    open!(dir.path(), first).ok_or("it opens")?;
    assert_eq!(last()?, before);
    Ok(())
}

/// In one process, all repositories of a table read the same versions.
#[test]
fn a_table_in_use_is_not_shared_with_another_chain() -> TestResult {
    let dir = tempfile::tempdir()?;
    insert!(dir.path(), first, id: 1, text: "a".into());
    let store = store(dir.path())?;
    let notes = third::NoteRepository::open(&store)?;
    let error = alone::NoteRepository::open(&store).map(drop).err().ok_or("it opens")?;
    assert!(error.to_string().contains("uses it with another declaration"), "{error}");
    drop(notes);
    Ok(())
}

/// Returns the record of lists with these bytes, as `docs/FORMAT.md` describes.
fn record(lists: &[u8]) -> Vec<u8> {
    [&[1], &blake3::hash(lists).as_bytes()[..8], lists].concat()
}

/// Returns the record of releases that read structs with these fields, each with the number of lists at its first opening.
fn releases(all: &[(&str, u8)]) -> Vec<u8> {
    let mut record = vec![1, u8::try_from(all.len()).expect("few")];
    for (names, lists) in all {
        // The declared fields, and the fields that serde reads.
        let hash = blake3::hash(format!("{names}\n{names}\n").as_bytes());
        let mut left = hash.as_bytes().first_chunk().map_or(0, |start| u64::from_le_bytes(*start));
        while left >= 0x80 {
            record.push((left & 0x7f) as u8 | 0x80);
            left >>= 7;
        }
        record.extend([left as u8, *lists]);
    }
    record
}

/// While there may be rows of older versions, the catalog lists them, as `docs/FORMAT.md` describes.
#[test]
fn the_catalog_lists_older_versions() -> TestResult {
    let dir = tempfile::tempdir()?;
    two_versions(dir.path())?;
    assert_eq!(open!(dir.path(), third), None);
    let parts = |expected: &[(&str, &[u8])]| -> TestResult {
        crate::golden::raw(dir.path(), ".catalog", |catalog, txn| {
            let parts = catalog.prefix_iter(txn, b"notes.")?.collect::<heed::Result<Vec<_>>>()?;
            let expected = expected.iter().map(|(name, fields)| (name.as_bytes(), *fields));
            assert_eq!(parts, expected.collect::<Vec<_>>());
            Ok(())
        })
    };
    // The format and the version, the lists of the rows, no enum, the union of both lists, and no loose struct.
    let lists = b"\x01\x04\x02\
        \x04Note\x02\x02id\0\x03\x04text\0\x0b\
        \x04Note\x03\x02id\0\x03\x04text\0\x0b\x05stars\0\x01\
        \0\
        \x02\x02\x14\0\x14\x01\x02\0\x01\0\
        \0\0\0";
    let all = releases(&[("id,text", 0), ("id,text,stars", 1), ("id,stars,text", 2)]);
    parts(&[
        ("notes.1", b"\x02\x02id\x03u32\x04text\x06String"),
        ("notes.2", b"\x03\x02id\x03u32\x04text\x06String\x05stars\x02u8"),
        ("notes.@lists", &record(lists)),
        ("notes.@releases", &all),
    ])?;
    {
        let store = store(dir.path())?;
        let catalog = store.catalog()?;
        assert_eq!(
            (catalog.tables[0].version, &*catalog.tables[0].older_versions),
            (3, &[1, 2][..])
        );
        let text = catalog.to_string();
        assert!(
            text.starts_with("table `notes`, version 3\n  rows of older versions: 1, 2\n"),
            "{text}"
        );
        let notes = third::NoteRepository::open(&store)?;
        notes.upgrade(&store).run()?;
        assert!(store.catalog()?.tables[0].older_versions.is_empty());
    }
    // The third version has the fields of the second in another order.
    let lists = b"\x01\x06\x03\
        \x04Note\x02\x02id\0\x03\x04text\0\x0b\
        \x04Note\x03\x02id\0\x03\x04text\0\x0b\x05stars\0\x01\
        \x04Note\x03\x02id\0\x03\x05stars\0\x01\x04text\0\x0b\
        \0\
        \x02\x03\x14\0\x14\x01\x14\x02\x03\0\x01\x02\0\
        \0\0\0";
    parts(&[("notes.@lists", &record(lists)), ("notes.@releases", &all)])?;

    // The record of the older version is unreadable.
    crate::golden::raw(dir.path(), ".catalog", |catalog, txn| {
        catalog.put(txn, b"notes.2", b"\x07")
    })?;
    let result = open!(dir.path(), third).ok_or("it opens")?;
    assert!(result.contains("the catalog's record of its version 2 can't be read"), "{result}");
    Ok(())
}
