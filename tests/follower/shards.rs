//! Followers of sharded stores.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
    thread,
    time::{Duration, Instant},
};

use index_table::{Durability, Error, Follower, IndexTable, Options, Result, ShardMap, Store};
use serde::{Deserialize, Serialize};

use crate::{Dirs, TestResult, dirs, wait};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "orders", shard_by = tenant)]
#[index(topic)]
pub(crate) struct Order {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    id: u32,
    topic: u8,
    text: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "towns", reference)]
struct Town {
    #[primary_key]
    name: String,
    step: u32,
}

pub(crate) type Rows = BTreeMap<(u32, u32), Order>;

/// Returns options of a store with three shards, whose journal makes a checkpoint every few commits.
pub(crate) fn options(archive: &Path) -> Options {
    let options = Store::options().durability(Durability::Journal).archive(archive);
    let map = ShardMap::ranges().to("a", ..10u32).to("b", 10u32..20).to("c", 20u32..);
    options
        .checkpoint(1 << 16, 1 << 14, Duration::from_hours(1))
        .shard("a", "a")
        .shard("b", "b")
        .shard("c", "c")
        .map("orders", map)
}

/// For each step, writes rows in all shards and deletes a row, in one transaction.
pub(crate) fn write(
    store: &Store,
    orders: &OrderRepository,
    rows: &mut Rows,
    steps: std::ops::Range<u32>,
) -> Result<()> {
    for step in steps {
        store.transaction(|txn| {
            for tenant in [step % 10, 10 + step % 10, 20 + step % 10] {
                let text = format!("{step}").repeat(1 + step as usize % 50);
                let order = Order { tenant, id: step % 7, topic: (step % 5) as u8, text };
                orders.put(txn, &order)?;
                rows.insert((tenant, order.id), order);
            }
            let gone = (step * 3 % 30, step % 7);
            if gone.0 % 10 != step % 10 {
                rows.remove(&gone);
                orders.delete(txn, gone.0, gone.1)?;
            }
            Ok::<_, Error>(())
        })?;
    }
    Ok(())
}

pub(crate) fn rows_of(
    store: &Store,
    orders: &OrderRepository,
) -> std::result::Result<Rows, Box<dyn std::error::Error>> {
    let txn = store.read()?;
    let report = orders.verify(&txn).run()?;
    assert!(report.is_clean(), "{report:?}");
    let rows = orders.all(&txn).rows().map(|row| row.map(|row| ((row.tenant, row.id), row)));
    Ok(rows.collect::<Result<_>>()?)
}

/// Writes a sharded store with an archive.
fn original(dirs: &Dirs, rows: &mut Rows, steps: std::ops::Range<u32>) -> TestResult {
    let store = options(&dirs.archive).open(&dirs.store)?;
    let orders = OrderRepository::open(&store)?;
    wait(|| store.archive_lag().is_some_and(|lag| lag.has_base));
    Ok(write(&store, &orders, rows, steps)?)
}

