//! Work on tables while shards leave the store and come back: queues, change streams, expiry, builds and upgrades.

use std::{
    path::Path,
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    thread,
    time::{Duration, SystemTime},
};

use index_table::{Error, IndexTable, Result, ShardMap, Store, WriteTxn};
use serde::{Deserialize, Serialize};

use crate::{opening::reason, verify_global::raw};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[allow(clippy::duplicated_attributes, reason = "several indexes may be eventual")]
#[table(name = "tasks", shard_by = tenant, changes, expires = ends)]
#[index(state, consistency = "eventual")]
#[index(owner, consistency = "eventual", scope = "global")]
#[aggregate(state)]
struct Task {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    id: u64,
    state: u8,
    owner: u8,
    ends: Option<SystemTime>,
}

fn task(tenant: u32, id: u64) -> Task {
    Task { tenant, id, state: 1, owner: 2, ends: None }
}

fn opened(path: &Path) -> Result<(Store, TaskRepository)> {
    let map = ShardMap::ranges().to("a", ..10u32).to("b", 10u32..);
    let store = Store::options().shard("a", "a").shard("b", "b").map("tasks", map).open(path)?;
    let tasks = TaskRepository::open(&store)?;
    Ok((store, tasks))
}

/// Calls `step` until the work is over. No call may fail.
fn repeat(is_over: &AtomicBool, name: &str, mut step: impl FnMut() -> Result<()>) {
    while !is_over.load(SeqCst) {
        if let Err(error) = step() {
            is_over.store(true, SeqCst);
            panic!("{name}: {error}");
        }
    }
}

#[test]
fn work_on_a_table_continues_while_a_shard_is_detached_and_attached() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let (store, tasks) = opened(&dir.path().join("shop"))?;
    let worker = store.start_index_worker()?;
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| -> Result<()> {
        let (store, tasks, is_over) = (&store, &tasks, &is_over);
        scope.spawn(move || repeat(is_over, "drain", || tasks.drain(store, 100).map(drop)));
        scope.spawn(move || {
            repeat(is_over, "dead letters", || tasks.retry_dead_letters(store).map(drop));
        });
        scope.spawn(move || {
            repeat(is_over, "old changes", || tasks.remove_old_changes(store, 10).map(drop));
        });
        scope.spawn(move || {
            repeat(is_over, "expiry", || tasks.expire(store, SystemTime::now(), 100).map(drop));
        });
        scope.spawn(move || {
            repeat(is_over, "a token", || {
                let mut txn = store.write()?;
                tasks.put(&mut txn, &task(1, 1))?;
                match tasks.put(&mut txn, &task(20, 1)) {
                    Ok(()) | Err(Error::NoShard { .. }) => {}
                    Err(error) => return Err(error),
                }
                let token = txn.commit_with_token()?;
                assert!(tasks.wait_for(store, &token, Duration::from_mins(1))?);
                Ok(())
            });
        });
        scope.spawn(move || {
            repeat(is_over, "builds and upgrades", || {
                tasks.build(store).run()?;
                tasks.upgrade(store).run().map(drop)
            });
        });
        for round in 0..8 {
            if is_over.load(SeqCst) {
                break;
            }
            let expired = |id| Task { ends: Some(SystemTime::UNIX_EPOCH), ..task(20, id) };
            store.transaction(|txn| {
                (10..40).try_for_each(|id| tasks.put(txn, &expired(id + 100 * round)))
            })?;
            store.detach_shard("b")?;
            store.attach_shard("b", "b")?;
        }
        is_over.store(true, SeqCst);
        Ok(())
    })?;
    assert!(worker.error().is_none(), "{:?}", worker.error());
    tasks.drain(&store, u64::MAX)?;
    let report = store.verify()?;
    assert!(report.is_clean(), "{report}");
    Ok(())
}

