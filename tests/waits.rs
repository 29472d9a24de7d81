//! Operations of an open sharded store beside each other: none of them waits for ever.

use std::{
    panic,
    sync::{
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc,
    },
    thread,
    time::Duration,
};

use index_table::{Durability, Error, IndexTable, Options, Result, ShardMap, Store};
use serde::{Deserialize, Serialize};

/// No operation takes nearly as long.
const PATIENCE: Duration = Duration::from_mins(3);

#[derive(Debug, Serialize, Deserialize, IndexTable)]
#[table(name = "accounts", shard_by = tenant)]
#[index(town)]
struct Account {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    id: u32,
    town: u32,
}

mod before {
    use super::*;

    #[derive(Debug, Serialize, Deserialize, IndexTable)]
    #[table(name = "users", shard_by = part)]
    pub(crate) struct User {
        #[primary_key]
        pub(crate) part: u32,
        #[primary_key]
        pub(crate) id: u32,
        pub(crate) email: String,
    }
}

#[derive(Debug, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "users", shard_by = part)]
#[index(email, unique, scope = "global")]
struct User {
    #[primary_key]
    part: u32,
    #[primary_key]
    id: u32,
    email: String,
}

/// Runs `test` in another thread, which does not end if its operations wait for each other.
fn in_time(test: impl FnOnce() -> Result<()> + Send + 'static) -> Result<()> {
    let (ended, end) = mpsc::channel();
    let thread = thread::spawn(move || {
        let outcome = panic::catch_unwind(panic::AssertUnwindSafe(test));
        let _ = ended.send(());
        outcome
    });
    let waited = end.recv_timeout(PATIENCE);
    assert_ne!(waited, Err(mpsc::RecvTimeoutError::Timeout), "the operations wait for each other");
    match thread.join().expect("a caught panic") {
        Ok(outcome) => outcome,
        Err(panicked) => panic::resume_unwind(panicked),
    }
}

/// Returns options with which a checkpoint is often due.
fn often() -> Options {
    let options = Store::options().durability(Durability::Journal);
    options.checkpoint(64 << 10, 16 << 10, Duration::from_millis(100))
}

/// Changes rows in two shards, until all shards have come and gone.
fn write(store: &Store, accounts: &AccountRepository, stop: &AtomicBool, seed: u32) {
    let mut random = seed;
    while !stop.load(Relaxed) {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let (moved, other) = (50 + (random >> 8) % 20, (random >> 16) % 50);
        let written = store.transaction(|txn| {
            accounts.update(txn, moved, random % 5, |account| account.town = random % 1000)?;
            accounts.update(txn, other, 1, |account| account.town = random % 7)?;
            Ok(())
        });
        assert!(matches!(written, Ok(()) | Err(Error::NoShard { .. })), "{written:?}");
    }
}

/// Adds and removes a shard, beside transactions of several shards.
fn remove_beside_writers(
    leave: impl Fn(&Store, &str) -> Result<()> + Send + 'static,
) -> Result<()> {
    in_time(move || {
        let dir = tempfile::tempdir().expect("a directory");
        let map = ShardMap::ranges().to("a", ..100u32).to("b", 100u32..);
        let store =
            often().shard("a", "a").shard("b", "b").map("accounts", map).open(dir.path())?;
        let accounts = AccountRepository::open(&store)?;
        store.transaction(|txn| {
            (0..100).try_for_each(|tenant| {
                let account = |id| Account { tenant, id, town: 0 };
                (0..5).try_for_each(|id| accounts.put(txn, &account(id)))
            })
        })?;
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            for seed in 0..8 {
                let (store, accounts, stop) = (&store, &accounts, &stop);
                scope.spawn(move || write(store, accounts, stop, seed));
            }
            let run = || -> Result<()> {
                for round in 0..25 {
                    let name = format!("x{round}");
                    store.add_shard(&name, &name)?;
                    store.move_range("accounts", 50u32..70, &name).run()?;
                    store.move_range("accounts", 50u32..70, "a").run()?;
                    leave(&store, &name)?;
                }
                Ok(())
            };
            let outcome = panic::catch_unwind(panic::AssertUnwindSafe(run));
            stop.store(true, Relaxed);
            outcome.unwrap_or_else(|panicked| panic::resume_unwind(panicked))
        })?;
        assert_eq!(accounts.all(&store.read()?).count()?, 500);
        Ok(())
    })
}

#[test]
fn shards_are_removed_beside_transactions_of_several_shards() -> Result<()> {
    remove_beside_writers(|store, name| store.remove_shard(name))
}

#[test]
fn shards_are_detached_beside_transactions_of_several_shards() -> Result<()> {
    remove_beside_writers(|store, name| store.detach_shard(name))
}

#[test]
fn a_build_ends_although_a_shard_with_a_smaller_number_gets_the_table_meanwhile() -> Result<()> {
    in_time(|| {
        let dir = tempfile::tempdir().expect("a directory");
        let map = ShardMap::ranges().to("a", ..10u32).to("b", 10u32..20).to("c", 20u32..);
        let options = Store::options().shard("a", "a").shard("b", "b").shard("c", "c");
        let store = options.map("users", map).open(dir.path())?;
        let users = before::UserRepository::open(&store)?;
        for part in [1, 11, 21] {
            let user = |id| before::User { part, id, email: format!("{part}.{id}") };
            store.transaction(|txn| (0..50).try_for_each(|id| users.insert(txn, &user(id))))?;
        }
        store.detach_shard("b")?;
        drop((users, store));
        let store = Store::open(dir.path())?;
        let users = UserRepository::open_online(&store)?;
        let mut attached = None;
        let attach = || thread::scope(|scope| scope.spawn(|| store.attach_shard("b", "b")).join());
        let build = users.build(&store).batch_bytes(400);
        build.progress(|_| _ = attached.get_or_insert_with(attach)).run()?;
        attached.expect("a batch").expect("no panic")?;
        users.build(&store).run()?;
        let txn = store.read()?;
        for part in [1, 11, 21] {
            assert!(users.get_by_email(&txn, &format!("{part}.7"))?.is_some(), "{part}");
        }
        Ok(())
    })
}
