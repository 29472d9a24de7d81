//! Streams in sharded stores: keys that move, shards that are added, removed, unavailable or restored.

use std::{path::Path, time::Duration};

use index_table::{
    ChangeKind::{Inserted, Updated},
    Error, IndexTable, Result, ShardMap, Store,
};
use serde::{Deserialize, Serialize};

use crate::{InvoiceRepository, all_stores, invoice, seen};

/// The rows of tenants below 100 are in the shard `a`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "notes", shard_by = tenant, changes(until_consumed))]
#[index(text)]
pub(crate) struct Note {
    #[primary_key]
    pub(crate) tenant: u32,
    #[primary_key]
    pub(crate) id: u32,
    pub(crate) text: u64,
}

pub(crate) fn create(path: &Path) -> Result<Store> {
    Store::options()
        .shard("a", "a")
        .shard("b", "b")
        .map("notes", ShardMap::ranges().to("a", ..100_u32).to("b", 100_u32..))
        .open(path)
}

pub(crate) fn put(store: &Store, notes: &NoteRepository, tenant: u32, text: u64) -> Result<()> {
    store.transaction(|txn| notes.put(txn, &Note { tenant, id: 1, text }))
}

/// Returns the tenants and the texts of all changes that are left, in batches of this size, and commits them.
pub(crate) fn drain(
    store: &Store,
    notes: &NoteRepository,
    consumer: &str,
    limit: usize,
) -> Result<Vec<(u32, u64)>> {
    let (mut changes, mut all) = (notes.changes(store, consumer)?, Vec::new());
    loop {
        let batch = changes.next_batch(limit)?;
        if batch.is_empty() {
            assert_eq!(changes.lag()?.changes, 0);
            return Ok(all);
        }
        all.extend(batch.iter().map(|change| (change.row.tenant, change.row.text)));
        batch.commit(store)?;
    }
}

fn of_tenant(changes: &[(u32, u64)], tenant: u32) -> Vec<u64> {
    changes.iter().filter(|(own, _)| *own == tenant).map(|(_, text)| *text).collect()
}

#[test]
fn a_move_adds_no_changes_and_keeps_the_order_of_each_key() -> Result<()> {
    for limit in [1, 2, 1000] {
        let directory = tempfile::tempdir().expect("a directory");
        let store = create(directory.path())?;
        let notes = NoteRepository::open(&store)?;
        let mut changes = notes.changes(&store, "mailer")?;
        for text in 0..10 {
            (0..3).try_for_each(|tenant| put(&store, &notes, tenant * 60, text))?;
        }
        changes.next_batch(2)?.commit(&store)?;
        let before = changes.lag()?;
        assert_eq!(before.changes, 28);
        assert_eq!(store.move_range("notes", ..100_u32, "b").run()?.rows, 2);
        assert_eq!(changes.lag()?, before);
        for text in 10..20 {
            (0..3).try_for_each(|tenant| put(&store, &notes, tenant * 60, text))?;
        }
        store.move_range("notes", 60_u32..200, "a").run()?;
        for text in 20..30 {
            (0..3).try_for_each(|tenant| put(&store, &notes, tenant * 60, text))?;
        }
        let all = drain(&store, &notes, "mailer", limit)?;
        assert_eq!(of_tenant(&all, 0), (1..30).collect::<Vec<_>>());
        assert_eq!(of_tenant(&all, 60), (1..30).collect::<Vec<_>>());
        assert_eq!(of_tenant(&all, 120), (0..30).collect::<Vec<_>>());
    }
    Ok(())
}

