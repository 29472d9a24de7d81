//! The data files of a renamed table: after a crash, in a follower, and in a store that has grown.

use std::{
    fs,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use heed::{CommitOrAbort, EnvOpenOptions, types::Bytes};
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

/// Fills a store by the first release.
fn fill_first(store: &Store) -> Result<()> {
    use shop::first;
    let people = first::People::open(store)?;
    let regions = first::Regions::open(store)?;
    let orders = first::Orders::open(store)?;
    store.transaction(|txn| regions.put(txn, &first::Region { code: 1 }))?;
    TENANTS.into_iter().try_for_each(|tenant| {
        store.transaction(|txn| first::fill(txn, (&people, &orders), tenant))
    })
}

pub(crate) fn wait_until(mut is_done: impl FnMut() -> bool) {
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
    fill_first(&options().open(&before)?)?;
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

/// Reads the own record of a shard, and replaces it by the result.
fn change_own(
    shard: &Path,
    change: impl FnOnce(&[u8]) -> Vec<u8>,
) -> std::result::Result<Vec<u8>, Box<dyn std::error::Error>> {
    #[expect(unsafe_code, reason = "heed marks the whole environment unsafe")]
    // SAFETY: nothing else has the files of this test open.
    let env = unsafe { EnvOpenOptions::new().max_dbs(1).map_size(1 << 28).open(shard)? };
    let txn = env.write_txn()?;
    let mut before = Vec::new();
    env.create_databases_and_commit(txn, |opener, txn| {
        let records = opener.create_database::<Bytes, Bytes>(txn, Some(".shard"))?;
        before = records.get(txn, b"own")?.unwrap_or_default().to_vec();
        records.put(txn, b"own", &change(&before))?;
        Ok::<_, heed::Error>(CommitOrAbort::<(), ()>::Commit(()))
    })?;
    Ok(before)
}

fn position(bytes: &[u8], part: &[u8]) -> usize {
    bytes.windows(part.len()).position(|window| window == part).expect("it is a part")
}

/// A process can end after the manager has changed, and before the own records of the shards lose the former name.
#[test]
fn a_former_name_in_the_records_of_shards_is_removed_by_the_next_opening() -> TestResult {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("store");
    let options = || Kind::Several.store("tenants").durability(Durability::None);
    fill_first(&options().open(&path)?)?;
    let shard = path.join("a");
    let former = change_own(&shard, <[u8]>::to_vec)?;
    check(&options().open(&path)?)?;
    let (name, next) = (b"\x0dclients.email", b"\x07tenants");
    let changed = change_own(&shard, |own| {
        let mut own = own.to_vec();
        let left = position(&former, b"\x0fcustomers.email")..position(&former, next);
        let count = position(&own, name) - 1;
        own[count] += 1;
        let at = position(&own, next);
        own.splice(at..at, former[left].iter().copied());
        own
    })?;
    check(&options().open(&path)?)?;
    assert_eq!(change_own(&shard, <[u8]>::to_vec)?, changed);
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
    fill_first(&store)?;
    wait_until(|| store.archive_lag().is_some_and(|lag| lag.has_base && lag.commits == 0));
    let follower = Follower::open(path("standby"), &archive)?;
    wait(&follower, &store)?;
    let copies = shop::first::People::open(follower.store())?;
    assert_eq!(copies.find_by_town(&follower.store().read()?, "Rome").count()?, 3);
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
