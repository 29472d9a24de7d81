//! Consumers of shards that were away: detached, or restored from a backup.

use std::{cell::Cell, path::Path, time::Duration};

use index_table::{ChangeWorker, Error, Result, ShardMap, Store};

use crate::moved::{Note, NoteRepository, create, drain, put};

fn names(store: &Store, notes: &NoteRepository) -> Result<Vec<String>> {
    let consumers = notes.change_consumers(&store.read()?)?;
    Ok(consumers.into_iter().map(|consumer| consumer.name).collect())
}

/// Writes 200 changes of tenant 107, which the consumer `old` commits, and removes the changes that are no longer kept.
fn write_and_remove(store: &Store, notes: &NoteRepository) -> Result<()> {
    (1..=200).try_for_each(|text| put(store, notes, 107, text))?;
    assert_eq!(drain(store, notes, "old", 64)?.len(), 200);
    notes.remove_old_changes(store, u64::MAX)?;
    Ok(())
}

#[test]
fn a_consumer_gets_the_changes_of_a_shard_that_was_detached_when_it_was_created() -> Result<()> {
    let directory = tempfile::tempdir().expect("a directory");
    let store = create(directory.path())?;
    let notes = NoteRepository::open(&store)?;
    drop((notes.changes(&store, "old")?, notes.changes(&store, "former")?));
    put(&store, &notes, 107, 0)?;
    for consumer in ["old", "former"] {
        assert_eq!(drain(&store, &notes, consumer, 1)?, [(107, 0)]);
    }
    assert_eq!(notes.remove_old_changes(&store, u64::MAX)?, 1);
    store.detach_shard("b")?;
    let mut new = notes.changes(&store, "new")?;
    assert!(notes.remove_change_consumer(&store, "former")?);
    store.attach_shard("b", "b")?;

    assert_eq!(names(&store, &notes)?, ["new", "old"]);
    assert!(new.next_batch(1)?.is_empty(), "no change is missing");
    write_and_remove(&store, &notes)?;
    let batch = new.next_batch(1000)?;
    assert_eq!((batch.len(), batch[0].row.text), (200, 1));
    let refused = store.detach_shard("b").expect_err("changes are left");
    assert!(refused.to_string().contains("consumer `new`"), "{refused}");
    batch.commit(&store)?;
    store.detach_shard("b")
}

/// Receives up to `limit` changes, and returns their texts. Their numbers must ascend after `last`.
fn receive(
    (store, notes): (&Store, &NoteRepository),
    tenant: u32,
    last: &mut u64,
    limit: usize,
) -> Result<Vec<u64>> {
    let batch = notes.changes(store, "mailer")?.next_batch(limit)?;
    let own = batch.iter().filter(|change| change.row.tenant == tenant);
    let texts = own.map(|change| {
        assert!(change.number > *last, "number {} after {last}", change.number);
        *last = change.number;
        change.row.text
    });
    let texts = texts.collect();
    batch.commit(store)?;
    Ok(texts)
}

