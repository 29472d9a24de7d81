//! Tables that gain and lose their stream, versions of rows, and copies of stores.

use index_table::{Error, IndexTable, Result, RowVersion, Store};
use serde::{Deserialize, Serialize};

macro_rules! table {
    ($module:ident, $row:ident, $($table:tt)*) => {
        mod $module {
            use super::*;

            #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
            #[table(name = "notes", $($table)*)]
            pub(super) struct $row {
                #[primary_key]
                pub(super) id: u32,
            }
        }
    };
}

table!(streamed, Streamed, changes);
table!(plain, Plain, version = 1);

/// Writes a row through a repository with a stream, and returns the number of changes of a new consumer.
fn with_stream(path: &std::path::Path, id: u32, consumer: &str) -> Result<u64> {
    let store = Store::open(path)?;
    let notes = streamed::StreamedRepository::open(&store)?;
    store.transaction(|txn| notes.put(txn, &streamed::Streamed { id }))?;
    assert!(store.verify()?.is_clean());
    Ok(notes.changes(&store, consumer)?.lag()?.changes)
}

fn without_stream(path: &std::path::Path, id: u32) -> Result<()> {
    let store = Store::open(path)?;
    let notes = plain::PlainRepository::open(&store)?;
    store.transaction(|txn| notes.put(txn, &plain::Plain { id }))
}

#[test]
fn a_table_with_rows_gains_an_empty_stream() -> Result<()> {
    let directory = tempfile::tempdir().expect("a directory");
    without_stream(directory.path(), 1)?;
    assert_eq!(with_stream(directory.path(), 2, "mailer")?, 1);
    Ok(())
}

#[test]
fn a_consumer_detects_that_the_table_was_written_without_its_stream() -> Result<()> {
    let directory = tempfile::tempdir().expect("a directory");
    with_stream(directory.path(), 1, "behind")?;
    with_stream(directory.path(), 2, "up to date")?;
    {
        let store = Store::open(directory.path())?;
        let notes = streamed::StreamedRepository::open(&store)?;
        let mut changes = notes.changes(&store, "up to date")?;
        changes.next_batch(9)?.commit(&store)?;
        assert!(changes.next_batch(9)?.is_empty());
    }
    without_stream(directory.path(), 3)?;
    let store = Store::open(directory.path())?;
    let notes = streamed::StreamedRepository::open(&store)?;
    for name in ["behind", "up to date"] {
        let mut changes = notes.changes(&store, name)?;
        let failed = changes.next_batch(9).expect_err("missed");
        assert!(matches!(failed, Error::ChangesMissed { .. }), "{failed:?}");
        assert!(changes.skip_removed()? > 0);
        assert!(changes.next_batch(9)?.is_empty());
    }
    store.transaction(|txn| notes.put(txn, &streamed::Streamed { id: 4 }))?;
    let mut changes = notes.changes(&store, "behind")?;
    // No number is assigned twice.
    assert!(changes.next_batch(9)?.iter().all(|change| change.number > 2));
    assert_eq!(changes.next_batch(9)?.len(), 1);
    Ok(())
}

#[test]
fn a_retired_stream_can_be_dropped() -> Result<()> {
    let directory = tempfile::tempdir().expect("a directory");
    with_stream(directory.path(), 1, "mailer")?;
    let store = Store::open(directory.path())?;
    {
        let _notes = streamed::StreamedRepository::open(&store)?;
        assert!(store.drop_retired()?.is_empty());
    }
    drop(store);
    without_stream(directory.path(), 2)?;
    let store = Store::open(directory.path())?;
    assert_eq!(store.drop_retired()?, ["notes.change-stream"]);
    drop(store);
    assert_eq!(with_stream(directory.path(), 3, "mailer")?, 1);
    Ok(())
}

