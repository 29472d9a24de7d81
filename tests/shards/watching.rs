//! Watchers: the changes of all shards, in the order of the commits of each shard.

use std::{collections::BTreeMap, thread};

use index_table::{ChangeKind, CommitNumber, Event, Result, Watcher};

use crate::{
    reference::{Town, TownRepository},
    tables::{
        self, Kind, Stores,
        by_value::{Order, OrderRepository},
        options, order,
    },
};

/// Returns stores with four shards of eight tenants each.
fn stores() -> Result<Stores> {
    tables::stores([options(Kind::Ranges, 4)])
}

/// Returns the kind, the shard and the primary key of the next change.
fn next(watcher: &Watcher<Order>) -> (ChangeKind, String, (u8, u16)) {
    let Some(Event::Change(change)) = watcher.recv() else { panic!("no change") };
    let row = change.after().or_else(|| change.before()).expect("a row");
    let shard = change.shard().expect("a shard").name().to_owned();
    (change.kind(), shard, row.key().expect("a key"))
}

#[test]
fn changes_name_their_shards() -> Result<()> {
    use ChangeKind::{Deleted, Inserted, Moved, Updated};

    for (_dir, store) in stores()? {
        let orders = OrderRepository::open(&store)?;
        let watcher = orders.watch(&store).start()?;
        let before = store.read()?.commit_number();
        store.transaction(|txn| {
            orders.insert(txn, &order(0, 1))?;
            orders.insert(txn, &order(31, 2))
        })?;
        let shard = orders.shard_of(&store, 9)?;
        store.transaction_on(&shard, |txn| orders.insert(txn, &order(9, 3)))?;
        store.transaction(|txn| {
            orders.update(txn, 9, 3, |order| order.size = 1)?;
            orders.update(txn, 0, 1, |order| order.tenant = 16)?;
            orders.delete(txn, 31, 2)
        })?;
        let expected = [
            (Inserted, "s0", (0, 1)),
            (Inserted, "s3", (31, 2)),
            (Inserted, "s1", (9, 3)),
            (Updated, "s1", (9, 3)),
            (Moved, "s2", (16, 1)),
            (Deleted, "s3", (31, 2)),
        ];
        for (kind, shard, key) in expected {
            assert_eq!(next(&watcher), (kind, shard.to_owned(), key));
        }
        assert!(watcher.try_recv().is_err());

        let rolled_back = store.transaction(|txn| {
            orders.insert(txn, &order(1, 1))?;
            Err::<(), _>(index_table::Error::WriteInProgress)
        });
        assert!(rolled_back.is_err());
        store.transaction(|txn| orders.insert(txn, &order(17, 1)))?;
        let Some(Event::Change(change)) = watcher.recv() else { panic!("no change") };
        let after = store.read()?.commit_number();
        assert!(change.commit_number() <= after);
        let is_in_snapshot = change.commit_number() <= before;
        assert!(!is_in_snapshot, "the snapshot lacks the change");
    }
    Ok(())
}

#[test]
fn a_scan_of_one_shard_is_watched() -> Result<()> {
    for (_dir, store) in stores()? {
        let orders = OrderRepository::open(&store)?;
        let watcher = orders
            .watch(&store)
            .only(orders.find_by_tenant_town(&store.read()?, 9, "Oslo"))
            .start()?;
        store.transaction(|txn| {
            (8..12).try_for_each(|tenant| orders.insert(txn, &order(tenant, 1)))
        })?;
        assert_eq!(next(&watcher), (ChangeKind::Inserted, "s1".to_owned(), (9, 1)));
        assert!(watcher.try_recv().is_err());
    }
    Ok(())
}

#[test]
fn a_bulk_load_is_watched() -> Result<()> {
    let store = options(Kind::Ranges, 4).in_memory()?;
    let orders = OrderRepository::open(&store)?;
    let watcher = orders.watch(&store).start()?;
    orders.bulk_load(&store, (0..32).map(|tenant| order(tenant, 1))).run()?;
    let mut shards = BTreeMap::<String, Vec<u8>>::new();
    for _ in 0..32 {
        let (_, shard, (tenant, _)) = next(&watcher);
        shards.entry(shard).or_default().push(tenant);
    }
    assert_eq!(shards.len(), 4);
    assert_eq!(shards["s1"], (8..16).collect::<Vec<_>>());
    Ok(())
}

#[test]
fn a_change_of_a_reference_table_is_one_event() -> Result<()> {
    let store = options(Kind::Ranges, 4).in_memory()?;
    let towns = TownRepository::open(&store)?;
    let watcher = towns.watch(&store).start()?;
    store.transaction(|txn| towns.insert(txn, &Town { code: 1, name: "Oslo".to_owned() }))?;
    let Some(Event::Change(change)) = watcher.recv() else { panic!("no change") };
    assert_eq!((change.kind(), change.shard()), (ChangeKind::Inserted, None));
    assert!(watcher.try_recv().is_err());
    Ok(())
}

#[test]
fn the_commits_of_each_shard_are_in_order() -> Result<()> {
    const WRITES: u16 = 200;

    for (_dir, store) in stores()? {
        let orders = OrderRepository::open(&store)?;
        let watcher = orders.watch(&store).buffer(10_000).start()?;
        thread::scope(|scope| {
            for tenant in [0, 8, 16] {
                let (store, orders) = (&store, &orders);
                scope.spawn(move || {
                    for number in 0..WRITES {
                        store
                            .transaction(|txn| {
                                orders.insert(txn, &order(tenant, number))?;
                                // Some commits change two shards.
                                match number % 8 {
                                    0 => orders
                                        .insert(txn, &order(24, u16::from(tenant) * 1000 + number)),
                                    _ => Ok(()),
                                }
                            })
                            .expect("committed");
                    }
                });
            }
        });
        let mut seen = BTreeMap::<String, (u16, CommitNumber)>::new();
        let mut count = 0;
        while let Ok(event) = watcher.try_recv() {
            let Event::Change(change) = event else { panic!("{event:?}") };
            let shard = change.shard().expect("a shard").name().to_owned();
            let (_, number) = change.after().expect("a row").key()?;
            let commit = change.commit_number();
            if let Some((last, last_commit)) = seen.get(&shard) {
                assert!(shard == "s3" || *last < number);
                // Each commit is later in this shard.
                let is_earlier = commit <= *last_commit;
                assert!(!is_earlier, "{shard}");
            }
            seen.insert(shard, (number, commit));
            count += 1;
        }
        assert_eq!(count, 3 * (WRITES + WRITES / 8));
    }
    Ok(())
}

#[test]
fn dropped_changes_have_the_last_commit_of_each_shard() -> Result<()> {
    let store = options(Kind::Ranges, 4).in_memory()?;
    let orders = OrderRepository::open(&store)?;
    let watcher = orders.watch(&store).buffer(1).start()?;
    for tenant in [0, 31, 8] {
        store.transaction(|txn| orders.insert(txn, &order(tenant, 1)))?;
    }
    let Some(Event::Lagged(lagged)) = watcher.recv() else { panic!("all changes fit") };
    assert!(lagged.missed >= 2);
    let now = store.read()?.commit_number();
    assert!(lagged.commit_number <= now);
    store.transaction(|txn| orders.insert(txn, &order(31, 2)))?;
    assert!(lagged.commit_number < store.read()?.commit_number());
    Ok(())
}