#[test]
fn changes_of_a_detached_shard_are_received_once_and_in_their_order() -> Result<()> {
    for is_emptied in [false, true] {
        let directory = tempfile::tempdir().expect("a directory");
        let store = create(directory.path())?;
        let notes = NoteRepository::open(&store)?;
        let mut last = 0;
        drop(notes.changes(&store, "mailer")?);
        for text in 0..30 {
            put(&store, &notes, 7, text)?;
        }
        (0..10).try_for_each(|text| put(&store, &notes, 107, text))?;
        assert_eq!(receive((&store, &notes), 107, &mut last, 100)?.len(), 10);
        if is_emptied {
            notes.remove_old_changes(&store, u64::MAX)?;
        }
        store.detach_shard("b")?;
        drop((notes, store));
        {
            let alone = Store::open(directory.path().join("b"))?;
            let notes = NoteRepository::open(&alone)?;
            (10..30).try_for_each(|text| put(&alone, &notes, 107, text))?;
            let texts = receive((&alone, &notes), 107, &mut last, 5)?;
            assert_eq!(texts, (10..15).collect::<Vec<_>>());
            // Numbers are positions, also for other consumers.
            let mut other = notes.changes(&alone, "other")?;
            other.skip_to(last)?;
            assert_eq!(other.next_batch(1)?[0].row.text, 15);
            let end = notes.last_change(&alone.read()?)?;
            other.skip_to(end)?;
            assert!(other.next_batch(1)?.is_empty());
            assert!(notes.remove_change_consumer(&alone, "other")?);
        }
        let store = Store::open(directory.path())?;
        let notes = NoteRepository::open(&store)?;
        (30..50).try_for_each(|text| put(&store, &notes, 7, text))?;
        store.attach_shard("b", "b")?;
        put(&store, &notes, 107, 30)?;
        store.move_range("notes", 100_u32.., "a").run()?;
        put(&store, &notes, 107, 31)?;
        let mut texts = Vec::new();
        while notes.changes(&store, "mailer")?.lag()?.changes > 0 {
            texts.extend(receive((&store, &notes), 107, &mut last, 3)?);
        }
        assert_eq!(texts, (15..32).collect::<Vec<_>>());
    }
    Ok(())
}

#[test]
fn a_consumer_gets_the_changes_of_a_shard_that_was_restored_since_it_was_created() -> Result<()> {
    let directory = tempfile::tempdir().expect("a directory");
    let (path, backup) = (directory.path().join("shop"), directory.path().join("backup"));
    let store = create(&path)?;
    let notes = NoteRepository::open(&store)?;
    drop((notes.changes(&store, "old")?, notes.changes(&store, "former")?));
    put(&store, &notes, 107, 0)?;
    store.backup_shard(&store.shard_ids()[1], &backup)?;
    drop(notes.changes(&store, "new")?);
    assert!(notes.remove_change_consumer(&store, "former")?);
    drop((notes, store));
    std::fs::remove_dir_all(path.join("b")).expect("removed");

    let store = Store::open(&path)?;
    let notes = NoteRepository::open(&store)?;
    let refused = notes.remove_change_consumer(&store, "old").expect_err("a shard is missing");
    assert!(matches!(refused, Error::ShardUnavailable { .. }), "{refused:?}");
    let (shard, _) = store.unavailable_shards().remove(0);
    store.restore_shard(&shard, &backup)?;
    assert_eq!(names(&store, &notes)?, ["new", "old"]);
    assert_eq!(drain(&store, &notes, "old", 1)?, [(107, 0)]);
    write_and_remove(&store, &notes)?;
    let mut new = notes.changes(&store, "new")?;
    let batch = new.next_batch(1000)?;
    assert_eq!((batch.len(), batch[0].row.text), (201, 0));
    Ok(())
}

#[test]
fn the_changes_of_moved_rows_are_received_from_a_restored_shard_first() -> Result<()> {
    let directory = tempfile::tempdir().expect("a directory");
    let (path, backup) = (directory.path().join("shop"), directory.path().join("backup"));
    let store = create(&path)?;
    let notes = NoteRepository::open(&store)?;
    drop(notes.changes(&store, "mailer")?);
    (0..10).try_for_each(|text| put(&store, &notes, 107, text))?;
    store.move_range("notes", 100_u32.., "a").run()?;
    store.backup_shard(&store.shard_ids()[1], &backup)?;
    (10..20).try_for_each(|text| put(&store, &notes, 107, text))?;
    drop((notes, store));
    std::fs::remove_dir_all(path.join("b")).expect("removed");

    let store = Store::open(&path)?;
    let notes = NoteRepository::open(&store)?;
    let refused = notes.changes(&store, "mailer").expect_err("a shard is missing");
    assert!(matches!(refused, Error::ShardUnavailable { .. }), "{refused:?}");
    let (shard, _) = store.unavailable_shards().remove(0);
    store.restore_shard(&shard, &backup)?;
    let received = drain(&store, &notes, "mailer", 3)?;
    assert_eq!(received, (0..20).map(|text| (107, text)).collect::<Vec<_>>());
    Ok(())
}