#[test]
fn a_shard_that_gets_its_first_keys_keeps_their_changes_for_each_consumer() -> Result<()> {
    let directory = tempfile::tempdir().expect("a directory");
    let map = ShardMap::ranges().to("b", 100_u32..);
    let options = Store::options().shard("a", "a").shard("b", "b").map("notes", map);
    let store = options.open(directory.path())?;
    let notes = NoteRepository::open(&store)?;
    drop(notes.changes(&store, "mailer")?);
    put(&store, &notes, 100, 1)?;
    // This opens the table in shard `a`, which would keep the numbers.
    let refused = store.detach_shard("b").expect_err("changes are left");
    assert!(refused.to_string().contains("consumer `mailer`"), "{refused}");
    drop(notes.changes(&store, "printer")?);
    store.move_range("notes", ..100_u32, "a").run()?;
    put(&store, &notes, 7, 2)?;
    assert_eq!(drain(&store, &notes, "mailer", 1000)?, [(100, 1), (7, 2)]);
    // The other consumer has committed none of them.
    assert_eq!(notes.remove_old_changes(&store, u64::MAX)?, 0);
    assert_eq!(drain(&store, &notes, "printer", 1000)?, [(100, 1), (7, 2)]);
    Ok(())
}

#[test]
fn a_shard_whose_keys_moved_away_keeps_its_changes() -> Result<()> {
    let directory = tempfile::tempdir().expect("a directory");
    let store = create(directory.path())?;
    let notes = NoteRepository::open(&store)?;
    drop(notes.changes(&store, "mailer")?);
    (0..4).try_for_each(|text| put(&store, &notes, 7, text))?;
    store.move_range("notes", ..100_u32, "b").run()?;
    (4..6).try_for_each(|text| put(&store, &notes, 7, text))?;
    let refused = store.remove_shard("a").expect_err("changes are left");
    assert!(refused.to_string().contains("consumer `mailer`"), "{refused}");
    drop((notes, store));

    // The catalog of the shard records that the table has a stream there.
    let store = Store::open(directory.path())?;
    let refused = store.remove_shard("a").expect_err("the repository is not open");
    assert!(refused.to_string().contains("open the repository of table `notes`"), "{refused}");
    let notes = NoteRepository::open(&store)?;
    assert!(store.detach_shard("a").is_err());
    let mut changes = notes.changes(&store, "mailer")?;
    changes.next_batch(3)?.commit(&store)?;
    assert!(store.remove_shard("a").is_err());
    let left = changes.next_batch(1)?;
    assert_eq!(left[0].row.text, 3);
    left.commit(&store)?;
    store.remove_shard("a")?;
    put(&store, &notes, 7, 6)?;
    assert_eq!(drain(&store, &notes, "mailer", 9)?, [(7, 4), (7, 5), (7, 6)]);
    Ok(())
}

#[test]
fn a_consumer_waits_for_an_unavailable_shard() -> Result<()> {
    let directory = tempfile::tempdir().expect("a directory");
    let store = create(directory.path())?;
    let notes = NoteRepository::open(&store)?;
    drop(notes.changes(&store, "mailer")?);
    (0..3).try_for_each(|text| put(&store, &notes, 7, text))?;
    // The tenant moves, and its first changes stay in the shard `a`.
    store.move_range("notes", ..100_u32, "b").run()?;
    drop((notes, store));

    let (a, away) = (directory.path().join("a"), directory.path().join("away"));
    std::fs::rename(&a, &away).expect("moved away");
    let store = Store::open(directory.path())?;
    let notes = NoteRepository::open(&store)?;
    put(&store, &notes, 7, 3)?;
    let unavailable = notes.changes(&store, "mailer").expect_err("a shard is missing");
    assert!(
        matches!(&unavailable, Error::ShardUnavailable { shard, .. } if shard == "a"),
        "{unavailable:?}"
    );
    drop((notes, store));

    std::fs::rename(&away, &a).expect("moved back");
    let store = Store::open(directory.path())?;
    let notes = NoteRepository::open(&store)?;
    // The change that was made without the shard has a greater number than the changes in the shard.
    assert_eq!(drain(&store, &notes, "mailer", 1)?, [(7, 0), (7, 1), (7, 2), (7, 3)]);
    Ok(())
}

