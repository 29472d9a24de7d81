//! Followers that apply the commits of their original.

use std::{
    fs,
    path::Path,
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
    thread,
    time::Duration,
};

use index_table::{Error, Follower, IndexTable, Result, Store};
use serde::{Deserialize, Serialize};

use crate::{
    Kind, Order, OrderRepository, Rows, TestResult, dirs, on_each_kind, rows_of, wait, wait_for,
    wait_for_archive, write,
};

on_each_kind! {
    a_follower_has_each_commit_of_the_original,
    a_snapshot_of_a_follower_has_whole_transactions,
    a_closed_follower_continues_and_a_crashed_follower_is_copied_again,
    a_follower_detects_a_gap_and_is_copied_again,
    a_follower_of_an_archive_is_not_replaced_by_another,
    rows_of_the_original_exchange_unique_keys,
    threads_that_open_a_new_follower_at_the_same_time_leave_one_copy,
    an_archive_without_a_base_can_be_followed_later,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "towns", reference)]
struct Town {
    #[primary_key]
    name: String,
}

fn a_follower_has_each_commit_of_the_original(kind: Kind) -> TestResult {
    let (dirs, mut rows) = (dirs(kind)?, Rows::new());
    dirs.write(&mut rows, 0..20)?;
    let (store, orders) = dirs.open()?;
    let (follower, copies) = dirs.follow()?;
    assert!(rows_of(follower.store(), &copies)? == rows);
    for round in 1..5 {
        // A snapshot does not change.
        let before = follower.store().read()?;
        let count = copies.all(&before).count()?;
        write(&store, &orders, &mut rows, round * 20..round * 20 + 20)?;
        wait_for(&follower, &store)?;
        assert!(rows_of(follower.store(), &copies)? == rows);
        assert_eq!(copies.all(&before).rows().count() as u64, count);
    }
    // The original creates a table after the follower was opened.
    let towns = TownRepository::open(&store)?;
    store.transaction(|txn| towns.insert(txn, &Town { name: "Redmond".to_owned() }))?;
    wait_for(&follower, &store)?;
    let towns = TownRepository::open(follower.store())?;
    assert!(towns.get(&follower.store().read()?, "Redmond")?.is_some());
    let lag = follower.lag()?;
    assert_eq!((lag.commits, lag.bytes, lag.time, lag.error), (0, 0, Duration::ZERO, None));
    Ok(())
}

fn a_snapshot_of_a_follower_has_whole_transactions(kind: Kind) -> TestResult {
    let (dirs, mut rows) = (dirs(kind)?, Rows::new());
    dirs.write(&mut rows, 0..20)?;
    let (store, orders) = dirs.open()?;
    let (follower, copies) = dirs.follow()?;
    let seen = AtomicUsize::new(0);
    thread::scope(|scope| -> TestResult {
        let writer = scope.spawn(|| {
            for step in 0.. {
                if step > 150 && seen.load(SeqCst) > 20 {
                    break;
                }
                store.transaction(|txn| {
                    (0..3).try_for_each(|shard| {
                        let text = step.to_string();
                        let order = Order { tenant: shard * 10 + 9, id: 99, topic: 0, text };
                        orders.put(txn, &order).map(drop)
                    })
                })?;
            }
            Ok::<_, Error>(())
        });
        while !writer.is_finished() {
            let txn = follower.store().read()?;
            let steps = (0..3).map(|shard| {
                Ok::<_, Error>(copies.get(&txn, shard * 10 + 9, 99)?.map(|order| order.text))
            });
            let steps: Vec<_> = steps.collect::<Result<_>>()?;
            assert!(steps.iter().all(|step| *step == steps[0]), "{steps:?}");
            seen.fetch_add(usize::from(steps[0].is_some()), SeqCst);
        }
        writer.join().expect("no panic")?;
        Ok(())
    })?;
    Ok(wait_for(&follower, &store)?)
}

/// Copies the files except LMDB's lock files: the files that a crash would leave.
pub(crate) fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        if entry.path().is_dir() {
            copy(&entry.path(), &to.join(entry.file_name()))?;
        } else if entry.file_name() != "lock.mdb" {
            fs::copy(entry.path(), to.join(entry.file_name()))?;
        }
    }
    Ok(())
}

fn a_closed_follower_continues_and_a_crashed_follower_is_copied_again(kind: Kind) -> TestResult {
    let (mut dirs, mut rows) = (dirs(kind)?, Rows::new());
    dirs.write(&mut rows, 0..20)?;
    drop(dirs.follow()?);
    dirs.write(&mut rows, 20..60)?;
    let data = dirs.standby.join(kind.of("data.mdb", "shard.1/data.mdb"));
    let created = fs::metadata(&data)?;
    let (follower, copies) = dirs.follow()?;
    assert!(rows_of(follower.store(), &copies)? == rows);
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt as _;
        assert_eq!(fs::metadata(&data)?.ino(), created.ino());
    }

    let crashed = dirs.path("crashed");
    copy(&dirs.standby, &crashed)?;
    drop((follower, copies));
    match Store::open(&crashed) {
        Err(Error::DamagedFile { .. }) if kind == Kind::OneFile => {}
        Ok(store) if kind == Kind::Several => assert_eq!(store.unavailable_shards().len(), 3),
        outcome => panic!("{outcome:?}"),
    }
    let outcome = Store::options().read_only(true).open(&crashed);
    match outcome {
        Err(Error::RecoveryNeeded { .. }) => {}
        Ok(store) if kind == Kind::Several => assert_eq!(store.unavailable_shards().len(), 3),
        outcome => panic!("{outcome:?}"),
    }
    dirs.standby = crashed;
    let (follower, copies) = dirs.follow()?;
    assert!(rows_of(follower.store(), &copies)? == rows);
    Ok(())
}