#[test]
fn the_list_of_consumers_is_corrected_when_the_table_is_opened() -> Result<()> {
    let directory = tempfile::tempdir().expect("a directory");
    let store = create(directory.path())?;
    let notes = NoteRepository::open(&store)?;
    drop((notes.changes(&store, "old")?, notes.changes(&store, "former")?));
    store.detach_shard("b")?;
    drop(notes.changes(&store, "new")?);
    assert!(notes.remove_change_consumer(&store, "former")?);
    // The shard is attached while the table is not open.
    drop((notes, store));
    let store = Store::open(directory.path())?;
    store.attach_shard("b", "b")?;
    let notes = NoteRepository::open(&store)?;
    assert_eq!(names(&store, &notes)?, ["new", "old"]);
    write_and_remove(&store, &notes)?;
    assert_eq!(notes.changes(&store, "new")?.lag()?.changes, 200);
    Ok(())
}

#[test]
fn a_grown_store_keeps_its_consumers() -> Result<()> {
    let directory = tempfile::tempdir().expect("a directory");
    let store = Store::open(directory.path())?;
    let notes = NoteRepository::open(&store)?;
    (0..5).try_for_each(|text| put(&store, &notes, 7, text))?;
    notes.changes(&store, "mailer")?.next_batch(2)?.commit(&store)?;
    drop((notes, store));

    let store = Store::options()
        .add_shard("b", "b")
        .map("notes", ShardMap::ranges().to("main", ..100_u32).to("b", 100_u32..))
        .open(directory.path())?;
    let notes = NoteRepository::open(&store)?;
    assert_eq!(names(&store, &notes)?, ["mailer"]);
    write_mailed(&store, &notes)
}

/// Writes to both shards, and checks the changes of `mailer`.
fn write_mailed(store: &Store, notes: &NoteRepository) -> Result<()> {
    let rows = [7, 107].map(|tenant| Note { tenant, id: 2, text: 9 });
    store.transaction(|txn| rows.iter().try_for_each(|row| notes.insert(txn, row)))?;
    let found = drain(store, notes, "mailer", 2)?;
    assert_eq!(found.len(), 5);
    assert!(found.contains(&(107, 9)) && found.contains(&(7, 9)), "{found:?}");
    Ok(())
}

/// Takes the shard `b` away and brings it back, and does something meanwhile. Returns the store and the repository.
type Absence = fn(
    &Path,
    (Store, NoteRepository),
    &dyn Fn(&Store, &NoteRepository) -> Result<()>,
) -> Result<(Store, NoteRepository)>;

/// The ways in which a shard is away while a table is open or closed, and comes back.
const ABSENCES: [Absence; 3] = [
    |_, (store, notes), meanwhile| {
        store.detach_shard("b")?;
        meanwhile(&store, &notes)?;
        store.attach_shard("b", "b")?;
        Ok((store, notes))
    },
    |path, (store, notes), meanwhile| {
        store.detach_shard("b")?;
        meanwhile(&store, &notes)?;
        drop((notes, store));
        let store = Store::open(path)?;
        store.attach_shard("b", "b")?;
        let notes = NoteRepository::open(&store)?;
        Ok((store, notes))
    },
    |path, (store, notes), meanwhile| {
        let backup = tempfile::tempdir().expect("a directory");
        let backup = backup.path().join("backup");
        store.backup_shard(&store.shard_ids()[1], &backup)?;
        meanwhile(&store, &notes)?;
        drop((notes, store));
        std::fs::remove_dir_all(path.join("b")).expect("removed");
        let store = Store::open(path)?;
        let notes = NoteRepository::open(&store)?;
        let (shard, _) = store.unavailable_shards().remove(0);
        store.restore_shard(&shard, &backup)?;
        Ok((store, notes))
    },
];

