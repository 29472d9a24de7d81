//! The data files with renamed indexes: their bytes, other processes, crashes, followers, copies, and growth.

use std::{path::Path, path::PathBuf, process::Command};

use heed::{CommitOrAbort, Database, EnvOpenOptions, types::Bytes};
use index_table::{Durability, Error, Follower, Result, Store};

use super::{
    excluded::items,
    people::{Watched, first, moved, second, third},
};
use crate::{Kind, Place, TestResult, directories::copied, files::wait_until, on_each_kind};

items!(before, [(town, name = "first")], 2);
items!(after, [(town, name = "second")], 2);
items!(again, [(town, name = "second"), (code, name = "first")], 2);
items!(none, [(code, name = "first")], 2);

/// Records by their names.
type Records = Vec<(String, Vec<u8>)>;

/// Returns the records of the catalog of a closed store with this beginning of their names, and the names of all databases.
fn contents(
    path: &Path,
    beginning: &str,
) -> std::result::Result<(Records, Vec<String>), heed::Error> {
    #[expect(unsafe_code, reason = "heed marks the whole environment unsafe")]
    // SAFETY: nothing else has the files of this test open.
    let env = unsafe { EnvOpenOptions::new().max_dbs(2).map_size(1 << 28).open(path)? };
    let (mut records, mut names) = (Vec::new(), Vec::new());
    let txn = env.write_txn()?;
    env.create_databases_and_commit(txn, |opener, txn| {
        let main: Database<'_, Bytes, Bytes> = opener.create_database(txn, None)?;
        for entry in main.iter(txn)? {
            names.push(String::from_utf8_lossy(entry?.0).into_owned());
        }
        let catalog: Database<'_, Bytes, Bytes> = opener.create_database(txn, Some(".catalog"))?;
        for entry in catalog.iter(txn)? {
            let (name, record) = entry?;
            let name = String::from_utf8_lossy(name).into_owned();
            if name.starts_with(beginning) {
                records.push((name, record.to_vec()));
            }
        }
        Ok::<_, heed::Error>(CommitOrAbort::<(), ()>::Commit(()))
    })?;
    Ok((records, names))
}

/// The test vector of docs/FORMAT.md.
#[test]
fn a_renamed_index_keeps_the_name_of_its_database() -> TestResult {
    let place = Place::of(Kind::OneFile);
    let (path, watched) = (place.path(), Watched::new());
    drop(before::fill(&place.open()?, watched, 0..10)?);
    drop(after::Items::open(&place.open()?)?);
    let (records, names) = contents(&path, "items.@.")?;
    let second = ("items.@.databases.second".to_owned(), vec![0x7f, 0x66, 0x69, 0x72, 0x73, 0x74]);
    assert_eq!(records, std::slice::from_ref(&second));
    assert_eq!(second.0.as_bytes(), b"\x69\x74\x65\x6d\x73\x2e\x40\x2e\x64\x61\x74\x61\x62\x61\x73\x65\x73\x2e\x73\x65\x63\x6f\x6e\x64");
    let of_items = |names: &[String]| -> Vec<String> {
        names.iter().filter(|name| name.starts_with("items")).cloned().collect()
    };
    assert_eq!(of_items(&names), ["items", "items.first"]);

    // A new index with the former name has another database.
    drop(again::fill(&place.open()?, watched, 10..20)?);
    let (records, names) = contents(&path, "items.@.")?;
    let first = ("items.@.databases.first".to_owned(), b"\x7ffirst~2".to_vec());
    assert_eq!(records, [first.clone(), second]);
    assert_eq!(of_items(&names), ["items", "items.first", "items.first~2"]);

    // Each is dropped with its record.
    drop(none::Items::open(&place.open()?)?);
    assert_eq!(place.open()?.drop_retired()?, ["items.second"]);
    let (records, names) = contents(&path, "items.@.")?;
    assert_eq!(records, [first]);
    assert_eq!(of_items(&names), ["items", "items.first~2"]);
    let store = place.open()?;
    let items = none::Items::open(&store)?;
    assert_eq!(items.find_by_first(&store.read()?, 3).count()?, 2);
    assert!(items.verify(&store.read()?).run()?.is_clean());
    Ok(())
}

/// Also if the table is renamed before, in a transaction of its own.
#[test]
fn no_database_is_created_for_a_renamed_index() -> TestResult {
    let place = Place::of(Kind::Several);
    first::fill(&place.open()?, Watched::new())?;
    let names = || contents(&place.path().join("a"), "").map(|(_, names)| names);
    let before = names()?;
    drop(moved::People::open(&place.open()?)?);
    assert_eq!(names()?, before);
    Ok(())
}

