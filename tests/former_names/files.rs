//! The data files of a renamed table: after a crash, in a follower, and in a store that has grown.

use std::{
    fs,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use index_table::{Durability, Error, Follower, Result, Store};

use crate::{
    Kind, Place, TENANTS, TestResult, directories::copied, fill, on_each_kind, shop, with,
};

/// Checks that the store has all rows by the new name.
fn check(store: &Store) -> TestResult {
    let people = shop::second::People::open(store)?;
    let txn = store.read()?;
    assert_eq!(people.all(&txn).count()?, 9);
    assert_eq!(people.find_by_town(&txn, "Rome").count()?, 3);
    for tenant in TENANTS {
        assert!(people.get_by_email(&txn, format!("1@{tenant}.org").as_str())?.is_some());
    }
    assert!(people.verify(&txn).run()?.is_clean());
    Ok(())
}

fn wait_until(mut is_done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_done() {
        assert!(begun.elapsed() < Duration::from_mins(1), "it takes too long");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Replaces directories of a store by those of another copy.
fn replace(store: &Path, from: &Path, names: &[&str]) -> std::io::Result<()> {
    for name in names {
        fs::remove_dir_all(store.join(name))?;
        copied(&from.join(name), &store.join(name))?;
    }
    Ok(())
}

#[test]
fn a_process_that_ends_between_two_data_files_leaves_each_right_and_the_next_opening_continues()
-> TestResult {
    let directory = tempfile::tempdir()?;
    let path = |name: &str| directory.path().join(name);
    let [before, after] = ["before", "after"].map(path);
    // Without a journal, a copy of the store can have the files of different moments.
    let options = || Kind::Several.store("tenants").durability(Durability::None);
    {
        let store = options().open(&before)?;
        let people = shop::first::People::open(&store)?;
        let regions = shop::first::Regions::open(&store)?;
        let orders = shop::first::Orders::open(&store)?;
        store.transaction(|txn| regions.put(txn, &shop::first::Region { code: 1 }))?;
        for tenant in TENANTS {
            store.transaction(|txn| shop::first::fill(txn, (&people, &orders), tenant))?;
        }
    }
    copied(&before, &after)?;
    check(&options().open(&after)?)?;
    for renamed in [&["a"][..], &["c"], &["b", "c"], &["a", "b", "c"]] {
        let mixed = path(&renamed.concat());
        copied(&before, &mixed)?;
        replace(&mixed, &after, renamed)?;
        let store = options().open(&mixed)?;
        // A program with the former name is refused.
        let refused = shop::first::People::open(&store).map(drop);
        assert!(matches!(refused, Err(Error::SchemaMismatch { .. })), "{renamed:?}: {refused:?}");
        check(&store)?;
        drop(store);
        check(&Store::open(&mixed)?)?;
    }
    Ok(())
}

on_each_kind!(a_follower_gets_the_new_name, a_killed_process_has_renamed_the_table_or_not);

fn a_follower_gets_the_new_name(kind: Kind) -> TestResult {
    let directory = tempfile::tempdir()?;
    let path = |name: &str| directory.path().join(name);
    let archive = path("archive");
    let open = || kind.journal("tenants").archive(&archive).open(path("store"));
    let wait = |follower: &Follower, store: &Store| -> Result<()> {
        let last = store.read()?.commit_number();
        wait_until(|| follower.store().read().is_ok_and(|txn| txn.commit_number() >= last));
        Ok(())
    };
    let store = open()?;
    let people = shop::first::People::open(&store)?;
    let regions = shop::first::Regions::open(&store)?;
    let orders = shop::first::Orders::open(&store)?;
    store.transaction(|txn| regions.put(txn, &shop::first::Region { code: 1 }))?;
    for tenant in TENANTS {
        store.transaction(|txn| shop::first::fill(txn, (&people, &orders), tenant))?;
    }
    wait_until(|| store.archive_lag().is_some_and(|lag| lag.has_base && lag.commits == 0));
    let follower = Follower::open(path("standby"), &archive)?;
    wait(&follower, &store)?;
    let copies = shop::first::People::open(follower.store())?;
    assert_eq!(copies.find_by_town(&follower.store().read()?, "Rome").count()?, 3);
    drop((people, regions, orders));
    let people = shop::second::People::open(&store)?;
    store.transaction(|txn| people.put(txn, &shop::second::person(3, 2)))?;
    wait(&follower, &store)?;
    // The follower is not restarted with the new program yet.
    let refused = copies.find_by_town(&follower.store().read()?, "Rome").count();
    assert!(matches!(refused, Err(Error::SchemaMismatch { .. })), "{refused:?}");
    drop(copies);
    let opened = shop::second::People::open(follower.store()).map(drop);
    if let Err(error) = opened {
        // Its shard maps are from the time before.
        assert!(kind == Kind::Several, "{error}");
    }
    drop(follower);
    let follower = Follower::open(path("standby"), &archive)?;
    wait(&follower, &store)?;
    check(follower.store())?;
    drop((follower, people, store));
    // A store that is restored from the archive has the new name.
    Store::restore_archive(&archive).run(path("restored"))?;
    check(&Store::open(path("restored"))?)?;
    Ok(())
}

/// The process of the test copies the files of a store while it is open, after the table was renamed: those that a killed process
/// leaves.
fn a_killed_process_has_renamed_the_table_or_not(kind: Kind) -> TestResult {
    let place = Place::of(kind);
    fill(&place)?;
    let left = tempfile::tempdir()?;
    let left = left.path().join("left");
    let store = place.open()?;
    let people = shop::second::People::open(&store)?;
    copied(&place.path(), &left)?;
    drop((people, store));
    let store = Store::open(&left)?;
    check(&store)?;
    drop(store);
    with!(place, second, |store, _people, _orders| { check(&store)? });
    Ok(())
}

#[test]
fn a_table_of_a_store_that_grows_keeps_its_new_name() -> TestResult {
    let place = Place::of(Kind::OneFile);
    fill(&place)?;
    with!(place, second, |store, _people, _orders| {
        store.add_shard("b", "b")?;
        check(&store)?;
    });
    with!(place, second, |store, _people, _orders| { check(&store)? });

    // The table is renamed after the growth.
    let place = Place::of(Kind::OneFile);
    fill(&place)?;
    {
        let store = place.open()?;
        store.add_shard("b", "b")?;
    }
    with!(place, second, |store, _people, _orders| { check(&store)? });
    Ok(())
}
