//! Readers, writers, group writers, watchers and consumers beside the growth of their store.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    thread,
    time::Duration,
};

use index_table::{IndexTable, Result, Store};
use serde::{Deserialize, Serialize};

use crate::basic::{All, Order, customer};

/// Rows with numbers, changes, an eventual index and totals.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "payments", shard_by = tenant, changes)]
#[index(kind, consistency = "eventual")]
#[aggregate(tenant, sum = [cents])]
struct Payment {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    id: u64,
    kind: String,
    cents: i64,
}

/// A payment's receipt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "receipts", shard_by = tenant, shard_map = "payments")]
#[index(tenant, payment)]
#[references(Payment, fields = [tenant, payment], on_delete = "cascade")]
struct Receipt {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    id: u64,
    payment: u64,
}

fn payment(tenant: u32, id: u64) -> Payment {
    Payment { tenant, id, kind: format!("kind {}", id % 3), cents: id.cast_signed() }
}

#[test]
fn transactions_beside_the_growth_see_all_rows() -> Result<()> {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path())?;
    let all = All::open(&store)?;
    all.fill(&store)?;
    let writer = store.writer()?;
    let (is_over, written) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| -> Result<()> {
        let read = || -> Result<()> {
            while !is_over.load(SeqCst) {
                let txn = store.read()?;
                assert_eq!(all.customers.all(&txn).count()?, 300);
                for tenant in [0, 70] {
                    let own = customer(tenant, 1);
                    assert_eq!(all.customers.get_by_email(&txn, &own.email)?, Some(own));
                }
                let early = written.load(SeqCst);
                drop(txn);
                let txn = store.read()?;
                assert!(all.orders.find_by_tenant(&txn, 1000).count()? as u64 >= early);
            }
            Ok(())
        };
        let write = || -> Result<()> {
            for number in 1.. {
                if is_over.load(SeqCst) {
                    break;
                }
                let order = Order { tenant: 1000, number, total: 1 };
                if number % 2 == 0 {
                    let orders = all.orders.clone();
                    writer.submit(move |txn| orders.insert(txn, &order)).wait()?;
                } else {
                    store.transaction(|txn| all.orders.insert(txn, &order))?;
                }
                written.store(number, SeqCst);
            }
            Ok(())
        };
        let submit = || -> Result<()> {
            for number in 1.. {
                if is_over.load(SeqCst) {
                    break;
                }
                let (orders, order) =
                    (all.orders.clone(), Order { tenant: 60, number: number + 1, total: 1 });
                all.orders.submit_for(&writer, 60, move |txn| orders.put(txn, &order)).wait()?;
            }
            Ok(())
        };
        let threads = [scope.spawn(read), scope.spawn(write), scope.spawn(submit)];
        thread::sleep(Duration::from_millis(50));
        let grown = store.add_shard("east", "east").and_then(|_| {
            thread::sleep(Duration::from_millis(50));
            store.move_range("customers", 50u32..2000, "east").run()?;
            store.move_slots("customers.email", ..2048, "east").run()
        });
        thread::sleep(Duration::from_millis(50));
        is_over.store(true, SeqCst);
        for thread in threads {
            thread.join().unwrap()?;
        }
        grown.map(drop)
    })?;
    let txn = store.read()?;
    assert_eq!(all.orders.find_by_tenant(&txn, 1000).count()? as u64, written.load(SeqCst));
    assert!(store.verify()?.is_clean());
    Ok(())
}

#[test]
fn numbers_changes_totals_queues_and_references_continue() -> Result<()> {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path())?;
    let (payments, receipts) = (PaymentRepository::open(&store)?, ReceiptRepository::open(&store)?);
    let write = |ids: std::ops::Range<u64>| {
        store.transaction(|txn| {
            for id in ids.clone() {
                for tenant in [1, 2] {
                    payments.insert(txn, &payment(tenant, id))?;
                    receipts.insert(txn, &Receipt { tenant, id, payment: id })?;
                }
            }
            Ok(())
        })
    };
    let mut mail = payments.changes(&store, "mail")?;
    write(0..10)?;
    store.add_shard("east", "east")?;
    write(10..20)?;
    store.move_range("payments", 2u32.., "east").run()?;
    write(20..30)?;
    let (mut seen, mut last) = (Vec::new(), 0);
    loop {
        let batch = mail.next_batch(7)?;
        if batch.is_empty() {
            break;
        }
        for change in &batch {
            assert!(change.number > last, "{} after {last}", change.number);
            last = change.number;
            seen.push(change.row.id);
        }
        batch.commit(&store)?;
    }
    seen.sort_unstable();
    assert_eq!(seen, (0..30).flat_map(|id| [id, id]).collect::<Vec<_>>());
    while payments.drain(&store, 100)?.applied > 0 {}
    let txn = store.read()?;
    assert_eq!(payments.find_by_kind(&txn, "kind 1").stale().rows().count(), 20);
    drop(txn);
    store.transaction(|txn| payments.delete(txn, 2, 5).map(drop))?;
    store.transaction(|txn| payments.delete(txn, 1, 5).map(drop))?;
    let txn = store.read()?;
    assert_eq!(receipts.all(&txn).count()?, 58);
    assert!(store.verify()?.is_clean());
    Ok(())
}