/// After a rename and back, the file has no further records.
#[test]
fn a_rename_back_leaves_no_record() -> TestResult {
    let place = Place::of(Kind::OneFile);
    drop(before::fill(&place.open()?, Watched::new(), 0..10)?);
    drop(after::Items::open(&place.open()?)?);
    drop(before::Items::open(&place.open()?)?);
    assert_eq!(contents(&place.path(), "items.@.")?.0, []);
    Ok(())
}

on_each_kind!(
    a_killed_process_has_renamed_the_indexes_or_not,
    a_follower_gets_the_new_names,
    a_copy_has_the_new_names,
    a_reader_is_told_of_the_former_name,
    each_durability_renames_indexes,
);

fn each_durability_renames_indexes(kind: Kind) -> TestResult {
    let all = [Durability::Journal, Durability::Full, Durability::Relaxed, Durability::None];
    // A store with several data files has a journal, or does not sync.
    for durability in all.into_iter().skip(kind.of(0, 2)) {
        let (directory, watched) = (tempfile::tempdir()?, Watched::new());
        let open = || kind.store("tenants").durability(durability).open(directory.path());
        first::fill(&open()?, watched)?;
        second::check(&open()?, watched, 6)?;
        third::check(&open()?, watched, 6)?;
    }
    Ok(())
}

/// The process of the test copies the files of a store while it is open, after the indexes were renamed: those that a killed process
/// leaves.
fn a_killed_process_has_renamed_the_indexes_or_not(kind: Kind) -> TestResult {
    let place = Place::of(kind);
    let watched = Watched::new();
    first::fill(&place.open()?, watched)?;
    let left = tempfile::tempdir()?;
    let left = left.path().join("left");
    {
        let store = place.open()?;
        let people = second::People::open(&store)?;
        second::put(&store, watched, 7)?;
        copied(&place.path(), &left)?;
        drop(people);
    }
    second::check(&Store::open(&left)?, watched, 7)?;
    first::check(&Store::open(&left)?, watched, 7)
}

fn a_follower_gets_the_new_names(kind: Kind) -> TestResult {
    let directory = tempfile::tempdir()?;
    let (path, watched) = (|name: &str| directory.path().join(name), Watched::new());
    let archive = path("archive");
    let store = kind.journal("tenants").archive(&archive).open(path("store"))?;
    let wait = |follower: &Follower| -> Result<()> {
        let last = store.read()?.commit_number();
        wait_until(|| follower.store().read().is_ok_and(|txn| txn.commit_number() >= last));
        Ok(())
    };
    first::fill(&store, watched)?;
    wait_until(|| store.archive_lag().is_some_and(|lag| lag.has_base && lag.commits == 0));
    let follower = Follower::open(path("standby"), &archive)?;
    wait(&follower)?;
    let copies = first::People::open(follower.store())?;
    assert_eq!(copies.find_by_by_town(&follower.store().read()?, "Rome").count()?, 6);
    second::check(&store, watched, 6)?;
    second::put(&store, watched, 7)?;
    wait(&follower)?;
    // The follower is not restarted with the new program yet.
    let refused = copies.find_by_by_town(&follower.store().read()?, "Rome").count();
    assert!(matches!(refused, Err(Error::IndexNotReadable { .. })), "{refused:?}");
    drop((copies, follower));
    let follower = Follower::open(path("standby"), &archive)?;
    wait(&follower)?;
    let copies = second::People::open(follower.store())?;
    let txn = follower.store().read()?;
    assert_eq!(copies.find_by_cities(&txn, "Rome").count()?, 9);
    assert!(copies.get_by_emails(&txn, "7@3.org")?.is_some());
    assert!(copies.verify(&txn).run()?.is_clean());
    drop((txn, copies));
    drop((follower, store));
    Store::restore_archive(&archive).run(path("restored"))?;
    second::check(&Store::open(path("restored"))?, watched, 7)?;
    first::check(&Store::open(path("restored"))?, watched, 7)
}

fn a_copy_has_the_new_names(kind: Kind) -> TestResult {
    let place = Place::of(kind);
    let watched = Watched::new();
    let directory = tempfile::tempdir()?;
    let path = |name: &str| directory.path().join(name);
    first::fill(&place.open()?, watched)?;
    place.open()?.backup(path("earlier")).run()?;
    second::check(&place.open()?, watched, 6)?;
    place.open()?.backup(path("later")).run()?;
    for name in ["earlier", "later"] {
        Store::restore(path(name), path(&format!("{name}-restored")))?;
        let open = || Store::open(path(&format!("{name}-restored")));
        third::check(&open()?, watched, 6)?;
    }
    Ok(())
}

