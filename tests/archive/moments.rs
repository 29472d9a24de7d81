//! Restoring the state after any commit.

use std::{
    thread,
    time::{Duration, SystemTime},
};

use index_table::{CommitNumber, Error, Result, Store};

use crate::{
    Archived, Kind, Order, OrderRepository, Random, Rows, TestResult, change, last_commit,
    on_each_kind, open, order, rows_in, wait_for_archive, without_archive,
};

on_each_kind! {
    a_restore_to_any_commit_has_the_rows_of_that_commit,
    a_restored_store_can_be_written_and_archived_again,
    a_restore_to_a_moment_between_two_commits_has_the_first_of_them,
    an_open_store_is_archived_within_a_moment_and_without_a_close,
    each_part_can_be_restored_from_its_first_time,
    a_commit_that_is_not_in_the_archive_is_an_error,
    a_large_transaction_is_archived_whole,
    a_restore_has_the_unique_keys_that_rows_have_exchanged,
    an_archive_has_every_commit_of_several_threads,
}

fn a_restore_to_any_commit_has_the_rows_of_that_commit(kind: Kind) -> TestResult {
    let (it, mut random, mut rows) = (Archived::new(kind)?, Random(1), Rows::new());
    let before = SystemTime::now() - Duration::from_hours(1);
    let mut then: Vec<(CommitNumber, SystemTime, Rows)> = Vec::new();
    // The store is closed and opened several times, once before it has all bases.
    for round in 0..4 {
        let (store, orders) = it.open()?;
        if round != 1 {
            wait_for_archive(&store);
        }
        for _ in 0..70 {
            change(&store, &orders, &mut rows, &mut random)?;
            let commit = last_commit(&store)?;
            thread::sleep(Duration::from_millis(2));
            then.push((commit, SystemTime::now(), rows.clone()));
            thread::sleep(Duration::from_millis(1));
        }
    }
    assert!(it.restored(it.restore())? == (then[279].0.clone(), rows));
    for _ in 0..13 {
        let (commit, time, rows) = &then[random.below(280) as usize];
        it.has(commit, rows)?;
        let (last, found) = it.restored(it.restore().until(*time))?;
        assert_eq!(last, *commit);
        assert!(found == *rows, "after {time:?}");
    }
    it.lacks(it.restore().until(before));
    Ok(())
}

fn a_restored_store_can_be_written_and_archived_again(kind: Kind) -> TestResult {
    let (it, mut random, mut rows) = (Archived::new(kind)?, Random(2), Rows::new());
    let (store, orders) = it.open()?;
    wait_for_archive(&store);
    for _ in 0..50 {
        change(&store, &orders, &mut rows, &mut random)?;
    }
    let (middle, rows_then) = (last_commit(&store)?, rows.clone());
    for _ in 0..50 {
        change(&store, &orders, &mut rows, &mut random)?;
    }
    drop((store, orders));
    let second = it.path("second");
    it.restore().until_commit(middle.clone()).run(&second)?;

    let mut rows = rows_then.clone();
    let (store, orders) = open(&it.existing(&it.archive), &second)?;
    for _ in 0..20 {
        change(&store, &orders, &mut rows, &mut random)?;
    }
    wait_for_archive(&store);
    drop((store, orders));
    assert!(it.restored_rows()? == rows);
    it.has(&middle, &rows_then)
}

fn a_restore_to_a_moment_between_two_commits_has_the_first_of_them(kind: Kind) -> TestResult {
    let it = Archived::new(kind)?;
    let (store, orders) = it.open()?;
    wait_for_archive(&store);
    let mut then = Vec::new();
    // Some of these commits are in the same millisecond, and in different shards.
    for id in 0..100 {
        store.transaction(|txn| orders.insert(txn, &order(id * 7 % 30, id, 0)))?;
        then.push((SystemTime::now(), id));
    }
    drop((store, orders));
    for (moment, id) in then.into_iter().step_by(7) {
        let (_, rows) = it.restored(it.restore().until(moment))?;
        assert!(rows.len() as u32 == id + 1 && rows.keys().all(|key| key.1 <= id));
    }
    Ok(())
}