fn a_follower_detects_a_gap_and_is_copied_again(kind: Kind) -> TestResult {
    let (dirs, mut rows) = (dirs(kind)?, Rows::new());
    dirs.write(&mut rows, 0..20)?;
    let (follower, copies) = dirs.follow()?;
    drop(copies);
    dirs.write_without_archive(&mut rows, 20..30)?;
    // The follower detects the gap before the first segment after it is complete.
    let (store, orders) = dirs.open()?;
    write(&store, &orders, &mut rows, 30..40)?;
    wait(|| follower.lag().is_ok_and(|lag| lag.error.is_some_and(|error| error.contains("gap"))));
    wait(|| store.archive_lag().is_some_and(|lag| lag.has_base));
    let lag = follower.lag()?;
    assert!(lag.commits >= 10 && lag.bytes > 0 && lag.time > Duration::ZERO, "{lag:?}");
    let promoted = follower.promote();
    assert!(matches!(promoted, Err(Error::NotInArchive { .. })), "{promoted:?}");
    assert!(!dirs.archive.join("promoted").exists());
    write(&store, &orders, &mut rows, 40..41)?;
    wait_for_archive(&store);
    drop((store, orders));
    let (follower, copies) = dirs.follow()?;
    assert!(rows_of(follower.store(), &copies)? == rows);
    Ok(())
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "badges", shard_by = tenant, shard_map = "orders")]
#[index(code, unique, scope = "global")]
#[index(text, strategy = "full", name = "whole")]
struct Badge {
    #[primary_key]
    tenant: u32,
    code: u32,
    text: String,
}
/// The archive was removed, and begun again by a store with fewer commits.
fn a_follower_of_an_archive_is_not_replaced_by_another(kind: Kind) -> TestResult {
    let (dirs, mut rows) = (dirs(kind)?, Rows::new());
    dirs.write(&mut rows, 0..10)?;
    drop(dirs.follow()?);
    fs::rename(&dirs.archive, dirs.path("moved"))?;
    fs::rename(&dirs.store, dirs.path("lost"))?;
    dirs.write(&mut Rows::new(), 0..2)?;
    let outcome = Follower::open(&dirs.standby, &dirs.archive).map(drop);
    let is_refused = matches!(&outcome, Err(Error::Io { source, .. })
        if source.to_string().contains("the follower of another archive"));
    assert!(is_refused, "{outcome:?}");
    // Its own archive makes it a store, also under another path.
    let store = Follower::open(&dirs.standby, dirs.path("moved"))?.promote()?;
    dirs.has(&store, &rows)
}

/// A follower applies the records of each commit in the order of the original.
fn rows_of_the_original_exchange_unique_keys(kind: Kind) -> TestResult {
    let dirs = dirs(kind)?;
    let (store, _orders) = dirs.open()?;
    let badges = BadgeRepository::open(&store)?;
    let tenants = [1, 11, 21, 2];
    let badge = |at: usize, code| {
        let text = format!("badge {code}").repeat(20);
        Badge { tenant: tenants[at], code, text }
    };
    store.transaction(|txn| (0..4).try_for_each(|at| badges.insert(txn, &badge(at, at as u32))))?;
    // The archive has the commit after which the global index is readable.
    wait_for_archive(&store);
    let follower = Follower::open(&dirs.standby, &dirs.archive)?;
    let copies = BadgeRepository::open(follower.store())?;
    let mut codes = [0, 1, 2, 3];
    for round in 0..8 {
        let (one, other) = (round % 4, (round * 3 + 1) % 4);
        codes.swap(one, other);
        store.transaction(|txn| {
            badges.put(txn, &badge(one, 100))?;
            badges.put(txn, &badge(other, codes[other]))?;
            badges.put(txn, &badge(one, codes[one]))
        })?;
        wait_for(&follower, &store)?;
        let txn = follower.store().read()?;
        for (at, code) in codes.into_iter().enumerate() {
            assert_eq!(copies.get_by_code(&txn, code)?, Some(badge(at, code)));
        }
        assert!(copies.verify(&txn).run()?.is_clean());
    }
    Ok(())
}

fn threads_that_open_a_new_follower_at_the_same_time_leave_one_copy(kind: Kind) -> TestResult {
    let (dirs, mut rows) = (dirs(kind)?, Rows::new());
    dirs.write(&mut rows, 0..20)?;
    for round in 0..kind.of(10, 4) {
        let standby = dirs.path(&format!("standby.{round}"));
        let open = || Follower::open(&standby, &dirs.archive);
        let opened: Vec<_> = thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(open)).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        for outcome in &opened {
            assert!(matches!(outcome, Ok(_) | Err(Error::AlreadyOpen { .. })), "{outcome:?}");
        }
        assert!(opened.iter().filter(|outcome| outcome.is_ok()).count() <= 1);
        drop(opened);
        let follower = open()?;
        assert!(rows_of(follower.store(), &OrderRepository::open(follower.store())?)? == rows);
    }
    Ok(())
}

fn an_archive_without_a_base_can_be_followed_later(kind: Kind) -> TestResult {
    let (dirs, mut rows) = (dirs(kind)?, Rows::new());
    dirs.write(&mut rows, 0..20)?;
    // The manifest of an archive is older than its first base.
    let begun = dirs.path("begun");
    fs::create_dir(&begun)?;
    fs::copy(dirs.archive.join("manifest"), begun.join("manifest"))?;
    for _ in 0..2 {
        let outcome = Follower::open(&dirs.standby, &begun);
        assert!(matches!(outcome, Err(Error::NotInArchive { .. })), "{outcome:?}");
    }
    let (follower, copies) = dirs.follow()?;
    assert!(rows_of(follower.store(), &copies)? == rows);
    Ok(())
}