#[test]
fn a_further_shard_has_the_consumers_of_the_others() -> Result<()> {
    let directory = tempfile::tempdir().expect("a directory");
    let store = create(directory.path())?;
    let notes = NoteRepository::open(&store)?;
    drop((notes.changes(&store, "slow")?, notes.changes(&store, "fast")?));
    put(&store, &notes, 7, 0)?;
    store.add_shard("c", "c")?;
    store.move_range("notes", ..100_u32, "c").run()?;
    // Changes are removed when all consumers have committed them, and the slow consumer has not.
    (1..300).try_for_each(|text| put(&store, &notes, 7, text))?;
    let expected: Vec<_> = (0..300).map(|text| (7, text)).collect();
    assert_eq!(drain(&store, &notes, "fast", 100)?, expected);
    put(&store, &notes, 7, 300)?;
    notes.remove_old_changes(&store, u64::MAX)?;
    assert_eq!(notes.changes(&store, "slow")?.lag()?.changes, 301);
    assert_eq!(drain(&store, &notes, "slow", 1000)?[..300], expected);
    assert_eq!(drain(&store, &notes, "fast", 1000)?, [(7, 300)]);
    assert_eq!(notes.remove_old_changes(&store, u64::MAX)?, 301);
    let listed = notes.change_consumers(&store.read()?)?;
    assert_eq!(
        listed.iter().map(|it| (it.lag.changes, it.missed)).collect::<Vec<_>>(),
        [(0, 0); 2]
    );
    Ok(())
}

#[test]
fn a_restored_shard_has_the_positions_of_its_backup() -> Result<()> {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("shop");
    let store = create(&path)?;
    let notes = NoteRepository::open(&store)?;
    drop(notes.changes(&store, "mailer")?);
    (0..4).try_for_each(|text| put(&store, &notes, 107, text))?;
    put(&store, &notes, 7, 0)?;
    assert_eq!(drain(&store, &notes, "mailer", 3)?.len(), 5);
    drop((notes, store));
    let (lost, backup) = (path.join("b"), directory.path().join("backup"));
    Store::options().read_only(true).open(&lost)?.backup_to(&backup)?;

    let store = Store::open(&path)?;
    let notes = NoteRepository::open(&store)?;
    (4..9).try_for_each(|text| put(&store, &notes, 107, text))?;
    drop(notes.changes(&store, "late")?);
    assert_eq!(drain(&store, &notes, "mailer", 100)?.len(), 5);
    drop((notes, store));
    std::fs::remove_dir_all(&lost).expect("removed");

    let store = Store::open(&path)?;
    let notes = NoteRepository::open(&store)?;
    let (shard, _) = store.unavailable_shards().remove(0);
    store.restore_shard(&shard, &backup)?;
    put(&store, &notes, 107, 9)?;
    put(&store, &notes, 7, 1)?;
    // One batch has changes of both shards.
    assert_eq!(drain(&store, &notes, "mailer", 100)?, [(107, 9), (7, 1)]);
    drop((notes, store));
    let store = Store::open(&path)?;
    let notes = NoteRepository::open(&store)?;
    // A consumer that the backup lacks begins at the oldest change there.
    let late = drain(&store, &notes, "late", 100)?;
    assert_eq!(of_tenant(&late, 107), [0, 1, 2, 3, 9]);
    assert_eq!(of_tenant(&late, 7), [0, 1]);
    Ok(())
}

#[test]
fn a_consumer_continues_after_the_rows_of_a_snapshot() -> Result<()> {
    for store in all_stores()? {
        let invoices = InvoiceRepository::open(&store)?;
        let write = |amount: i64| {
            store.transaction(|txn| {
                (0..20).try_for_each(|number| invoices.put(txn, &invoice(number, amount)))
            })
        };
        write(1)?;
        let mut changes = invoices.changes(&store, "copy")?;
        changes.next_batch(7)?.commit(&store)?;
        let txn = store.read()?;
        write(2)?;
        assert_eq!(changes.skip_before(&txn)?, 13);
        assert_eq!(changes.skip_before(&txn)?, 0);
        let expected: Vec<_> = (0..20).map(|number| (Updated, number, 2)).collect();
        assert_eq!(seen(&changes.next_batch(100)?), expected);
        let other = Store::in_memory();
        let wrong = changes.skip_before(&other.read()?);
        assert!(matches!(wrong, Err(Error::WrongStore { table: "invoices" })), "{wrong:?}");
    }
    Ok(())
}

