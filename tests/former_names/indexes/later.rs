//! Renamed indexes later: indexes with their former names, dropped ones, and those that are not built.

use index_table::{Error, IndexState};

use super::{excluded::items, people::Watched, states};
use crate::{Place, TestResult};

items!(town, [(town, name = "first")], 2);
items!(renamed, [(town, name = "second")], 2);
items!(both, [(town, name = "second"), (code, name = "first")], 2);
items!(code, [(code, name = "first")], 2);
items!(codes, [(code, name = "third")], 2);
items!(
    all,
    [
        (code, name = "third"),
        (town, name = "first", allow(redundant)),
        (town, code, name = "second")
    ],
    2
);

/// A new index has entries of its own, and not those of the renamed index with its name.
#[test]
fn the_former_name_of_an_index_can_be_that_of_a_new_index() -> TestResult {
    for place in Place::all()? {
        let watched = Watched::new();
        drop(town::fill(&place.open()?, watched, 0..100)?);
        drop(renamed::fill(&place.open()?, watched, 100..150)?);
        for opening in 0..2 {
            let store = place.open()?;
            let items = both::fill(&store, watched, 150 + 10 * opening..160 + 10 * opening)?;
            let txn = store.read()?;
            assert_eq!(
                items.find_by_second(&txn, "town 1").count()?,
                if opening == 0 { 23 } else { 25 }
            );
            assert_eq!(items.find_by_first(&txn, 3).count()?, u64::from(16 + opening));
            assert!(items.verify(&txn).run()?.is_clean());
        }
        let store = place.open()?;
        drop(code::fill(&store, watched, 170..180)?);
        // The entries of the dropped index are in the database with the name of the other.
        assert_eq!(store.drop_retired()?, ["items.second"]);
        let items = code::Items::open(&store)?;
        assert_eq!(items.find_by_first(&store.read()?, 3).count()?, 18);
        assert!(items.verify(&store.read()?).run()?.is_clean());
        drop(items);
        let before = watched.reads();
        let items = codes::Items::open(&store)?;
        assert_eq!(watched.reads(), before);
        assert_eq!(items.find_by_third(&store.read()?, 3).count()?, 18);
        drop(items);
        let items = all::fill(&store, watched, 180..190)?;
        let txn = store.read()?;
        assert_eq!(items.find_by_third(&txn, 3).count()?, 19);
        assert_eq!(items.find_by_first(&txn, "town 1").count()?, 27);
        assert_eq!(items.find_by_second_town(&txn, "town 1").count()?, 27);
        assert!(items.verify(&txn).run()?.is_clean());
    }
    Ok(())
}

/// The build continues under the new name.
#[test]
fn an_index_under_construction_is_renamed_with_its_state() -> TestResult {
    const ROWS: u32 = 5_000;
    for place in Place::all()? {
        let (store, watched) = (place.open()?, Watched::new());
        drop(codes::fill(&store, watched, 0..ROWS)?);
        {
            let items = town::Items::open_online(&store)?;
            items.build(&store).batch_bytes(10_000).limit(2).run()?;
            assert!(
                states(&store, "items")?[0].contains("building"),
                "{:?}",
                states(&store, "items")?
            );
        }
        let before = watched.reads();
        let items = renamed::Items::open_online(&store)?;
        assert_eq!(watched.reads(), before);
        let refused = items.find_by_second(&store.read()?, "town 1").count();
        assert!(
            matches!(refused, Err(Error::IndexNotReadable { index: "second", .. })),
            "{refused:?}"
        );
        let report = items.build(&store).run()?;
        assert_eq!(
            (report.indexes[0].name, &report.indexes[0].state),
            ("second", &IndexState::Readable)
        );
        // Without shards, the rows of the first batches are not read again.
        assert!(report.rows <= u64::from(ROWS));
        let txn = store.read()?;
        assert_eq!(items.find_by_second(&txn, "town 1").count()?, 715);
        assert!(items.verify(&txn).run()?.is_clean());
    }
    Ok(())
}