fn an_open_store_is_archived_within_a_moment_and_without_a_close(kind: Kind) -> TestResult {
    let (it, mut random, mut rows) = (Archived::new(kind)?, Random(4), Rows::new());
    let (store, orders) = it.open()?;
    for _ in 0..3 {
        for _ in 0..30 {
            change(&store, &orders, &mut rows, &mut random)?;
        }
        wait_for_archive(&store);
        let mut done = 0;
        let restore = it.restore().progress(|at| {
            assert!(at.done > done);
            done = at.done;
        });
        let (last, found) = it.restored(restore)?;
        assert!(last == last_commit(&store)? && found == rows && done > 0);
    }
    Ok(())
}
fn each_part_can_be_restored_from_its_first_time(kind: Kind) -> TestResult {
    let (it, mut random, mut rows) = (Archived::new(kind)?, Random(8), Rows::new());
    for part in 1..=2 {
        let (store, orders) = it.open()?;
        change(&store, &orders, &mut rows, &mut random)?;
        wait_for_archive(&store);
        drop((store, orders));
        let parts = Store::archive_parts(&it.archive, false, &mut |_| ())?;
        assert_eq!(parts.len(), part, "{parts:?}");
        for (at, own) in parts.iter().enumerate() {
            let to = it.path(&format!("{part} {at}"));
            Store::restore_archive(&it.archive).until(own.from).run(&to)?;
            assert!(own.from <= own.until && matches!(own.outcome, None | Some(Ok(_))), "{own:?}");
        }
        // A gap.
        let (store, orders) = open(&without_archive(kind).without_archive(), &it.store)?;
        change(&store, &orders, &mut rows, &mut random)?;
    }
    Ok(())
}

fn a_commit_that_is_not_in_the_archive_is_an_error(kind: Kind) -> TestResult {
    let (it, mut random, mut rows) = (Archived::new(kind)?, Random(5), Rows::new());
    let mut write = |options: index_table::Options, rows: &mut Rows| {
        let (store, orders) = open(&options, &it.store)?;
        for _ in 0..10 {
            change(&store, &orders, rows, &mut random)?;
        }
        if store.archive_lag().is_some() {
            wait_for_archive(&store);
        }
        last_commit(&store)
    };
    let first = write(it.options(), &mut rows)?;
    let rows_then = rows.clone();
    // Without the archive, with the journal and, in one data file, without it.
    let gap = write(without_archive(kind).without_archive(), &mut rows)?;
    write(without_archive(kind), &mut rows)?;
    write(Store::options(), &mut rows)?;
    let last = write(it.options(), &mut rows)?;

    for missing in [gap, CommitNumber::from(1_000_000)] {
        it.lacks(it.restore().until_commit(missing));
    }
    it.has(&first, &rows_then)?;
    assert!(it.restored(it.restore())? == (last, rows));
    Ok(())
}

fn a_large_transaction_is_archived_whole(kind: Kind) -> TestResult {
    let it = Archived::new(kind)?;
    let (store, orders) = it.open()?;
    wait_for_archive(&store);
    let before = last_commit(&store)?;
    // Its record has several parts. The part of a transaction that is rolled back is overwritten.
    let large = |version| (0..4000).map(move |id| order(id % 30, id, version));
    let mut txn = store.write()?;
    for order in large(1) {
        orders.put(&mut txn, &order)?;
    }
    drop(txn);
    store.transaction(|txn| large(2).try_for_each(|order| orders.put(txn, &order).map(drop)))?;
    drop((store, orders));
    let rows = large(2).map(|order| ((order.tenant, order.id), order)).collect();
    assert!(it.restored_rows()? == rows);
    it.has(&before, &Rows::new())
}