/// Work that begins with one data file, and ends with two.
#[test]
fn long_work_beside_the_growth_is_completed() -> Result<()> {
    for round in 0..6 {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path().join("shop"))?;
        let all = All::open(&store)?;
        all.fill(&store)?;
        let (is_over, pause) = (AtomicBool::new(false), Duration::from_millis(3 * round));
        thread::scope(|scope| -> Result<()> {
            let load = || -> Result<()> {
                let rows =
                    (1000..1020).flat_map(|tenant| (0..300).map(move |id| customer(tenant, id)));
                all.customers.bulk_load(&store, rows).memory(20_000).run().map(drop)
            };
            let open = || -> Result<()> {
                while !is_over.load(SeqCst) {
                    drop(PaymentRepository::open(&store)?);
                }
                Ok(())
            };
            let back_up = || -> Result<()> {
                for number in 0.. {
                    if is_over.load(SeqCst) {
                        break;
                    }
                    let path = dir.path().join(format!("copy.{number}"));
                    store.backup_to(&path)?;
                    let copy = Store::open(&path)?;
                    assert_eq!(All::open(&copy)?.orders.all(&copy.read()?).count()?, 100);
                    assert!(copy.verify()?.is_clean());
                }
                Ok(())
            };
            let verify = || -> Result<()> {
                while !is_over.load(SeqCst) {
                    assert!(store.verify()?.is_clean());
                }
                Ok(())
            };
            let threads =
                [scope.spawn(load), scope.spawn(open), scope.spawn(back_up), scope.spawn(verify)];
            thread::sleep(pause);
            let grown = store.add_shard("east", "east").and_then(|_| {
                // It may not have been open while the store has grown.
                drop(PaymentRepository::open(&store)?);
                store.move_range("customers", 50u32..1010, "east").run()
            });
            thread::sleep(Duration::from_millis(20));
            is_over.store(true, SeqCst);
            for thread in threads {
                thread.join().unwrap()?;
            }
            grown.map(drop)
        })?;
        assert_eq!(all.customers.all(&store.read()?).count()?, 300 + 20 * 300);
        assert!(store.verify()?.is_clean());
        drop((all, store));
        let store = Store::open(dir.path().join("shop"))?;
        let all = All::open(&store)?;
        assert_eq!(all.customers.all(&store.read()?).count()?, 300 + 20 * 300);
        assert!(store.verify()?.is_clean());
    }
    Ok(())
}

/// The first operation of each transaction locks the shard, and can wait for it while a move takes the tracked changes.
#[test]
fn commits_beside_moves_are_in_the_shard_of_their_key() -> Result<()> {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path())?;
    let all = All::open(&store)?;
    store.add_shard("east", "east")?;
    let (is_over, writers) = (AtomicBool::new(false), 3);
    let write = |writer: u64| -> Result<u64> {
        let mut count = 0;
        while !is_over.load(SeqCst) {
            let number = count * writers + writer;
            let order = Order { tenant: 1000, number, total: 1 };
            store.transaction(|txn| all.orders.insert(txn, &order))?;
            count += 1;
        }
        Ok(count)
    };
    let write = &write;
    let counts = thread::scope(|scope| {
        let threads = (0..writers).map(|writer| scope.spawn(move || write(writer)));
        let threads: Vec<_> = threads.collect();
        let moved = (0..20).try_for_each(|round| {
            let to = ["east", "main"][round % 2];
            store.move_range("customers", 1000u32..1001, to).run().map(drop)
        });
        is_over.store(true, SeqCst);
        let counts = threads.into_iter().map(|thread| thread.join().unwrap());
        let counts = counts.collect::<Result<Vec<_>>>();
        moved.and(counts)
    })?;
    let txn = store.read()?;
    for (writer, count) in (0..).zip(counts) {
        for number in (0..count).map(|at| at * writers + writer) {
            let order = all.orders.get(&txn, 1000, number)?;
            assert!(order.is_some(), "order {number} is lost");
        }
    }
    Ok(())
}
