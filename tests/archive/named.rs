//! The record of the archive in the directory of a store: opening the store without its archive is refused.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use index_table::{Durability, Error, Follower, Options, Store};

use crate::{
    Archived, Kind, OrderRepository, Random, Rows, TestResult, change,
    directories::{copied, files},
    on_each_kind, open, rows_in, rows_of, wait_for_archive, without_archive,
};

on_each_kind! {
    a_store_is_not_written_without_its_archive,
    a_new_store_is_refused_the_archive_of_another,
    an_archive_is_the_same_by_each_of_its_paths,
    an_archive_that_is_given_up_ends,
    an_archive_that_is_not_there_ends_when_it_is_back,
    a_kill_while_an_archive_is_given_up_leaves_a_store_with_its_archive,
    a_record_without_a_commit_is_like_a_record_with_commits,
    a_damaged_record_is_that_of_an_archive,
    an_earlier_archive_ends_when_another_is_named,
    a_function_has_to_be_given_too,
    copies_and_promoted_followers_have_no_archive,
    no_new_archive_begins_where_the_archive_of_the_store_was,
}

type Files = BTreeMap<PathBuf, Vec<u8>>;

fn new(kind: Kind) -> std::io::Result<(Archived, Rows)> {
    Ok((Archived::new(kind)?, Rows::new()))
}

/// Makes some commits, and waits for the archive if there is one.
fn write(options: &Options, path: &Path, rows: &mut Rows) -> TestResult {
    let (store, orders) = open(options, path)?;
    let mut random = Random(rows.len() as u64 + 71);
    for _ in 0..10 {
        change(&store, &orders, rows, &mut random)?;
    }
    if store.archive_lag().is_some() {
        wait_for_archive(&store);
    }
    Ok(())
}

/// Returns the names and contents of all files except LMDB's lock files.
fn contents(directory: &Path) -> std::io::Result<Files> {
    let mut found = files(directory)?;
    found.retain(|path, _| !path.ends_with("lock.mdb"));
    Ok(found)
}

/// Removes LMDB's lock files from a copy of a store, as a killed process leaves it.
fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    copied(from, to)?;
    files(to)?.into_keys().filter(|path| path.ends_with("lock.mdb")).try_for_each(fs::remove_file)
}

fn has_ended(it: &Archived) -> bool {
    it.archive.join("ended").exists()
}

fn refused_as_unnamed(outcome: index_table::Result<Store>) {
    let outcome = outcome.map(drop);
    assert!(matches!(outcome, Err(Error::ArchiveNotNamed { .. })), "{outcome:?}");
}

fn refused_as_ended<T: std::fmt::Debug>(outcome: &index_table::Result<T>) {
    let is_refused = matches!(outcome, Err(Error::NotInArchive { reason, .. })
        if reason.contains("without it") && reason.contains("until_end"));
    assert!(is_refused, "{outcome:?}");
}

fn a_new_store_is_refused_the_archive_of_another(kind: Kind) -> TestResult {
    let (it, mut rows) = new(kind)?;
    write(&it.options(), &it.store, &mut rows)?;
    let before = contents(&it.archive)?;
    // As if the disk of the store were not mounted.
    let away = it.store.with_extension("away");
    fs::rename(&it.store, &away)?;
    fs::create_dir(&it.store)?;
    let outcome = it.options().open(&it.store).map(drop);
    let Err(error @ Error::ArchiveInUse { .. }) = outcome else { panic!("{outcome:?}") };
    let text = error.to_string();
    for part in [it.archive.display().to_string(), it.store.display().to_string()] {
        assert!(text.contains(&part), "{part}: {text}");
    }
    assert_eq!(files(&it.store)?.into_keys().find(|file| file.ends_with("data.mdb")), None);
    assert_eq!(contents(&it.archive)?, before);
    // A restored store continues the archive, and so does the store itself.
    fs::remove_dir_all(&it.store)?;
    Store::restore_archive(&it.archive).run(&it.store)?;
    drop(Store::options().archive(&it.archive).open(&it.store)?);
    fs::remove_dir_all(&it.store)?;
    fs::rename(&away, &it.store)?;
    drop(open(&it.options(), &it.store)?);
    Ok(())
}