fn a_reader_is_told_of_the_former_name(kind: Kind) -> TestResult {
    let place = Place::of(kind);
    let watched = Watched::new();
    first::fill(&place.open()?, watched)?;
    let read = || Store::options().read_only(true).open(place.path());
    let refused = second::People::open(&read()?).map(drop);
    let message = refused.err().ok_or("it opens")?.to_string();
    let expected = "the file has its index `cities` by the former name `by_town`";
    assert!(message.contains(expected) || kind == Kind::Several, "{message}");
    second::check(&place.open()?, watched, 6)?;
    let store = read()?;
    let people = second::People::open(&store)?;
    assert_eq!(people.find_by_cities(&store.read()?, "Rome").count()?, 6);
    assert!(people.get_by_emails(&store.read()?, "1@3.org")?.is_some());
    assert!(people.verify(&store.read()?).run()?.is_clean());
    Ok(())
}

#[test]
fn a_store_that_grows_keeps_the_new_names() -> TestResult {
    let place = Place::of(Kind::OneFile);
    let watched = Watched::new();
    first::fill(&place.open()?, watched)?;
    second::check(&place.open()?, watched, 6)?;
    {
        let store = place.open()?;
        let people = second::People::open(&store)?;
        store.add_shard("b", "b")?;
        second::check_open(&store, &people, 6)?;
        store.move_range("tenants", 10u32..20, "b").run()?;
        store.move_slots("people.emails", 0..1_000, "b").run()?;
        second::check_open(&store, &people, 6)?;
    }
    third::check(&place.open()?, watched, 6)?;
    moved::check(&place.open()?, watched, 6)
}

/// Runs `work` in another process that has the store open, and returns true there.
fn in_other_process(
    test: &str,
    path: &Path,
    work: impl FnOnce(&Store) -> TestResult,
) -> std::result::Result<bool, Box<dyn std::error::Error>> {
    let name = "INDEX_TABLE_OTHER_PROCESS";
    if let Some(path) = std::env::var_os(name).map(PathBuf::from) {
        work(&Store::options().durability(Durability::Full).open(path)?)?;
        return Ok(true);
    }
    let mut child = Command::new(std::env::current_exe()?);
    let output = child.args(["--exact", test]).env(name, path).output()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    Ok(false)
}

/// The other process does not rename the index, because this one has it open, and then stops declaring it.
#[test]
fn an_index_that_another_process_declares_by_another_name_is_not_dropped_while_it_is_open()
-> TestResult {
    let place = Place::of(Kind::OneFile);
    let full = || Store::options().durability(Durability::Full).open(place.path());
    let opened = if std::env::var_os("INDEX_TABLE_OTHER_PROCESS").is_none() {
        let store = full()?;
        let items = before::fill(&store, Watched::new(), 0..10)?;
        Some((store, items))
    } else {
        None
    };
    let test = "indexes::files::an_index_that_another_process_declares_by_another_name_is_not_dropped_while_it_is_open";
    let is_other = in_other_process(test, &place.path(), |store| {
        drop(after::Items::open(store)?);
        drop(none::Items::open(store)?);
        Ok(())
    })?;
    let Some((store, items)) = opened.filter(|_| !is_other) else { return Ok(()) };
    // `first` is the name of another index there.
    assert_eq!(store.drop_retired()?, ["items.second"]);
    let refused = items.find_by_first(&store.read()?, "town 1").count();
    assert!(matches!(refused, Err(Error::IndexNotReadable { .. })), "{refused:?}");
    drop(items);
    let items = none::Items::open(&store)?;
    assert!(items.verify(&store.read()?).run()?.is_clean());
    Ok(())
}

