//! `upgrade`, which rewrites all rows in the current version.

use std::{
    cell::RefCell,
    sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
};

use index_table::{Durability, Error, Store};

use crate::{
    Customer, CustomerRepository, TestResult, customer, expected, fill, is_clean, on_both_engines,
    on_local_engines,
};

#[test]
fn all_rows_get_the_current_version() -> TestResult {
    // A server offers no watcher.
    on_local_engines(|store| {
        let customers = fill(store, 100)?;
        let reports = RefCell::new(Vec::new());
        let upgrade = customers.upgrade(store).batch_bytes(1000);
        let watcher = customers.watch(store).start()?;
        let done = upgrade.progress(|at| reports.borrow_mut().push(at)).run()?;
        assert!(watcher.try_recv().is_err(), "an upgrade sent an event");
        assert_eq!((done.rows, done.upgraded), (100, 67));
        let reports = reports.into_inner();
        assert!(reports.len() > 5, "too few progress reports: {}", reports.len());
        assert!(
            reports.is_sorted_by_key(|at| at.done)
                && reports.iter().all(|at| at.total == Some(100))
        );
        let last = reports.last().ok_or("none")?;
        assert_eq!((last.done, last.left), (100, Some(std::time::Duration::ZERO)));
        let txn = store.read()?;
        assert_eq!(customers.all(&txn).rows().collect::<Result<Vec<_>, _>>()?, expected(100));
        drop(txn);
        is_clean(&customers, store)?;
        // A second upgrade writes no rows.
        let again = customers.upgrade(store).run()?;
        assert_eq!((again.rows, again.upgraded), (100, 0));
        Ok(())
    })
}

#[test]
fn an_empty_table_is_upgraded() -> TestResult {
    on_both_engines(|store| {
        let customers = fill(store, 0)?;
        let done = customers.upgrade(store).batch_bytes(0).run()?;
        assert_eq!((done.rows, done.upgraded), (0, 0));
        Ok(())
    })
}

/// Rows in the current version don't count towards the size of a batch.
#[test]
fn upgraded_rows_are_skipped() -> TestResult {
    on_both_engines(|store| {
        let customers = fill(store, 60)?;
        store.transaction(|txn| (0..59).try_for_each(|id| customers.put(txn, &customer(id, 3))))?;
        let mut batches = 0;
        let upgrade = customers.upgrade(store).batch_bytes(100).progress(|_| batches += 1);
        let done = upgrade.run()?;
        assert_eq!((done.rows, done.upgraded), (60, 0));
        assert!(batches > 5, "{batches}");
        Ok(())
    })
}

/// Otherwise the upgrade would not end while another thread adds rows as fast as it reads them.
#[test]
fn rows_added_after_the_last_row_are_not_read() -> TestResult {
    on_both_engines(|store| {
        let customers = fill(store, 60)?;
        let (mut batches, mut next) = (0, 1000);
        let upgrade = customers.upgrade(store).batch_bytes(100).progress(|_| {
            batches += 1;
            next += 100;
            let mut added = next..next + 100;
            if batches < 500 {
                let add = store.transaction(|txn| {
                    added.try_for_each(|id| customers.insert(txn, &customer(id, 3)))
                });
                add.expect("rows are inserted");
            }
        });
        let done = upgrade.run()?;
        assert_eq!((done.rows, done.upgraded), (60, 40));
        assert!(batches < 100, "{batches}");
        is_clean(&customers, store)?;
        assert_eq!(customers.upgrade(store).run()?.upgraded, 0);
        Ok(())
    })
}

#[test]
fn other_threads_write_between_two_batches() -> TestResult {
    let dir = tempfile::tempdir()?;
    let store = Store::options().durability(Durability::None).map_size(1 << 26).open(dir.path())?;
    let customers = fill(&store, 600)?;
    let (is_over, written) = (AtomicBool::new(false), AtomicU32::new(0));
    std::thread::scope(|scope| -> TestResult {
        let writer = scope.spawn(|| -> index_table::Result<()> {
            while !is_over.load(Relaxed) {
                let at = written.fetch_add(1, Relaxed);
                store.transaction(|txn| {
                    customers.put(txn, &customer(10_000 + at, 3))?;
                    customers.update(txn, (at * 7) % 600, |row| row.age += 1).map(drop)
                })?;
            }
            Ok(())
        });
        let done = customers.upgrade(&store).batch_bytes(500).run();
        is_over.store(true, Relaxed);
        writer.join().map_err(|_| "the writer panicked")??;
        let done = done?;
        assert!(done.rows >= 600 && done.upgraded <= 400, "{done:?}");
        Ok(())
    })?;
    assert!(written.load(Relaxed) > 20, "{written:?}");
    is_clean(&customers, &store)?;
    assert_eq!(customers.upgrade(&store).run()?.upgraded, 0);
    Ok(())
}

