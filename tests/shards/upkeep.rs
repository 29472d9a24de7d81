//! Work on whole tables: upgrades and verification in the background.

use index_table::{Error, IndexTable, Options, Result, ShardMap, Store};
use serde::{Deserialize, Serialize};

mod before {
    use super::*;

    #[derive(Serialize, Deserialize, IndexTable)]
    #[table(name = "notes", version = 1, shard_by = tenant)]
    pub(super) struct Note {
        #[primary_key]
        pub(super) tenant: u32,
        #[primary_key]
        pub(super) id: u64,
        pub(super) text: String,
    }
}

#[derive(Debug, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "notes", version = 2, previous = before::Note, shard_by = tenant)]
#[index(tenant, text)]
struct Note {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    id: u64,
    text: String,
    len: usize,
}

impl From<before::Note> for Note {
    fn from(before::Note { tenant, id, text }: before::Note) -> Self {
        let len = text.len();
        Self { tenant, id, text, len }
    }
}

fn options() -> Options {
    let map = ShardMap::ranges().to("a", ..100u32).to("b", 100u32..200).to("c", 200u32..);
    ["a", "b", "c"]
        .into_iter()
        .fold(Store::options(), |options, name| options.shard(name, name))
        .map("notes", map)
}

/// Inserts rows of the older version, with this number of rows for each of three tenants.
fn fill(store: &Store, rows: u64) -> Result<()> {
    let notes = before::NoteRepository::open(store)?;
    store.transaction(|txn| {
        [1, 100, 200].into_iter().try_for_each(|tenant| {
            let note = |id| before::Note { tenant, id, text: format!("note {id}") };
            (0..rows).try_for_each(|id| notes.insert(txn, &note(id)))
        })
    })
}

#[test]
fn rows_of_all_shards_are_upgraded() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    for store in [options().in_memory()?, options().open(dir.path())?] {
        fill(&store, 10)?;
        let notes = NoteRepository::open(&store)?;
        assert_eq!(store.catalog()?.tables[0].older_versions, [1]);
        let shard = store.shard("b")?;
        let done = notes.upgrade(&store).on(&shard).run()?;
        assert_eq!((done.rows, done.upgraded), (10, 10));
        let mut last = 0;
        let done = notes.upgrade(&store).progress(|at| last = at.done).run()?;
        assert_eq!((done.rows, done.upgraded, last), (30, 20, 30));
        assert!(store.catalog()?.tables[0].older_versions.is_empty());
        assert_eq!(store.upgrade()?.upgraded, 0);
        let expected = Note { tenant: 200, id: 3, text: "note 3".to_owned(), len: 6 };
        assert_eq!(notes.get(&store.read()?, 200, 3)?, Some(expected));
        assert!(store.verify()?.is_clean());
        let txn = store.write()?;
        assert!(notes.upgrade(&store).run().is_err(), "it would wait for its own thread");
        drop(txn);
    }
    Ok(())
}

#[test]
fn all_shards_are_verified_in_the_background() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    for store in [options().in_memory()?, options().open(dir.path())?] {
        fill(&store, 50)?;
        let notes = NoteRepository::open(&store)?;
        let report = store.scrub(1_000_000)?.wait()?;
        assert!(report.is_clean(), "{report}");
        let [table] = &report.tables[..] else { panic!("{report}") };
        assert_eq!(
            (table.table, table.rows, table.entries, &table.next),
            ("notes", 150, 150, &None)
        );

        // A slow verification is stopped when its handle is dropped.
        let scrub = store.scrub(1)?;
        assert!(!scrub.is_done());
        drop(scrub);
        drop(notes);
        assert!(store.scrub(1)?.wait()?.tables.is_empty(), "no table is in use");
    }
    Ok(())
}

#[test]
fn rows_can_change_during_a_verification() -> Result<()> {
    let store = Store::in_memory();
    fill(&store, 50)?;
    let notes = NoteRepository::open(&store)?;
    let scrub = store.scrub(20_000)?;
    let mut changed = 0;
    while !scrub.is_done() {
        store.transaction(|txn| {
            notes.update(txn, 100, changed % 50, |note| note.text.push('x')).map(drop)
        })?;
        changed += 1;
    }
    let report = scrub.wait()?;
    assert!(report.is_clean(), "{report}");
    assert_eq!(report.tables[0].rows, 150);
    Ok(())
}

mod letters {
    use super::*;

    #[derive(Serialize, Deserialize, IndexTable)]
    #[table(name = "letters", version = 1, shard_by = tenant, shard_map = "notes")]
    #[index(text, strategy = "full", scope = "global")]
    pub(super) struct OldLetter {
        #[primary_key]
        pub(super) tenant: u32,
        #[primary_key]
        pub(super) id: u64,
        pub(super) text: String,
    }
}

#[derive(Debug, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "letters", version = 2, previous = letters::OldLetter, shard_by = tenant, shard_map = "notes")]
#[index(text, strategy = "full", scope = "global")]
struct Letter {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    id: u64,
    text: String,
    len: usize,
}

impl From<letters::OldLetter> for Letter {
    fn from(letters::OldLetter { tenant, id, text }: letters::OldLetter) -> Self {
        let len = text.len();
        Self { tenant, id, text, len }
    }
}

#[test]
fn rows_with_global_entries_are_upgraded_with_them() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    for store in [options().in_memory()?, options().open(dir.path())?] {
        let old = letters::OldLetterRepository::open(&store)?;
        store.transaction(|txn| {
            (0..100).try_for_each(|id| {
                let tenant = u32::try_from(id % 3).expect("a small number") * 100;
                let letter = letters::OldLetter { tenant, id, text: format!("letter {id}") };
                old.insert(txn, &letter)
            })
        })?;
        drop(old);
        let letters = LetterRepository::open(&store)?;
        assert_eq!(store.catalog()?.tables[0].older_versions, [1]);
        let refused = letters.upgrade(&store).on(&store.shard("a")?).run();
        assert!(matches!(refused, Err(Error::NotOffered { .. })), "{refused:?}");
        let mut last = 0;
        let done = letters.upgrade(&store).batch_bytes(200).progress(|at| last = at.done).run()?;
        assert_eq!((done.rows, done.upgraded, last), (100, 100, 100));
        assert!(store.catalog()?.tables[0].older_versions.is_empty());
        let txn = store.read()?;
        assert_eq!(letters.by_text(&txn).rows().count(), 100);
        for id in 0..100 {
            let text = format!("letter {id}");
            let tenant = u32::try_from(id % 3).expect("a small number") * 100;
            let expected = Letter { tenant, id, len: text.len(), text: text.clone() };
            let found: Vec<_> = letters.find_by_text(&txn, &text).rows().collect::<Result<_>>()?;
            assert_eq!(found, [expected]);
        }
        drop(txn);
        let report = store.verify()?;
        assert!(report.is_clean(), "{report}");
        assert_eq!(letters.upgrade(&store).run()?.upgraded, 0);
    }
    Ok(())
}