fn a_store_is_not_written_without_its_archive(kind: Kind) -> TestResult {
    let (it, mut rows) = new(kind)?;
    write(&it.options(), &it.store, &mut rows)?;
    let before = contents(&it.store)?;
    let offered = [Durability::Full, Durability::Journal, Durability::Relaxed];
    for durability in &offered[kind.of(0, 1)..] {
        let outcome = Store::options().durability(*durability).open(&it.store).map(drop);
        let Err(error @ Error::ArchiveNotNamed { .. }) = outcome else {
            panic!("{outcome:?}");
        };
        let text = error.to_string();
        for part in [
            "`archive(…)`",
            "`without_archive()`",
            "--archive",
            "--without-archive",
            &it.archive.display().to_string(),
            &it.store.display().to_string(),
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert_eq!(contents(&it.store)?, before);
    }
    let reader = Store::options().read_only(true).open(&it.store)?;
    assert_eq!(OrderRepository::open(&reader)?.all(&reader.read()?).count()?, rows.len() as u64);
    drop(reader);
    write(&it.options(), &it.store, &mut rows)?;
    assert!(it.restored_rows()? == rows && !has_ended(&it));
    Ok(())
}

fn an_archive_is_the_same_by_each_of_its_paths(kind: Kind) -> TestResult {
    let (it, mut rows) = new(kind)?;
    write(&it.options(), &it.store, &mut rows)?;
    #[cfg(unix)]
    {
        let link = it.path("link");
        std::os::unix::fs::symlink(&it.archive, &link)?;
        write(&it.to(&link), &it.store, &mut rows)?;
        let store = it.to(&link).open(&it.store)?;
        assert!(it.existing(&it.archive).open(&it.store).is_ok());
        let outcome = it.existing(&it.path("other")).open(&it.store);
        assert!(matches!(outcome, Err(Error::AlreadyOpen { .. })), "{outcome:?}");
        drop(store);
    }
    write(&it.to(&it.path("x").join("../archive")), &it.store, &mut rows)?;
    assert!(!has_ended(&it) && it.restored_rows()? == rows);
    Ok(())
}

fn an_archive_that_is_given_up_ends(kind: Kind) -> TestResult {
    let (it, mut rows) = new(kind)?;
    write(&it.options(), &it.store, &mut rows)?;
    let follower = Follower::open(it.path("standby"), &it.archive)?;
    let (archived, before) = (rows.clone(), SystemTime::now());
    std::thread::sleep(Duration::from_millis(3));
    write(&Store::options().without_archive(), &it.store, &mut rows)?;
    // From now on, the store has no archive.
    write(&Store::options(), &it.store, &mut rows)?;
    write(&Store::options().durability(Durability::Journal), &it.store, &mut rows)?;

    let lag = follower.lag()?;
    let error = lag.error.as_deref().unwrap_or_default();
    assert!(error.contains("without it") && lag.commits > 0, "{lag:?}");
    refused_as_ended(&follower.promote());
    let to = it.path("ended");
    refused_as_ended(&it.restore().run(&to));
    refused_as_ended(&it.restore().until(SystemTime::now()).run(&to));
    refused_as_ended(&Follower::open(&to, &it.archive).map(drop));
    assert!(!to.exists());
    let last = it.restore().until_end().run(&to)?;
    assert!(rows_of(&to)? == archived);
    let to = it.path("commit");
    it.restore().until_commit(last).run(&to)?;
    assert!(rows_of(&to)? == archived);
    let to = it.path("before");
    it.restore().until(before).run(&to)?;
    assert!(rows_of(&to)? == archived);

    // It continues after a gap.
    write(&it.options(), &it.store, &mut rows)?;
    assert!(it.restored_rows()? == rows);
    refused_as_unnamed(Store::open(&it.store));
    let follower = Follower::open(it.path("standby"), &it.archive)?;
    assert_eq!(follower.lag()?.error, None);
    Ok(())
}

fn an_archive_that_is_not_there_ends_when_it_is_back(kind: Kind) -> TestResult {
    let (it, mut rows) = new(kind)?;
    write(&it.options(), &it.store, &mut rows)?;
    let away = it.path("away");
    fs::rename(&it.archive, &away)?;
    refused_as_unnamed(Store::open(&it.store));
    write(&Store::options().without_archive(), &it.store, &mut rows)?;
    write(&Store::options(), &it.store, &mut rows)?;
    // The mount point of the archive.
    fs::create_dir(&it.archive)?;
    write(&Store::options(), &it.store, &mut rows)?;
    assert!(!has_ended(&it));
    fs::remove_dir(&it.archive)?;
    fs::rename(&away, &it.archive)?;
    write(&Store::options(), &it.store, &mut rows)?;
    refused_as_ended(&it.restore().run(it.path("to")));
    assert!(!it.store.join("archive.known").exists());
    Ok(())
}

fn a_kill_while_an_archive_is_given_up_leaves_a_store_with_its_archive(kind: Kind) -> TestResult {
    let (it, mut rows) = new(kind)?;
    write(&it.options(), &it.store, &mut rows)?;
    // Killed after the archive had the file, and before the first commit.
    let killed = it.path("killed");
    copy(&it.store, &killed)?;
    drop(Store::options().without_archive().open(&it.store)?);
    assert!(has_ended(&it));
    fs::remove_dir_all(&it.store)?;
    fs::rename(killed, &it.store)?;
    refused_as_unnamed(Store::open(&it.store));
    let middle = rows.clone();
    write(&it.options(), &it.store, &mut rows)?;
    assert!(!has_ended(&it) && it.restored_rows()? == rows);

    // Given up, and named again without a commit between.
    drop(Store::options().without_archive().open(&it.store)?);
    write(&it.options(), &it.store, &mut rows)?;
    assert!(it.restored_rows()? == rows && rows != middle);
    Ok(())
}

fn a_record_without_a_commit_is_like_a_record_with_commits(kind: Kind) -> TestResult {
    let (it, mut rows) = new(kind)?;
    write(&it.options(), &it.store, &mut rows)?;
    // Killed between the record and the first commit in the archive.
    let killed = it.path("killed");
    drop(without_archive(kind).open(&killed)?);
    fs::copy(it.store.join("archive.known"), killed.join("archive.known"))?;
    refused_as_unnamed(Store::open(&killed));
    // The archive belongs to the other store, and does not end.
    drop(Store::options().without_archive().open(&killed)?);
    assert!(!has_ended(&it));
    drop(Store::open(&killed)?);
    Ok(())
}

fn a_damaged_record_is_that_of_an_archive(kind: Kind) -> TestResult {
    let (it, mut rows) = new(kind)?;
    write(&it.options(), &it.store, &mut rows)?;
    let record = it.store.join("archive.known");
    let bytes = fs::read(&record)?;
    for damaged in [&bytes[..0], &bytes[..20], &[&bytes[..], b"x"].concat()] {
        fs::write(&record, damaged)?;
        let outcome = Store::open(&it.store);
        assert!(
            matches!(outcome, Err(Error::ArchiveNotNamed { archive: None, .. })),
            "{outcome:?}"
        );
    }
    write(&it.options(), &it.store, &mut rows)?;
    assert_eq!(fs::read(&record)?, bytes);
    Ok(())
}

fn an_earlier_archive_ends_when_another_is_named(kind: Kind) -> TestResult {
    let (it, mut rows) = new(kind)?;
    write(&it.options(), &it.store, &mut rows)?;
    let archived = rows.clone();
    let other = it.path("other");
    write(&it.to(&other), &it.store, &mut rows)?;
    let to = it.path("to");
    refused_as_ended(&it.restore().run(&to));
    Store::restore_archive(&other).run(&to)?;
    assert!(rows_of(&to)? == rows);
    let to = it.path("earlier");
    it.restore().until_end().run(&to)?;
    assert!(rows_of(&to)? == archived);
    // An archive that was renamed is not another archive.
    let renamed = it.path("renamed");
    fs::rename(&other, &renamed)?;
    write(&it.to(&renamed), &it.store, &mut rows)?;
    let to = it.path("again");
    Store::restore_archive(&renamed).run(&to)?;
    assert!(rows_of(&to)? == rows);
    Ok(())
}

fn a_function_has_to_be_given_too(kind: Kind) -> TestResult {
    let (it, mut rows) = new(kind)?;
    let to = it.archive.clone();
    let function = without_archive(kind).archive_with(move |file| {
        let path = to.join(file.name);
        fs::create_dir_all(path.parent().expect("a directory"))?;
        fs::copy(file.path, path).map(drop)
    });
    drop(function.open(&it.store)?);
    let outcome = Store::open(&it.store);
    assert!(matches!(outcome, Err(Error::ArchiveNotNamed { archive: None, .. })), "{outcome:?}");
    drop(function.open(&it.store)?);
    write(&Store::options().without_archive(), &it.store, &mut rows)?;
    write(&Store::options(), &it.store, &mut rows)?;
    Ok(())
}

fn copies_and_promoted_followers_have_no_archive(kind: Kind) -> TestResult {
    let (it, mut rows) = new(kind)?;
    write(&it.options(), &it.store, &mut rows)?;
    let store = it.options().open(&it.store)?;
    let paths =
        ["backup", "compact", "restored", "from_archive", "standby"].map(|name| it.path(name));
    let [backup, compact, restored, from_archive, standby] = &paths;
    store.backup_to(backup)?;
    store.compact_to(compact)?;
    Store::restore(backup, restored)?;
    wait_for_archive(&store);
    drop(store);
    it.restore().run(from_archive)?;
    drop(Follower::open(standby, &it.archive)?.promote()?);
    for path in &paths {
        write(&Store::options(), path, &mut rows.clone())?;
    }
    assert!(!has_ended(&it));
    Ok(())
}

#[test]
fn a_store_whose_shard_map_manager_is_rebuilt_keeps_its_archive() -> TestResult {
    let (it, mut rows) = new(Kind::Several)?;
    let (store, orders) = it.open()?;
    for _ in 0..10 {
        change(&store, &orders, &mut rows, &mut Random(74))?;
    }
    let places = store.shard_directories();
    drop((store, orders));
    fs::remove_file(it.store.join("data.mdb"))?;
    let options = Store::options();
    let options = places.iter().fold(options, |all, (name, place)| all.shard(name, place));
    refused_as_unnamed(options.rebuild(&it.store));
    assert!(!it.store.join("data.mdb").exists());
    let options = Store::options().archive(&it.archive);
    let options = places.iter().fold(options, |all, (name, place)| all.shard(name, place));
    let store = options.rebuild(&it.store)?;
    let orders = OrderRepository::open(&store)?;
    change(&store, &orders, &mut rows, &mut Random(75))?;
    wait_for_archive(&store);
    drop((store, orders));
    assert!(it.restored_rows()? == rows);
    Ok(())
}

#[test]
fn a_detached_shard_is_attached_without_an_archive_of_its_own() -> TestResult {
    let (it, mut rows) = new(Kind::Several)?;
    let store = without_archive(Kind::Several).open(&it.store)?;
    let orders = OrderRepository::open(&store)?;
    change(&store, &orders, &mut rows, &mut Random(76))?;
    let shard = store.shard_ids().last().ok_or("no shard")?.name().to_owned();
    store.detach_shard(&shard)?;
    let detached = it.store.join(&shard);
    let alone = Store::options().archive(&it.archive).open(&detached)?;
    wait_for_archive(&alone);
    drop(alone);
    refused_as_unnamed(store.attach_shard(&shard, &shard).map(|_| store.clone()));
    assert!(!has_ended(&it));
    drop(Store::options().without_archive().open(&detached)?);
    assert!(has_ended(&it));
    store.attach_shard(&shard, &shard)?;
    assert!(rows_in(&store)? == rows);
    Ok(())
}

fn no_new_archive_begins_where_the_archive_of_the_store_was(kind: Kind) -> TestResult {
    let (it, mut rows) = new(kind)?;
    write(&it.options(), &it.store, &mut rows)?;
    let away = it.path("away");
    // The disk of the archive is not mounted when the store is opened.
    for has_mount_point in [true, false] {
        fs::rename(&it.archive, &away)?;
        if has_mount_point {
            fs::create_dir(&it.archive)?;
        }
        for _ in 0..2 {
            let store = it.options().open(&it.store)?;
            change(&store, &OrderRepository::open(&store)?, &mut rows, &mut Random(74))?;
            let error = store.archive_lag().and_then(|lag| lag.error).ok_or("no error")?;
            for part in ["manifest is gone", "`without_archive`", "`--without-archive`"] {
                assert!(error.contains(part), "{error}");
            }
        }
        let is_empty = !has_mount_point && !it.archive.exists()
            || has_mount_point && fs::read_dir(&it.archive)?.next().is_none();
        assert!(is_empty, "a new archive");
        let _ = fs::remove_dir(&it.archive);
        fs::rename(&away, &it.archive)?;
        write(&it.options(), &it.store, &mut rows)?;
        assert!(it.restored_rows()? == rows);
    }
    let is_base = |path: &PathBuf| path.ends_with("base");
    let bases = contents(&it.archive)?.into_iter().filter(|(path, _)| is_base(path)).count();
    assert_eq!(bases, kind.of(1, 3), "another generation has begun");

    // The way to begin a new archive.
    fs::remove_dir_all(&it.archive)?;
    drop(Store::options().without_archive().open(&it.store)?);
    write(&it.options(), &it.store, &mut rows)?;
    assert!(it.restored_rows()? == rows);
    Ok(())
}