#[test]
fn closures_go_to_a_new_shard_with_the_name_of_a_removed_one() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let (store, tasks) = opened(&dir.path().join("shop"))?;
    let writer = store.writer()?;
    for (round, directory) in [(1, "c1"), (2, "c2")] {
        store.add_shard("c", directory)?;
        store.move_range("tasks", 30u32.., "c").run()?;
        let inserting = tasks.clone();
        let insert = move |txn: &mut WriteTxn<'_>| inserting.insert(txn, &task(30, round));
        writer.submit_on(&store.shard("c")?, insert).wait()?;
        store.move_range("tasks", 30u32.., "b").run()?;
        tasks.drain(&store, u64::MAX)?;
        store.remove_shard("c")?;
    }
    assert_eq!(tasks.all(&store.read()?).count()?, 2);
    Ok(())
}

#[test]
fn a_message_of_a_row_that_has_moved_to_a_detached_shard_is_applied() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let (store, tasks) = opened(&dir.path().join("shop"))?;
    store.transaction(|txn| tasks.insert(txn, &task(5, 1)))?;
    store.move_range("tasks", 5u32..6, "b").run()?;
    store.transaction(|txn| tasks.insert(txn, &task(6, 1)))?;
    // The messages of both rows are in shard `a`.
    store.detach_shard("b")?;
    let drained = tasks.drain(&store, u64::MAX)?;
    assert_eq!((drained.left, drained.dead_letters), (0, 0));
    let txn = store.read()?;
    assert_eq!(tasks.find_by_state(&txn, 1).stale().count()?, 1);
    assert_eq!(tasks.find_by_owner(&txn, 2).stale().count()?, 1);
    drop(txn);
    assert!(store.verify()?.is_clean());
    store.attach_shard("b", "b")?;
    tasks.drain(&store, u64::MAX)?;
    let txn = store.read()?;
    assert_eq!(tasks.find_by_state(&txn, 1).stale().count()?, 2);
    assert_eq!(tasks.find_by_owner(&txn, 2).stale().count()?, 2);
    drop(txn);
    let report = store.verify()?;
    assert!(report.is_clean(), "{report}");
    Ok(())
}

#[test]
fn a_shard_with_messages_of_rows_in_other_shards_is_not_detached() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let (store, tasks) = opened(&dir.path().join("shop"))?;
    store.transaction(|txn| tasks.insert(txn, &task(5, 1)))?;
    store.move_range("tasks", 5u32..6, "b").run()?;
    let refused = store.detach_shard("a").expect_err("a message is left");
    assert!(refused.to_string().contains("queued messages"), "{refused}");
    tasks.drain(&store, u64::MAX)?;
    // The messages of its own rows leave with a shard.
    store.transaction(|txn| tasks.insert(txn, &task(6, 1)))?;
    store.detach_shard("a")?;
    assert_eq!(tasks.find_by_owner(&store.read()?, 2).stale().count()?, 1);
    store.attach_shard("a", "a")?;
    tasks.drain(&store, u64::MAX)?;
    assert_eq!(tasks.find_by_owner(&store.read()?, 2).stale().count()?, 2);
    let report = store.verify()?;
    assert!(report.is_clean(), "{report}");
    Ok(())
}

/// Takes the messages of the tasks in shard `a` out of its file, or puts them back.
fn exchange(path: &Path, messages: &mut Vec<(Vec<u8>, Vec<u8>)>) -> heed::Result<()> {
    raw(path, "a", ".queue.tasks", |queue, txn| {
        for (number, message) in &*messages {
            queue.put(txn, number, message)?;
        }
        if messages.is_empty() {
            let found = queue.iter(txn)?.map(|it| it.map(|(k, v)| (k.to_vec(), v.to_vec())));
            *messages = found.collect::<heed::Result<_>>()?;
            queue.clear(txn)?;
        }
        Ok(())
    })
}