fn a_restore_has_the_unique_keys_that_rows_have_exchanged(kind: Kind) -> TestResult {
    let it = Archived::new(kind)?;
    let mut commits = Vec::new();
    let tenants = [1, 11, 21, 2];
    {
        let (store, orders) = it.open()?;
        let of = |at: usize, code| Order { code, ..order(tenants[at], 0, 0) };
        store
            .transaction(|txn| (0..4).try_for_each(|at| orders.insert(txn, &of(at, at as u64))))?;
        wait_for_archive(&store);
        let mut codes = [0, 1, 2, 3];
        for round in 0..10 {
            let (one, other) = (round % 4, (round * 3 + 1) % 4);
            codes.swap(one, other);
            store.transaction(|txn| {
                orders.put(txn, &of(one, 7))?;
                orders.put(txn, &of(other, codes[other]))?;
                orders.put(txn, &of(one, codes[one]))
            })?;
            commits.push((last_commit(&store)?, codes));
        }
    }
    for (commit, codes) in commits {
        let to = crate::fresh(&it.path(""), "restored");
        it.restore().until_commit(commit).run(&to)?;
        let store = Store::open(&to)?;
        let orders = OrderRepository::open(&store)?;
        let txn = store.read()?;
        for (tenant, code) in tenants.into_iter().zip(codes) {
            assert_eq!(orders.get_by_code(&txn, code)?.map(|order| order.tenant), Some(tenant));
        }
        assert!(orders.verify(&txn).run()?.is_clean());
    }
    Ok(())
}

fn an_archive_has_every_commit_of_several_threads(kind: Kind) -> TestResult {
    let it = Archived::new(kind)?;
    let (store, orders) = it.open()?;
    wait_for_archive(&store);
    let write = |thread: u32| -> Result<Vec<(CommitNumber, u32)>> {
        let mut then = Vec::new();
        for step in 0..100 {
            store.transaction(|txn| {
                // A thread has a tenant of its own in each shard. Every third transaction writes all shards.
                let shards = if step % 3 == 0 { 0..3 } else { thread % 3..thread % 3 + 1 };
                for shard in shards {
                    orders.put(txn, &order(shard * 10 + thread, 1, step))?;
                }
                Ok::<_, Error>(())
            })?;
            then.push((last_commit(&store)?, step));
        }
        Ok(then)
    };
    let write = &write;
    let all: Vec<Vec<(CommitNumber, u32)>> = thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|thread| scope.spawn(move || write(thread))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect::<Result<_>>()
    })?;
    let rows = rows_in(&store)?;
    assert_eq!(store.archive_lag().ok_or("no archive")?.error, None);
    drop((store, orders));
    assert!(it.restored_rows()? == rows);
    // A restore to a commit of a thread has this commit, and only whole transactions of the other threads.
    let mut random = Random(32);
    for _ in 0..9 {
        let thread = random.below(4);
        let (commit, step) = &all[thread as usize][random.below(100) as usize];
        let (last, found) = it.restored(it.restore().until_commit(commit.clone()))?;
        assert_eq!(last, *commit);
        let text = |tenant: u32| found.get(&(tenant, 1)).map(|order| order.code & 0xf_ffff);
        let own = thread % 3 * 10 + thread;
        assert!(text(own) >= Some(u64::from(*step)), "{commit}: {:?}", text(own));
        for thread in 0..4 {
            let steps: Vec<_> = (0..3).map(|shard| text(shard * 10 + thread)).collect();
            let own = steps[thread as usize % 3].map(|step| step / 3 * 3);
            for (shard, step) in steps.iter().enumerate() {
                let is_own = shard == thread as usize % 3;
                assert!(step.map(|step| step / 3 * 3) == own, "{steps:?}");
                assert!(is_own || *step == own, "{steps:?}");
            }
        }
    }
    Ok(())
}
