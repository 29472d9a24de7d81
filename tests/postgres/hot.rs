//! Transactions of several clients that change the same rows in any order, so that they lock each other.

use std::{
    env,
    hash::{BuildHasher as _, RandomState},
    sync::{
        Barrier,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use index_table::{__private::run_sql, Error, IndexTable, Result, Store};
use serde::{Deserialize, Serialize};

use super::{TestResult, postgres::Schema};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "accounts")]
#[index(balance)]
struct Account {
    #[primary_key]
    id: u32,
    balance: u64,
}

/// The number of clients, of rows, and of rows that a transaction changes.
const CLIENTS: u64 = 8;
const ROWS: u64 = 8;
const CHANGED: u64 = 3;

/// Returns the number of transactions that changed hot rows in this time, and the longest time of one.
fn run(schema: &Schema, time: Duration) -> Result<(u64, Duration)> {
    let store = schema.open()?;
    let accounts = AccountRepository::open(&store)?;
    store.transaction(|txn| {
        let new = |id| Account { id, balance: 0 };
        (0..ROWS as u32).try_for_each(|id| accounts.put(txn, &new(id)))
    })?;
    let (count, longest, begun) = (AtomicU64::new(0), AtomicU64::new(0), Instant::now());
    let client = |of: u64| -> Result<()> {
        let mut at = 0;
        while begun.elapsed() < time {
            let (since, random) = (Instant::now(), RandomState::new().hash_one((of, at)));
            store.transaction(|txn| {
                (0..CHANGED).try_for_each(|step| {
                    let id = ((random >> (step * 8)) % ROWS) as u32;
                    accounts.update(txn, id, |row| row.balance += 1).map(drop)
                })
            })?;
            longest.fetch_max(since.elapsed().as_millis() as u64, Ordering::Relaxed);
            count.fetch_add(1, Ordering::Relaxed);
            at += 1;
        }
        Ok(())
    };
    let client = &client;
    thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS).map(|of| scope.spawn(move || client(of))).collect();
        clients.into_iter().try_for_each(|it| it.join().expect("a thread"))
    })?;
    let count = count.into_inner();
    let sum: u64 = accounts
        .all(&store.read()?)
        .rows()
        .map(|row| row.map(|row| row.balance))
        .sum::<Result<u64>>()?;
    assert_eq!(sum, count * CHANGED, "an update is lost");
    Ok((count, Duration::from_millis(longest.into_inner())))
}

/// For measuring: `INDEX_TABLE_HOT` is the number of seconds.
#[test]
#[ignore = "measures"]
fn transactions_of_hot_rows_a_second() -> TestResult {
    let Some(schema) = Schema::new() else { return Ok(()) };
    let time = env::var("INDEX_TABLE_HOT").ok().and_then(|it| it.parse().ok());
    let time = Duration::from_secs(time.unwrap_or(5));
    let (count, longest) = run(&schema, time)?;
    eprintln!("{} transactions a second, the longest {longest:?}", count / time.as_secs());
    Ok(())
}

/// The server would find the deadlock after a second.
#[test]
fn a_deadlock_ends_soon() -> TestResult {
    let Some(schema) = Schema::new() else { return Ok(()) };
    let store = schema.open()?;
    let accounts = AccountRepository::open(&store)?;
    let new = |id| Account { id, balance: 0 };
    store.transaction(|txn| [1, 1_000].iter().try_for_each(|id| accounts.put(txn, &new(*id))))?;
    let barrier = Barrier::new(2);
    let lock_both = |ids: [u32; 2]| -> Result<Duration> {
        let mut txn = store.write()?;
        accounts.update(&mut txn, ids[0], |row| row.balance += 1)?;
        // This sends the change, and with it the lock.
        accounts.get(&txn, ids[0])?;
        barrier.wait();
        let begun = Instant::now();
        let second = accounts.update(&mut txn, ids[1], |row| row.balance += 1).map(drop);
        let second = second.and_then(|()| accounts.get(&txn, ids[1]).map(drop));
        let committed = second.and_then(|()| txn.commit());
        assert!(matches!(committed, Ok(()) | Err(Error::RetriesExhausted { .. })), "{committed:?}");
        Ok(begun.elapsed())
    };
    let lock_both = &lock_both;
    let times = thread::scope(|scope| {
        let other = scope.spawn(move || lock_both([1_000, 1]));
        let own = lock_both([1, 1_000]);
        [own, other.join().expect("a thread")]
    });
    for time in times {
        let time = time?;
        assert!(time < Duration::from_millis(700), "{time:?}");
    }
    Ok(())
}

/// Runs a body while another session has locked all accounts for a time, in seconds.
fn while_locked(
    (store, schema, seconds): (&Store, &Schema, &str),
    body: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let schema = schema.name();
    let hold = format!(
        "BEGIN ISOLATION LEVEL READ COMMITTED; SELECT k FROM \"{schema}\".accounts FOR UPDATE; \
         SELECT pg_sleep({seconds})::text; ROLLBACK"
    );
    let sleeps = format!(
        "SELECT count(*)::text FROM pg_stat_activity WHERE wait_event = 'PgSleep' \
         AND query LIKE '%\"{schema}\".accounts FOR UPDATE%'"
    );
    thread::scope(|scope| {
        let holder = scope.spawn(|| run_sql(store, &hold));
        while run_sql(store, &sleeps)?.as_deref() != Some("1") {
            assert!(!holder.is_finished(), "it does not wait");
        }
        body()?;
        holder.join().expect("a thread").map(drop)
    })
}

/// The limit for locks grows. With the first one, there would be twice as many attempts.
#[test]
fn a_long_wait_ends_in_few_attempts() -> TestResult {
    let Some(schema) = Schema::new() else { return Ok(()) };
    let store = schema.open()?;
    let accounts = AccountRepository::open(&store)?;
    store.transaction(|txn| accounts.put(txn, &Account { id: 1, balance: 0 }))?;
    let mut attempts = 0;
    while_locked((&store, &schema, "1"), || {
        store.transaction(|txn| {
            attempts += 1;
            accounts.update(txn, 1, |row| row.balance += 1)?;
            accounts.get(txn, 1).map(drop)
        })
    })?;
    assert!(attempts <= 8, "{attempts}");
    Ok(())
}

/// Its program would have to handle a conflict, although the other transaction changes nothing.
#[test]
fn a_transaction_without_a_closure_waits_for_longer() -> TestResult {
    let Some(schema) = Schema::new() else { return Ok(()) };
    let store = schema.open()?;
    let accounts = AccountRepository::open(&store)?;
    store.transaction(|txn| accounts.put(txn, &Account { id: 1, balance: 0 }))?;
    while_locked((&store, &schema, "0.2"), || {
        let mut txn = store.write()?;
        accounts.update(&mut txn, 1, |row| row.balance += 1)?;
        txn.commit()
    })?;
    assert_eq!(accounts.get(&store.read()?, 1)?.map(|row| row.balance), Some(1));
    Ok(())
}