/// Builds before `detach_shard` refused it have detached shards with such messages.
#[test]
fn a_shard_that_was_detached_with_messages_of_rows_in_other_shards_brings_them_back() -> Result<()>
{
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("shop");
    let (store, tasks) = opened(&path)?;
    store.transaction(|txn| tasks.insert(txn, &task(5, 1)))?;
    store.move_range("tasks", 5u32..6, "b").run()?;
    drop((tasks, store));
    let mut messages = Vec::new();
    exchange(&path, &mut messages).expect("taken");
    assert_eq!(messages.len(), 1);

    let (store, tasks) = opened(&path)?;
    assert_eq!(tasks.drain(&store, u64::MAX)?.applied, 0);
    store.detach_shard("a")?;
    drop((tasks, store));
    exchange(&path, &mut messages).expect("put back");

    let store = Store::open(&path)?;
    let tasks = TaskRepository::open(&store)?;
    assert_eq!(tasks.find_by_owner(&store.read()?, 2).stale().count()?, 0);
    store.attach_shard("a", "a")?;
    tasks.drain(&store, u64::MAX)?;
    let txn = store.read()?;
    assert_eq!(tasks.find_by_owner(&txn, 2).stale().count()?, 1);
    assert_eq!(tasks.find_by_state(&txn, 1).stale().count()?, 1);
    drop(txn);
    let report = store.verify()?;
    assert!(report.is_clean(), "{report}");
    Ok(())
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "members", shard_by = tenant)]
#[index(email, unique, scope = "global")]
struct Member {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    id: u64,
    email: String,
}

fn member(tenant: u32, id: u64) -> Member {
    Member { tenant, id, email: format!("{tenant}.{id}@example.com") }
}

#[test]
fn a_shard_that_was_added_gets_the_whole_global_index_of_the_last_other_shard() -> Result<()> {
    for is_readable in [true, false] {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("shop");
        let map = ShardMap::ranges().to("a", ..10u32).to("b", 10u32..20);
        let options = Store::options().shard("a", "a").shard("b", "b");
        let store = options.map("members", map).open(&path)?;
        let members = MemberRepository::open_online(&store)?;
        store.transaction(|txn| {
            [1, 11].into_iter().try_for_each(|tenant| {
                (0..50).try_for_each(|id| members.insert(txn, &member(tenant, id)))
            })
        })?;
        if is_readable {
            members.build(&store).run()?;
        }
        store.add_shard("spare", "spare")?;
        store.detach_shard("a")?;
        // The index is in this shard only.
        store.detach_shard("b")?;
        assert_eq!(members.by_email(&store.read()?).count()?, 0);
        store.move_range("members", 50u32.., "spare").run()?;
        store.transaction(|txn| members.insert(txn, &member(50, 1)))?;
        for name in ["a", "b"] {
            store.attach_shard(name, name)?;
        }
        let has_all = |store: &Store, members: &MemberRepository| -> Result<()> {
            let txn = store.read()?;
            assert_eq!(members.by_email(&txn).count()?, 101);
            for row in [member(1, 7), member(11, 49), member(50, 1)] {
                assert_eq!(members.get_by_email(&txn, &row.email)?, Some(row));
            }
            let report = store.verify()?;
            assert!(report.is_clean(), "{report}");
            Ok(())
        };
        has_all(&store, &members)?;
        drop((store, members));
        let store = Store::open(&path)?;
        has_all(&store, &MemberRepository::open(&store)?)?;
    }
    Ok(())
}

#[test]
fn a_shard_with_many_rows_is_detached_and_attached_beside_readers_and_writers() -> Result<()> {
    const ROWS: u64 = 5_000;
    let dir = tempfile::tempdir().expect("a directory");
    let map = ShardMap::ranges().to("a", ..10u32).to("b", 10u32..);
    let options = Store::options().shard("a", "a").shard("b", "b");
    let store = options.map("members", map).open(dir.path().join("shop"))?;
    let members = MemberRepository::open(&store)?;
    store.transaction(|txn| (0..100).try_for_each(|id| members.insert(txn, &member(1, id))))?;
    members.bulk_load(&store, (0..ROWS).map(|id| member(11, id))).run()?;
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| -> Result<()> {
        let (store, members, is_over) = (&store, &members, &is_over);
        scope.spawn(move || {
            let mut id = 0;
            repeat(is_over, "a reader", || {
                id = (id + 997) % ROWS;
                let txn = store.read()?;
                let near = member(1, id % 99);
                assert_eq!(members.get_by_email(&txn, &near.email)?, Some(near));
                let has_b = match members.get(&txn, 11, id) {
                    Ok(row) => row.is_some(),
                    Err(Error::NoShard { .. }) => false,
                    Err(error) => return Err(error),
                };
                let row = members.get_by_email(&txn, &member(11, id).email)?;
                assert_eq!(row.is_some(), has_b);
                assert_eq!(members.by_email(&txn).count()?, if has_b { 100 + ROWS } else { 100 });
                Ok(())
            });
        });
        scope.spawn(move || {
            let mut id = 0;
            repeat(is_over, "a writer", || {
                id = (id + 1) % 99;
                let changed = Member { email: format!("changed {id}"), ..member(1, 99) };
                store.transaction(|txn| members.put(txn, &changed))?;
                let taken = Member { id: 2000, ..member(1, id) };
                let taken = store.transaction(|txn| members.insert(txn, &taken));
                assert!(matches!(taken, Err(Error::UniqueViolation { .. })), "{taken:?}");
                Ok(())
            });
        });
        store.detach_shard("b")?;
        store.attach_shard("b", "b")?;
        is_over.store(true, SeqCst);
        Ok(())
    })?;
    assert_eq!(members.by_email(&store.read()?).count()?, 100 + ROWS);
    let report = store.verify()?;
    assert!(report.is_clean(), "{report}");
    Ok(())
}

