//! An index whose declaration has changed between unique and not unique: its SQL table has other columns.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use index_table::{Error, IndexState};

use super::{TestResult, postgres::Schema};

mod plain {
    use index_table::IndexTable;
    use serde::{Deserialize, Serialize};

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
    #[table(name = "places")]
    #[index(code)]
    pub(super) struct Place {
        #[primary_key]
        pub(super) id: u64,
        pub(super) code: u64,
    }
}

mod unique {
    use index_table::IndexTable;
    use serde::{Deserialize, Serialize};

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
    #[table(name = "places")]
    #[index(code, unique)]
    pub(super) struct Place {
        #[primary_key]
        pub(super) id: u64,
        pub(super) code: u64,
    }
}

#[test]
fn an_index_becomes_unique_and_is_unique_no_longer() -> TestResult {
    let Some(schema) = Schema::new() else { return Ok(()) };
    // A few rows are indexed at once, and more are indexed by a build.
    for rows in [1_u64, 3_000] {
        let store = schema.open()?;
        let places = plain::PlaceRepository::open(&store)?;
        store.transaction(|txn| {
            (0..rows).try_for_each(|id| places.put(txn, &plain::Place { id, code: id }))
        })?;
        // It has a snapshot, but has not read the index yet.
        let older = store.read()?;
        assert!(places.get(&older, 0)?.is_some());
        let other = schema.open()?;
        let unique = unique::PlaceRepository::open(&other)?;
        unique.build(&other).refuse_earlier_releases().run()?;
        assert_eq!(places.find_by_code_range(&older, ..).count()?, rows);
        drop(older);
        let places = unique;
        let txn = other.read()?;
        let last = unique::Place { id: rows - 1, code: rows - 1 };
        assert_eq!(places.get_by_code(&txn, rows - 1)?, Some(last));
        assert!(places.verify(&txn).run()?.is_clean());
        drop(txn);
        let taken = unique::Place { id: rows, code: 0 };
        let refused = other.transaction(|txn| places.insert(txn, &taken));
        assert!(matches!(refused, Err(Error::UniqueViolation { .. })), "{refused:?}");

        let older = other.read()?;
        assert!(places.get(&older, 0)?.is_some());
        let store = schema.open()?;
        let plain = plain::PlaceRepository::open(&store)?;
        plain.build(&store).refuse_earlier_releases().run()?;
        assert!(places.get_by_code(&older, 0)?.is_some());
        drop(older);
        let places = plain;
        store.transaction(|txn| places.put(txn, &plain::Place { id: rows, code: 0 }))?;
        let txn = store.read()?;
        assert_eq!(places.find_by_code(&txn, 0).count()?, 2);
        assert!(places.verify(&txn).run()?.is_clean());
    }
    // Two rows have the code 0 now.
    let other = schema.open()?;
    let places = unique::PlaceRepository::open_online(&other)?;
    let report = places.build(&other).run()?;
    let state = &report.indexes[0].state;
    assert!(matches!(state, IndexState::Violated(_)), "{state:?}");
    Ok(())
}

/// Each client is refused in the words of this library, or succeeds.
#[test]
fn an_index_changes_beside_readers_and_writers() -> TestResult {
    let Some(schema) = Schema::new() else { return Ok(()) };
    let store = schema.open()?;
    let places = plain::PlaceRepository::open(&store)?;
    store.transaction(|txn| {
        (0..200).try_for_each(|id| places.put(txn, &plain::Place { id, code: id }))
    })?;
    let (is_over, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let goes_on = || !is_over.load(Ordering::Relaxed);
    let check = |result: index_table::Result<()>| match result {
        Ok(()) => {
            done.fetch_add(1, Ordering::Relaxed);
        }
        Err(
            Error::SchemaMismatch { .. }
            | Error::IndexNotReadable { .. }
            | Error::SnapshotTooOld { .. }
            | Error::UniqueViolation { .. },
        ) => {}
        Err(error) => panic!("{error:?}"),
    };
    let place = |id| plain::Place { id, code: id };
    thread::scope(|scope| {
        let (store, places, check, goes_on) = (&store, &places, &check, &goes_on);
        for first in [0_u64, 100] {
            scope.spawn(move || {
                for round in (0_u64..).take_while(|_| goes_on()) {
                    let id = first + round % 100;
                    check(store.transaction(|txn| {
                        let code = 1_000 + id + round % 2;
                        places.update(txn, id, |place| place.code = code).map(drop)
                    }));
                    check(store.transaction(|txn| places.put(txn, &place(id)).map(drop)));
                    check(store.autocommit().and_then(|mut txn| places.put(&mut txn, &place(id))));
                    check(store.transaction(|txn| places.delete(txn, id).map(drop)));
                    let inserted =
                        store.autocommit().and_then(|mut txn| places.insert(&mut txn, &place(id)));
                    match inserted {
                        Err(Error::DuplicateKey { .. }) => {}
                        inserted => check(inserted),
                    }
                }
            });
        }
        scope.spawn(move || {
            for round in (0_u64..).take_while(|_| goes_on()) {
                let read = || store.read();
                check(
                    read().and_then(|txn| places.find_by_code(&txn, round % 200).count().map(drop)),
                );
                check(read().and_then(|txn| places.get(&txn, round % 200).map(drop)));
                let rows = |txn| {
                    places.find_by_code_range(&txn, ..).rows().try_for_each(|row| row.map(drop))
                };
                check(read().and_then(rows));
            }
        });
        let begun = Instant::now();
        for round in 0.. {
            if begun.elapsed() > Duration::from_secs(3) {
                break;
            }
            let other = schema.open().expect("a store");
            if round % 2 == 0 {
                let unique = unique::PlaceRepository::open(&other).expect("a table");
                let _ = unique.build(&other).refuse_earlier_releases().run().expect("a build");
                let _ = unique.get_by_code(&other.read().expect("a read"), 7);
            } else {
                let plain = plain::PlaceRepository::open(&other).expect("a table");
                let _ = plain.build(&other).refuse_earlier_releases().run().expect("a build");
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert!(done.load(Ordering::Relaxed) > 100);
    let other = schema.open()?;
    let places = plain::PlaceRepository::open(&other)?;
    places.build(&other).refuse_earlier_releases().run()?;
    assert!(places.verify(&other.read()?).run()?.is_clean());
    Ok(())
}