#[test]
fn an_upgrade_enlarges_the_map() -> TestResult {
    let dir = tempfile::tempdir()?;
    let size = 1 << 21;
    let store = Store::options().map_size(size).reserve(0).open(dir.path())?;
    let customers = fill(&store, 1200)?;
    let length = || std::fs::metadata(dir.path().join("data.mdb")).map(|file| file.len());
    assert!(length()? < size as u64, "the rows alone are too large: {}", length()?);
    // In one transaction, the pages of the older rows can't be reused.
    assert_eq!(customers.upgrade(&store).batch_bytes(1 << 30).run()?.upgraded, 800);
    assert!(length()? > size as u64, "the map has not grown: {}", length()?);
    is_clean(&customers, &store)
}

#[test]
fn misuse_is_an_error() -> TestResult {
    on_both_engines(|store| {
        let customers = fill(store, 9)?;
        let txn = store.write()?;
        assert!(matches!(customers.upgrade(store).run(), Err(Error::WriteInProgress)));
        drop(txn);
        let other = Store::in_memory();
        let result = customers.upgrade(&other).run();
        assert!(matches!(result, Err(Error::WrongStore { table: "customers" })), "{result:?}");
        Ok(())
    })
}

/// A row that can't be read ends the upgrade. Earlier batches stay committed.
#[test]
fn a_damaged_row_is_named_and_left() -> TestResult {
    let dir = tempfile::tempdir()?;
    drop(fill(&crate::store(dir.path())?, 90)?);
    crate::golden::raw(dir.path(), "customers", |database, txn| {
        let mut row = database.get(txn, &[0, 0, 0, 60])?.unwrap_or_default().to_vec();
        row.truncate(20);
        database.put(txn, &[0, 0, 0, 60], &row)
    })?;
    let store = crate::store(dir.path())?;
    let customers = CustomerRepository::open(&store)?;
    for _ in 0..2 {
        let failed = customers.upgrade(&store).batch_bytes(1).run();
        let Err(Error::Corrupt { table: "customers", index: None, key, .. }) = failed else {
            return Err(format!("{failed:?}").into());
        };
        assert_eq!(key, "60");
    }
    store.transaction(|txn| customers.repair(txn).delete_unreadable_rows().run().map(drop))?;
    // 20 + 19 rows before the damaged row are upgraded.
    assert_eq!(customers.upgrade(&store).run()?.upgraded, 19);
    let mut rows = expected(90);
    rows.remove(60);
    assert_eq!(customers.all(&store.read()?).rows().collect::<Result<Vec<Customer>, _>>()?, rows);
    is_clean(&customers, &store)
}

/// A conversion that exchanges the unique keys of two rows.
mod exchanged {
    use index_table::IndexTable;
    use serde::{Deserialize, Serialize};

    #[derive(Serialize, Deserialize, IndexTable)]
    #[table(name = "seats", repository = Seats1)]
    #[index(place, unique)]
    pub(super) struct Seat1 {
        #[primary_key]
        pub(super) id: u32,
        pub(super) place: u32,
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize, IndexTable)]
    #[table(name = "seats", version = 2, previous = Seat1, changed = [place])]
    #[index(place, unique)]
    pub(super) struct Seat {
        #[primary_key]
        pub(super) id: u32,
        pub(super) place: u32,
        pub(super) row: u32,
    }

    impl From<Seat1> for Seat {
        fn from(Seat1 { id, place }: Seat1) -> Self {
            Self { id, place: 3 - place, row: 0 }
        }
    }
}

#[test]
fn a_conversion_and_an_upgrade_exchange_unique_keys() -> TestResult {
    use exchanged::{Seat, Seat1, SeatRepository, Seats1};
    on_both_engines(|store| {
        let seats = Seats1::open(store)?;
        store.transaction(|txn| {
            (1..3).try_for_each(|id| seats.insert(txn, &Seat1 { id, place: id }))
        })?;
        drop(seats);
        let seats = SeatRepository::open(store)?;
        let check = |places: [u32; 2]| -> Result<(), Error> {
            let txn = store.read()?;
            for (id, place) in (1..).zip(places) {
                let seat = Seat { id, place, row: 0 };
                assert_eq!(seats.get_by_place(&txn, place)?, Some(seat));
            }
            assert_eq!(seats.by_place(&txn).count()?, 2);
            assert!(seats.verify(&txn).run()?.is_clean());
            Ok(())
        };
        check([2, 1])?;
        // Rows of the older version exchange their keys again.
        store.transaction(|txn| {
            seats.update(txn, 1, |seat| seat.place = 7)?;
            seats.update(txn, 2, |seat| seat.place = 2)?;
            seats.update(txn, 1, |seat| seat.place = 1)
        })?;
        check([1, 2])?;
        seats.upgrade(store).batch_bytes(0).run()?;
        check([1, 2])?;
        Ok(())
    })
}