#[test]
fn a_detached_shard_keeps_its_name_if_it_is_given_when_the_manager_is_rebuilt() -> Result<()> {
    for is_given in [true, false] {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("shop");
        let (store, tasks) = opened(&path)?;
        store.transaction(|txn| {
            [1, 20].into_iter().try_for_each(|tenant| tasks.insert(txn, &task(tenant, 1)))
        })?;
        tasks.drain(&store, u64::MAX)?;
        store.detach_shard("b")?;
        drop((store, tasks));
        std::fs::remove_file(path.join("data.mdb")).expect("the shard map manager");
        let mut options = Store::options().shard("a", "a");
        if is_given {
            options = options.shard("b", "b");
        }
        let store = options.rebuild(&path)?;
        let tasks = TaskRepository::open(&store)?;
        assert_eq!(store.shard_ids().len(), 1);
        assert_eq!(tasks.all(&store.read()?).count()?, 1);
        let name = if is_given {
            "b"
        } else {
            let refused = reason(store.attach_shard("b", "b"));
            assert!(refused.contains("`removed-1`"), "{refused}");
            "removed-1"
        };
        store.attach_shard(name, "b")?;
        assert_eq!(tasks.shard_of(&store, 20)?.name(), name);
        assert_eq!(tasks.all(&store.read()?).count()?, 2);
        tasks.drain(&store, u64::MAX)?;
        assert!(store.verify()?.is_clean());
        drop((store, tasks));
        let store = Store::open(&path)?;
        assert_eq!(TaskRepository::open(&store)?.shard_of(&store, 20)?.name(), name);
    }
    Ok(())
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "countries", reference)]
struct Country {
    #[primary_key]
    code: u32,
}

#[test]
fn a_shard_with_a_table_whose_record_cannot_be_read_does_not_leave() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("shop");
    let (store, tasks) = opened(&path)?;
    let countries = CountryRepository::open(&store)?;
    store.transaction(|txn| countries.insert(txn, &Country { code: 47 }))?;
    drop((store, tasks, countries));
    let set_record = |value: &[u8]| {
        let mut before = Vec::new();
        raw(&path, "b", ".catalog", |records, txn| {
            let record = records.get(txn, b"countries")?;
            before.extend_from_slice(record.expect("the record of the table"));
            records.put(txn, b"countries", value)
        })
        .expect("written");
        before
    };
    let record = set_record(&[255]);

    let (store, tasks) = opened(&path)?;
    for refused in [store.detach_shard("b"), store.remove_shard("b")] {
        let refused = reason(refused);
        assert!(refused.contains("the record of table `countries` can't be read"), "{refused}");
    }
    assert_eq!(store.shard_ids().len(), 2);
    store.transaction(|txn| tasks.insert(txn, &task(11, 1)))?;
    drop((store, tasks));

    set_record(&record);
    let (store, tasks) = opened(&path)?;
    let countries = CountryRepository::open(&store)?;
    assert_eq!(countries.all(&store.read()?).count()?, 1);
    store.detach_shard("b")?;
    assert_eq!(tasks.all(&store.read()?).count()?, 0);
    Ok(())
}
