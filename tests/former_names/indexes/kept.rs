//! What renamed indexes keep.

use super::people::{Watched, first, moved, second, third};
use crate::{Place, TestResult};

#[test]
fn indexes_are_renamed_again_and_back_without_reading_a_row() -> TestResult {
    for place in Place::all()? {
        let watched = Watched::new();
        first::fill(&place.open()?, watched)?;
        assert!(watched.reads() > 0, "reading a row counts");
        second::check(&place.open()?, watched, 6)?;
        second::put(&place.open()?, watched, 7)?;
        second::check(&place.open()?, watched, 7)?;
        third::check(&place.open()?, watched, 7)?;
        third::put(&place.open()?, watched, 8)?;
        // An earlier release of the program is deployed again.
        first::check(&place.open()?, watched, 8)?;
        first::put(&place.open()?, watched, 9)?;
        second::check(&place.open()?, watched, 9)?;
        // The messages of all releases are about the renamed index.
        second::drain(&place.open()?)?;
        second::check(&place.open()?, watched, 9)?;
    }
    Ok(())
}

#[test]
fn a_renamed_table_has_renamed_indexes_in_the_same_opening() -> TestResult {
    for place in Place::all()? {
        let watched = Watched::new();
        first::fill(&place.open()?, watched)?;
        moved::check(&place.open()?, watched, 6)?;
        moved::put(&place.open()?, watched, 7)?;
        moved::drain(&place.open()?)?;
        moved::check(&place.open()?, watched, 7)?;
    }
    for place in Place::all()? {
        let watched = Watched::new();
        first::fill(&place.open()?, watched)?;
        // The indexes are renamed before the table.
        second::check(&place.open()?, watched, 6)?;
        moved::check(&place.open()?, watched, 6)?;
    }
    Ok(())
}

/// The table to which the renamed index refers is in use.
#[test]
fn an_open_table_finds_the_rows_that_refer_to_it_by_a_renamed_index() -> TestResult {
    for place in Place::all()? {
        let watched = Watched::new();
        let store = place.open()?;
        let regions = first::Regions::open(&store)?;
        first::fill(&store, watched)?;
        let people = third::People::open(&store)?;
        let refused = store.transaction(|txn| regions.delete(txn, 1));
        assert!(matches!(refused, Err(index_table::Error::Referenced { .. })), "{refused:?}");
        store.transaction(|txn| regions.put(txn, &first::Region { code: 2 }))?;
        drop(regions);
        third::check_open(&store, &people, 6)?;
    }
    Ok(())
}
