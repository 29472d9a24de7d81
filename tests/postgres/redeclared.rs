//! An index whose declaration has changed between unique and not unique: its SQL table has other columns.

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