#[test]
fn a_stream_is_empty_after_the_table_was_written_without_it() -> Result<()> {
    let directory = tempfile::tempdir().expect("a directory");
    let store = Store::open(directory.path())?;
    let streamed = streamed::StreamedRepository::open(&store)?;
    store.transaction(|txn| streamed.put(txn, &streamed::Streamed { id: 1 }))?;
    drop(streamed);
    let plain = plain::PlainRepository::open(&store)?;
    store.transaction(|txn| plain.put(txn, &plain::Plain { id: 2 }))?;
    drop(plain);
    let streamed = streamed::StreamedRepository::open(&store)?;
    assert_eq!(streamed.changes(&store, "new")?.next_batch(9)?.len(), 0);
    Ok(())
}

#[test]
fn a_read_only_store_lists_consumers_and_creates_none() -> Result<()> {
    let directory = tempfile::tempdir().expect("a directory");
    with_stream(directory.path(), 1, "mailer")?;
    let store = Store::options().read_only(true).open(directory.path())?;
    let notes = streamed::StreamedRepository::open(&store)?;
    assert_eq!(notes.change_consumers(&store.read()?)?.len(), 1);
    let batch = notes.changes(&store, "mailer")?.next_batch(9)?;
    assert_eq!(batch.len(), 1);
    assert!(matches!(batch.commit(&store), Err(Error::ReadOnly { .. })));
    assert!(matches!(notes.changes(&store, "other"), Err(Error::ReadOnly { .. })));
    drop((batch, notes, store));

    let plain = tempfile::tempdir().expect("a directory");
    without_stream(plain.path(), 1)?;
    let store = Store::options().read_only(true).open(plain.path())?;
    let refused = streamed::StreamedRepository::open(&store).expect_err("no stream");
    assert!(refused.to_string().contains("the file has no change stream"), "{refused}");
    Ok(())
}

#[test]
fn a_backup_has_the_positions_of_its_moment() -> Result<()> {
    let directory = tempfile::tempdir().expect("a directory");
    let (path, backup) = (directory.path().join("shop"), directory.path().join("backup"));
    let restored = directory.path().join("restored");
    with_stream(&path, 1, "mailer")?;
    let store = Store::open(&path)?;
    let notes = streamed::StreamedRepository::open(&store)?;
    store.backup_to(&backup)?;
    notes.changes(&store, "mailer")?.next_batch(9)?.commit(&store)?;
    let restored = Store::restore(&backup, &restored).and_then(|()| Store::open(&restored))?;
    let notes = streamed::StreamedRepository::open(&restored)?;
    assert_eq!(notes.changes(&restored, "mailer")?.next_batch(9)?.len(), 1);
    Ok(())
}

#[derive(Deserialize, Serialize, IndexTable)]
#[table(name = "files", changes)]
struct File1 {
    #[primary_key]
    id: u32,
    size: u32,
}

mod next {
    use super::{Deserialize, IndexTable, RowVersion, Serialize};

    #[derive(Deserialize, RowVersion)]
    pub(super) struct Older {
        id: u32,
        size: u32,
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize, IndexTable)]
    #[table(name = "files", version = 2, previous = Older, changed = [size], changes)]
    pub(super) struct File {
        #[primary_key]
        pub(super) id: u32,
        pub(super) size: u64,
    }

    impl From<Older> for File {
        fn from(old: Older) -> Self {
            Self { id: old.id, size: u64::from(old.size) * 1024 }
        }
    }
}

#[test]
fn rows_of_older_versions_in_the_stream_are_converted() -> Result<()> {
    let directory = tempfile::tempdir().expect("a directory");
    {
        let store = Store::open(directory.path())?;
        let files = File1Repository::open(&store)?;
        files.changes(&store, "mailer")?;
        store.transaction(|txn| files.insert(txn, &File1 { id: 1, size: 2 }))?;
    }
    let store = Store::open(directory.path())?;
    let files = next::FileRepository::open(&store)?;
    store.upgrade()?;
    store.transaction(|txn| files.insert(txn, &next::File { id: 2, size: 3 }))?;
    let rows = files.changes(&store, "mailer")?.next_batch(9)?;
    let rows: Vec<_> = rows.into_iter().map(|change| change.row).collect();
    // An upgrade is no change.
    assert_eq!(rows, [next::File { id: 1, size: 2048 }, next::File { id: 2, size: 3 }]);
    Ok(())
}