#[test]
fn a_load_of_several_shards_is_in_the_stream() -> Result<()> {
    let directory = tempfile::tempdir().expect("a directory");
    let store = create(directory.path())?;
    let notes = NoteRepository::open(&store)?;
    let rows = |text| (0..500).map(move |tenant| Note { tenant, id: 1, text });
    for text in 0..3 {
        notes
            .bulk_load(&store, rows(text))
            .on_duplicate(index_table::OnDuplicate::Replace)
            .run()?;
    }
    let mut changes = notes.changes(&store, "mailer")?;
    let batch = changes.next_batch(10_000)?;
    assert_eq!(batch.len(), 1500);
    assert!(batch.iter().map(|it| it.number).is_sorted_by(|one, next| one < next));
    for tenant in [0, 99, 100, 499] {
        let own = batch.iter().filter(|change| change.row.tenant == tenant);
        let own: Vec<_> = own.map(|change| (change.kind, change.row.text)).collect();
        assert_eq!(own, [(Inserted, 0), (Updated, 1), (Updated, 2)]);
    }
    batch.commit(&store)?;
    let load = notes.bulk_load(&store, rows(3)).on_duplicate(index_table::OnDuplicate::Replace);
    assert_eq!(load.without_changes().run()?.replaced, 500);
    assert_eq!(changes.lag()?.changes, 0);
    Ok(())
}

#[test]
fn workers_share_the_keys_of_all_shards() -> Result<()> {
    const LEASE: Duration = Duration::from_hours(1);
    let directory = tempfile::tempdir().expect("a directory");
    let store = create(directory.path())?;
    let notes = NoteRepository::open(&store)?;
    let mut workers = [
        notes.changes(&store, "mailer")?.share(LEASE),
        notes.changes(&store, "mailer")?.share(LEASE),
    ];
    let mut all: Vec<(u32, u64)> = Vec::new();
    for round in 0..6 {
        for tenant in 80..120 {
            put(&store, &notes, tenant, round)?;
        }
        let to = ["a", "b"][usize::try_from(round % 2).expect("an index")];
        store.move_range("notes", 85_u32..115, to).run()?;
        for worker in &mut workers {
            // A worker that is behind gets the changes of a key from two shards.
            let batch = worker.next_batch(if round < 4 { 11 } else { 1000 })?;
            all.extend(batch.iter().map(|change| (change.row.tenant, change.row.text)));
            batch.commit(&store)?;
        }
    }
    for worker in &mut workers {
        let batch = worker.next_batch(1000)?;
        all.extend(batch.iter().map(|change| (change.row.tenant, change.row.text)));
        batch.commit(&store)?;
        assert!(worker.next_batch(1)?.is_empty());
    }
    assert_eq!(workers[0].consumer().lag()?.changes, 0);
    for tenant in 80..120 {
        assert_eq!(of_tenant(&all, tenant), (0..6).collect::<Vec<_>>(), "{tenant}");
    }
    Ok(())
}

#[test]
fn numbers_ascend_after_all_changes_were_removed() -> Result<()> {
    let directory = tempfile::tempdir().expect("a directory");
    let mut last = 0;
    for round in 0..3 {
        let store =
            if round == 0 { create(directory.path()) } else { Store::open(directory.path()) }?;
        let notes = NoteRepository::open(&store)?;
        let mut changes = notes.changes(&store, "mailer")?;
        (0..3).try_for_each(|tenant| put(&store, &notes, tenant * 60, round))?;
        let batch = changes.next_batch(10)?;
        let numbers: Vec<_> = batch.iter().map(|change| change.number).collect();
        assert_eq!(numbers.len(), 3);
        assert!(numbers[0] > last && numbers.is_sorted(), "{numbers:?} after {last}");
        last = numbers[2];
        batch.commit(&store)?;
        assert_eq!(notes.remove_old_changes(&store, 10)?, 3);
    }
    Ok(())
}
