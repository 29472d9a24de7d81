//! Renamed indexes of stores with several data files: crashes between two files, moves, and shards that were elsewhere.

use std::{fs, path::Path};

use index_table::{Durability, Store};

use super::people::{Watched, first, second, third};
use crate::{Kind, Place, TestResult, directories::copied};

/// Replaces directories of a store by those of another copy.
fn replace(store: &Path, from: &Path, names: &[&str]) -> std::io::Result<()> {
    for name in names {
        fs::remove_dir_all(store.join(name))?;
        copied(&from.join(name), &store.join(name))?;
    }
    Ok(())
}

/// Copies the file of the shard map manager.
fn replace_manager(store: &Path, from: &Path) -> std::io::Result<()> {
    fs::copy(from.join("data.mdb"), store.join("data.mdb")).map(drop)
}

#[test]
fn a_process_that_ends_between_two_data_files_leaves_a_store_for_both_programs() -> TestResult {
    let directory = tempfile::tempdir()?;
    let (path, watched) = (|name: &str| directory.path().join(name), Watched::new());
    let [before, after] = ["before", "after"].map(path);
    // Without a journal, a copy of the store can have the files of different moments.
    let options = || Kind::Several.store("tenants").durability(Durability::None);
    first::fill(&options().open(&before)?, watched)?;
    copied(&before, &after)?;
    second::check(&options().open(&after)?, watched, 6)?;
    let all: [&[&str]; 5] = [&[], &["a"], &["c"], &["b", "c"], &["a", "b", "c"]];
    for renamed in all {
        for is_new in [true, false] {
            let mixed = path(&format!("{}{is_new}", renamed.concat()));
            copied(&before, &mixed)?;
            replace_manager(&mixed, &after)?;
            replace(&mixed, &after, renamed)?;
            // The next opening is that of the new program, or that of the former one.
            if is_new {
                second::check(&options().open(&mixed)?, watched, 6)?;
                second::put(&options().open(&mixed)?, watched, 7)?;
                first::check(&options().open(&mixed)?, watched, 7)?;
            } else {
                first::check(&options().open(&mixed)?, watched, 6)?;
                first::put(&options().open(&mixed)?, watched, 7)?;
                second::check(&options().open(&mixed)?, watched, 7)?;
            }
        }
    }
    Ok(())
}

/// The entries stay where the moves have brought them.
#[test]
fn a_global_index_keeps_its_moved_entries() -> TestResult {
    let place = Place::of(Kind::Several);
    let watched = Watched::new();
    first::fill(&place.open()?, watched)?;
    {
        let store = place.open()?;
        let people = first::People::open(&store)?;
        store.move_slots("people.by_email", .., "b").run()?;
        first::check_open(&store, &people, 6)?;
    }
    second::check(&place.open()?, watched, 6)?;
    {
        let store = place.open()?;
        let people = second::People::open(&store)?;
        store.move_slots("people.emails", .., "c").run()?;
        second::check_open(&store, &people, 6)?;
        second::put(&store, watched, 7)?;
    }
    // The map of the former name gives the keys to another shard, so this index is built.
    let before = watched.reads();
    let store = place.open()?;
    let people = first::People::open(&store)?;
    assert!(watched.reads() > before);
    first::check_open(&store, &people, 7)?;
    drop(people);
    third::check_open(&store, &third::People::open(&store)?, 7)
}

#[test]
fn a_shard_that_was_detached_before_the_indexes_were_renamed_is_attached_again() -> TestResult {
    let place = Place::of(Kind::Several);
    let watched = Watched::new();
    first::fill(&place.open()?, watched)?;
    {
        let store = place.open()?;
        let (_people, _regions) = (first::People::open(&store)?, first::Regions::open(&store)?);
        // Entries of a hash map go to other shards.
        store.detach_shard("b")?;
    }
    drop(second::People::open(&place.open()?)?);
    let store = place.open()?;
    let (people, regions) = (second::People::open(&store)?, second::Regions::open(&store)?);
    store.attach_shard("b", "b")?;
    second::check_open(&store, &people, 6)?;
    drop((people, regions, store));
    let store = place.open()?;
    second::check_open(&store, &second::People::open(&store)?, 6)
}

#[test]
fn a_shard_that_is_restored_from_an_earlier_backup_has_the_new_names() -> TestResult {
    let place = Place::of(Kind::Several);
    let watched = Watched::new();
    let directory = tempfile::tempdir()?;
    let backup = directory.path().join("backup");
    first::fill(&place.open()?, watched)?;
    let store = place.open()?;
    store.backup_shard(&store.shard("b")?, &backup)?;
    drop(store);
    second::check(&place.open()?, watched, 6)?;
    fs::remove_dir_all(place.path().join("b"))?;
    {
        let store = place.open()?;
        let (people, _regions) = (second::People::open(&store)?, second::Regions::open(&store)?);
        let shard = store.shard("b")?;
        store.restore_shard(&shard, &backup)?;
        second::check_open(&store, &people, 6)?;
    }
    let store = place.open()?;
    second::check_open(&store, &second::People::open(&store)?, 6)
}

/// A rebuilt manager has the maps that the shards have recorded.
#[test]
fn a_rebuilt_manager_has_the_maps_of_the_new_names() -> TestResult {
    let place = Place::of(Kind::Several);
    let watched = Watched::new();
    first::fill(&place.open()?, watched)?;
    second::check(&place.open()?, watched, 6)?;
    fs::remove_file(place.path().join("data.mdb"))?;
    let shards = ["a", "b", "c"].iter().fold(Store::options(), |all, name| all.shard(*name, *name));
    drop(shards.rebuild(place.path())?);
    let store = place.open()?;
    let people = second::People::open(&store)?;
    second::check_open(&store, &people, 6)?;
    drop(people);
    third::check(&store, watched, 6)
}