/// A process with the former name stops writing if the other process does not wait for its end.
#[test]
fn a_process_with_the_former_name_of_an_index_stops_writing() -> TestResult {
    let place = Place::of(Kind::OneFile);
    let watched = Watched::new();
    let full = || Store::options().durability(Durability::Full).open(place.path());
    let opened = if std::env::var_os("INDEX_TABLE_OTHER_PROCESS").is_none() {
        let store = full()?;
        first::fill(&store, watched)?;
        let people = first::People::open(&store)?;
        let regions = first::Regions::open(&store)?;
        Some((store, people, regions))
    } else {
        None
    };
    let test = "indexes::files::a_process_with_the_former_name_of_an_index_stops_writing";
    let is_other = in_other_process(test, &place.path(), refuse_and_check)?;
    let Some((store, people, regions)) = opened.filter(|_| !is_other) else { return Ok(()) };
    let refused = store.transaction(|txn| people.delete(txn, 3, 6));
    assert!(matches!(refused, Err(Error::SchemaMismatch { .. })), "{refused:?}");
    let refused = people.find_by_by_town(&store.read()?, "Rome").count();
    assert!(matches!(refused, Err(Error::IndexNotReadable { .. })), "{refused:?}");
    // The reference to the regions has another index.
    let refused = store.transaction(|txn| regions.delete(txn, 1));
    assert!(matches!(refused, Err(Error::SchemaMismatch { .. })), "{refused:?}");
    assert!(people.get(&store.read()?, 3, 6)?.is_some());
    drop((people, regions));
    second::put(&store, watched, 7)?;
    second::check_open(&store, &second::People::open(&store)?, 7)
}

/// Opens the tables with the new names of indexes, although another client has them open with the former names.
fn refuse_and_check(store: &Store) -> TestResult {
    let people = second::People::open(store)?;
    people.build(store).refuse_earlier_releases().run()?;
    second::check_open(store, &people, 6)
}

/// Runs `work` on the row of a person in the closed store, without this crate.
fn on_row(
    path: &Path,
    work: impl FnOnce(&[u8]) -> Vec<u8>,
) -> std::result::Result<(), heed::Error> {
    #[expect(unsafe_code, reason = "heed marks the whole environment unsafe")]
    // SAFETY: nothing else has the files of this test open.
    let env = unsafe { EnvOpenOptions::new().max_dbs(2).map_size(1 << 28).open(path)? };
    let txn = env.write_txn()?;
    env.create_databases_and_commit(txn, |opener, txn| {
        let rows: Database<'_, Bytes, Bytes> = opener.create_database(txn, Some("people"))?;
        let key = [3_u32.to_be_bytes(), 4_u32.to_be_bytes()].concat();
        let changed = work(rows.get(txn, &key)?.unwrap_or_default());
        rows.put(txn, &key, &changed)?;
        Ok::<_, heed::Error>(CommitOrAbort::<(), ()>::Commit(()))
    })?;
    Ok(())
}

#[test]
fn a_dead_letter_is_about_the_renamed_index() -> TestResult {
    let place = Place::of(Kind::OneFile);
    let watched = Watched::new();
    first::fill(&place.open()?, watched)?;
    let mut whole = Vec::new();
    on_row(&place.path(), |row| {
        whole = row.to_vec();
        vec![1, 2, 0xff]
    })?;
    {
        let store = place.open()?;
        let people = first::People::open(&store)?;
        assert_eq!(people.drain(&store, u64::MAX)?.dead_letters, 1);
    }
    on_row(&place.path(), |_| whole.clone())?;
    let store = place.open()?;
    second::check(&store, watched, 6)?;
    let people = second::People::open(&store)?;
    let dead_letters = people.dead_letters(&store.read()?)?;
    assert_eq!(dead_letters[0].indexes, ["tardy"]);
    assert_eq!(people.retry_dead_letters(&store)?.applied, 1);
    let txn = store.read()?;
    assert_eq!(people.find_by_tardy_city(&txn, "Rome").stale().count()?, 6);
    assert!(people.verify(&txn).run()?.is_clean());
    Ok(())
}

#[cfg(feature = "postgres")]
#[test]
fn a_client_with_the_former_name_of_an_index_stops() -> TestResult {
    let Some(schema) = crate::postgres::Schema::new() else { return Ok(()) };
    let watched = Watched::new();
    let (store, other) = (schema.open()?, schema.open()?);
    first::fill(&store, watched)?;
    let people = first::People::open(&store)?;
    refuse_and_check(&other)?;
    let refused = store.transaction(|txn| people.delete(txn, 3, 6));
    assert!(matches!(refused, Err(Error::SchemaMismatch { .. })), "{refused:?}");
    let refused = people.find_by_by_town(&store.read()?, "Rome").count();
    assert!(matches!(refused, Err(Error::IndexNotReadable { .. })), "{refused:?}");
    assert!(people.get(&store.read()?, 3, 6)?.is_some());
    drop(people);
    second::put(&store, watched, 7)?;
    second::check_open(&store, &second::People::open(&store)?, 7)
}