/// Waits until a follower has the last commit of its original.
pub(crate) fn wait_for(follower: &Follower, original: &Store) -> Result<()> {
    let last = original.read()?.commit_number();
    let begun = Instant::now();
    loop {
        let lag = follower.lag()?;
        assert_eq!(lag.error, None);
        let found = follower.store().read()?.commit_number();
        if found >= last {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "{found} {last} {lag:?}");
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(follower.lag()?.commits, 0);
    Ok(())
}

#[test]
fn a_follower_has_each_commit_of_all_shards() -> TestResult {
    let (dirs, mut rows) = (dirs()?, Rows::new());
    original(&dirs, &mut rows, 0..20)?;
    let store = options(&dirs.archive).open(&dirs.store)?;
    let orders = OrderRepository::open(&store)?;
    let follower = Follower::open(&dirs.standby, &dirs.archive)?;
    let copies = OrderRepository::open(follower.store())?;
    assert!(rows_of(follower.store(), &copies)? == rows);
    assert!(matches!(follower.store().write(), Err(Error::ReadOnly { .. })));
    for round in 1..5 {
        write(&store, &orders, &mut rows, round * 20..round * 20 + 20)?;
        wait_for(&follower, &store)?;
        assert!(rows_of(follower.store(), &copies)? == rows);
    }
    // The original creates a table after the follower was opened.
    let towns = TownRepository::open(&store)?;
    store.transaction(|txn| towns.put(txn, &Town { name: "Redmond".to_owned(), step: 1 }))?;
    wait_for(&follower, &store)?;
    let towns = TownRepository::open(follower.store())?;
    assert!(towns.get(&follower.store().read()?, "Redmond")?.is_some());
    Ok(())
}

#[test]
fn a_snapshot_of_a_follower_has_whole_transactions() -> TestResult {
    let (dirs, mut rows) = (dirs()?, Rows::new());
    original(&dirs, &mut rows, 0..20)?;
    let store = options(&dirs.archive).open(&dirs.store)?;
    let orders = OrderRepository::open(&store)?;
    let follower = Follower::open(&dirs.standby, &dirs.archive)?;
    let copies = OrderRepository::open(follower.store())?;
    let seen = AtomicUsize::new(0);
    thread::scope(|scope| -> TestResult {
        let writer = scope.spawn(|| {
            for step in 0.. {
                if step > 300 && seen.load(SeqCst) > 20 {
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
    wait_for(&follower, &store)?;
    Ok(())
}

#[test]
fn a_promoted_follower_has_a_journal_and_the_original_is_refused() -> TestResult {
    let (dirs, mut rows) = (dirs()?, Rows::new());
    original(&dirs, &mut rows, 0..20)?;
    let first = options(&dirs.archive).open(&dirs.store)?;
    let orders = OrderRepository::open(&first)?;
    let follower = Follower::open(&dirs.standby, &dirs.archive)?;
    let copies = OrderRepository::open(follower.store())?;
    let second = follower.promote()?;
    write(&second, &copies, &mut rows, 20..40)?;
    assert!(rows_of(&second, &copies)? == rows);
    let mut outcome = Ok(());
    wait(|| {
        outcome = write(&first, &orders, &mut Rows::new(), 30..31);
        outcome.is_err()
    });
    assert!(matches!(outcome, Err(Error::ReopenNeeded { .. })), "{outcome:?}");
    drop((first, orders));

    // These are the files after a crash: only the journal has the last commits.
    let crashed = dirs.standby.with_file_name("crashed");
    copy(&dirs.standby, &crashed)?;
    let store = Store::open(&crashed)?;
    assert!(rows_of(&store, &OrderRepository::open(&store)?)? == rows);
    drop((store, second, copies));

    // The promoted store continues the archive.
    let second = Store::options().archive(&dirs.archive).open(&dirs.standby)?;
    let orders = OrderRepository::open(&second)?;
    write(&second, &orders, &mut rows, 40..60)?;
    wait(|| second.archive_lag().is_some_and(|lag| lag.has_base && lag.commits == 0));
    drop((second, orders));
    let to = dirs.store.with_file_name("restored");
    Store::restore_archive(&dirs.archive).run(&to)?;
    let store = Store::open(&to)?;
    assert!(rows_of(&store, &OrderRepository::open(&store)?)? == rows);
    let outcome = Follower::open(&dirs.standby, &dirs.archive);
    assert!(matches!(outcome, Err(Error::Io { .. })), "{outcome:?}");
    Ok(())
}

/// Copies the files except LMDB's lock files.
fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        if entry.path().is_dir() {
            copy(&entry.path(), &to.join(entry.file_name()))?;
        } else if entry.file_name() != "lock.mdb" {
            std::fs::copy(entry.path(), to.join(entry.file_name()))?;
        }
    }
    Ok(())
}

#[test]
fn a_closed_follower_continues_and_a_crashed_follower_is_copied_again() -> TestResult {
    let (dirs, mut rows) = (dirs()?, Rows::new());
    original(&dirs, &mut rows, 0..20)?;
    drop(Follower::open(&dirs.standby, &dirs.archive)?);
    original(&dirs, &mut rows, 20..60)?;
    let created = std::fs::metadata(dirs.standby.join("shard.1/data.mdb"))?;
    let follower = Follower::open(&dirs.standby, &dirs.archive)?;
    let orders = OrderRepository::open(follower.store())?;
    assert!(rows_of(follower.store(), &orders)? == rows);
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt as _;
        let found = std::fs::metadata(dirs.standby.join("shard.1/data.mdb"))?;
        assert_eq!(found.ino(), created.ino());
    }
    let crashed = dirs.standby.with_file_name("crashed");
    copy(&dirs.standby, &crashed)?;
    drop((follower, orders));
    let store = Store::open(&crashed)?;
    assert_eq!(store.unavailable_shards().len(), 3);
    drop(store);
    let follower = Follower::open(&crashed, &dirs.archive)?;
    let orders = OrderRepository::open(follower.store())?;
    assert!(rows_of(follower.store(), &orders)? == rows);
    Ok(())
}

#[test]
fn moves_and_changed_shards_reach_a_follower() -> TestResult {
    let (dirs, mut rows) = (dirs()?, Rows::new());
    original(&dirs, &mut rows, 0..40)?;
    let store = options(&dirs.archive).open(&dirs.store)?;
    let orders = OrderRepository::open(&store)?;
    let follower = Follower::open(&dirs.standby, &dirs.archive)?;
    let copies = OrderRepository::open(follower.store())?;
    store.move_range("orders", 5u32..15, "c").run()?;
    write(&store, &orders, &mut rows, 40..60)?;
    wait_for(&follower, &store)?;
    assert!(rows_of(follower.store(), &copies)? == rows);
    assert_eq!(copies.shard_of(follower.store(), 7)?.name(), "c");
    store.move_range("orders", 15u32..20, "a").run()?;
    store.remove_shard("b")?;
    write(&store, &orders, &mut rows, 60..80)?;
    wait_for(&follower, &store)?;
    assert!(rows_of(follower.store(), &copies)? == rows);
    assert_eq!(follower.store().shard_ids().len(), 2);

    // An added shard is copied when the follower is opened again.
    store.add_shard("d", "d")?;
    store.move_range("orders", ..5u32, "d").run()?;
    write(&store, &orders, &mut rows, 80..90)?;
    wait(|| store.archive_lag().is_some_and(|lag| lag.has_base && lag.commits == 0));
    wait(|| follower.lag().is_ok_and(|lag| lag.error.is_some_and(|it| it.contains("added"))));
    drop((follower, copies));
    let follower = Follower::open(&dirs.standby, &dirs.archive)?;
    let copies = OrderRepository::open(follower.store())?;
    assert!(rows_of(follower.store(), &copies)? == rows);
    assert_eq!(copies.shard_of(follower.store(), 3)?.name(), "d");
    let promoted = follower.promote()?;
    write(&promoted, &copies, &mut rows, 90..95)?;
    promoted.move_range("orders", 20u32.., "d").run()?;
    assert!(rows_of(&promoted, &copies)? == rows);
    Ok(())
}

#[test]
fn a_repository_that_is_opened_during_a_move_has_all_rows() -> TestResult {
    let (dirs, mut rows) = (dirs()?, Rows::new());
    original(&dirs, &mut rows, 0..40)?;
    let store = options(&dirs.archive).open(&dirs.store)?;
    let _orders = OrderRepository::open(&store)?;
    let follower = Follower::open(&dirs.standby, &dirs.archive)?;
    thread::scope(|scope| -> TestResult {
        let mover = scope.spawn(|| {
            (0..60).try_for_each(|round| {
                let to = ["b", "c", "a"][round % 3];
                store.move_range("orders", ..30u32, to).run().map(drop)
            })
        });
        let mut opened = 0_u64;
        while !mover.is_finished() || follower.lag()?.commits > 0 {
            let copies = OrderRepository::open(follower.store())?;
            for _ in 0..2 {
                let txn = follower.store().read()?;
                let found = copies.all(&txn).keys().collect::<Result<Vec<_>>>()?;
                assert!(found.iter().eq(rows.keys()), "{} of {} rows", found.len(), rows.len());
            }
            opened += 1;
        }
        mover.join().expect("no panic")?;
        assert!(opened > 20);
        Ok(())
    })
}

#[test]
fn an_archive_without_a_base_can_be_followed_later() -> TestResult {
    let (dirs, mut rows) = (dirs()?, Rows::new());
    original(&dirs, &mut rows, 0..20)?;
    // The manifest of an archive is older than its first base.
    let begun = dirs.archive.with_file_name("begun");
    std::fs::create_dir(&begun)?;
    std::fs::copy(dirs.archive.join("manifest"), begun.join("manifest"))?;
    let outcome = Follower::open(&dirs.standby, &begun);
    assert!(matches!(outcome, Err(Error::NotInArchive { .. })), "{outcome:?}");
    let outcome = Follower::open(&dirs.standby, &begun);
    assert!(matches!(outcome, Err(Error::NotInArchive { .. })), "{outcome:?}");
    drop(Follower::open(&dirs.standby, &dirs.archive)?);
    Ok(())
}