#[test]
fn a_consumer_that_was_created_again_does_not_continue_in_a_shard_that_was_away() -> Result<()> {
    for absence in ABSENCES {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("shop");
        let store = create(&path)?;
        let notes = NoteRepository::open(&store)?;
        drop((notes.changes(&store, "mailer")?, notes.changes(&store, "other")?));
        (0..10).try_for_each(|text| put(&store, &notes, 107, text))?;
        for consumer in ["mailer", "other"] {
            assert_eq!(drain(&store, &notes, consumer, 64)?.len(), 10);
        }
        let created_again = |store: &Store, notes: &NoteRepository| {
            assert!(notes.remove_change_consumer(store, "mailer")?);
            drop(notes.changes(store, "mailer")?);
            put(store, notes, 7, 10)
        };
        let (store, notes) = absence(&path, (store, notes), &created_again)?;
        assert_eq!(notes.changes(&store, "mailer")?.lag()?.changes, 11);
        let received = drain(&store, &notes, "mailer", 3)?;
        let expected = (0..10).map(|text| (107, text)).chain([(7, 10)]);
        assert_eq!(received, expected.collect::<Vec<_>>());
        assert_eq!(drain(&store, &notes, "other", 64)?, [(7, 10)], "it continues");

        // It is the same consumer from now on.
        let (store, notes) = absence(&path, (store, notes), &|_, _| Ok(()))?;
        let changes = notes.changes(&store, "mailer")?;
        assert_eq!(changes.lag()?.changes, 0);
    }
    Ok(())
}

/// As [`create`]; `b` is the first shard.
fn create_with_first_b(path: &Path) -> Result<(Store, NoteRepository)> {
    let options = Store::options().shard("b", "b").shard("a", "a");
    let map = ShardMap::ranges().to("a", ..100_u32).to("b", 100_u32..);
    let store = options.map("notes", map).open(path)?;
    let notes = NoteRepository::open(&store)?;
    Ok((store, notes))
}

const LONG: Duration = Duration::from_hours(1);

#[test]
fn a_lease_that_ended_while_the_first_shard_was_away_does_not_come_back_with_it() -> Result<()> {
    for absence in &ABSENCES[..2] {
        let directory = tempfile::tempdir().expect("a directory");
        let (store, notes) = create_with_first_b(directory.path())?;
        put(&store, &notes, 107, 0)?;
        let mut worker = notes.changes(&store, "mailer")?.share(LONG);
        worker.next_batch(9)?.commit(&store)?;
        let worker = Cell::new(Some(worker));
        let left = |store: &Store, notes: &NoteRepository| {
            worker.take().map_or(Ok(()), ChangeWorker::leave)?;
            put(store, notes, 7, 1)
        };
        let (store, notes) = absence(directory.path(), (store, notes), &left)?;
        assert_eq!(drain(&store, &notes, "mailer", 9)?, [(7, 1)]);
    }
    Ok(())
}

#[test]
fn leases_continue_when_an_earlier_shard_comes_back() -> Result<()> {
    let directory = tempfile::tempdir().expect("a directory");
    let (store, notes) = create_with_first_b(directory.path())?;
    let mut former = notes.changes(&store, "mailer")?.share(LONG);
    assert!(former.next_batch(9)?.is_empty());
    store.detach_shard("b")?;
    put(&store, &notes, 7, 1)?;
    let mut worker = notes.changes(&store, "mailer")?.share(LONG);
    let batch = worker.next_batch(9)?;
    store.attach_shard("b", "b")?;
    batch.commit(&store)?;
    put(&store, &notes, 107, 2)?;
    let refused = notes.changes(&store, "mailer")?.next_batch(9).expect_err("shared");
    assert!(matches!(refused, Error::ConsumerShared { .. }), "{refused:?}");
    let batch = worker.next_batch(9)?;
    assert_eq!(batch.len(), 1, "it has all keys");
    batch.commit(&store)?;
    worker.leave()?;
    put(&store, &notes, 107, 3)?;
    assert_eq!(drain(&store, &notes, "mailer", 9)?, [(107, 3)]);
    Ok(())
}
