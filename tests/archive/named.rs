//! The record of the archive in the directory of a store: opening the store without its archive is refused.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use index_table::{Durability, Error, Follower, Options, Store};

use crate::{
    NoteRepository, Random, Rows, TestResult, change,
    directories::{copied, files},
    fresh, last_commit, options, rows_of, shards, wait_for_archive,
};

type Files = BTreeMap<PathBuf, Vec<u8>>;

struct Dirs {
    _dir: tempfile::TempDir,
    store: PathBuf,
    archive: PathBuf,
}

impl Dirs {
    fn new() -> std::io::Result<Self> {
        let dir = tempfile::tempdir()?;
        let (store, archive) = (dir.path().join("store"), dir.path().join("archive"));
        Ok(Self { _dir: dir, store, archive })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.store.with_file_name(name)
    }

    fn has_ended(&self) -> bool {
        self.archive.join("ended").exists()
    }
}

/// Makes some commits, and waits for the archive if there is one.
fn write(options: &Options, path: &Path, rows: &mut Rows) -> TestResult {
    let store = options.open(path)?;
    let notes = NoteRepository::open(&store)?;
    let mut random = Random(rows.len() as u64 + 71);
    for _ in 0..10 {
        change(&store, &notes, rows, &mut random)?;
    }
    if store.archive_lag().is_some() {
        wait_for_archive(&store);
    }
    Ok(())
}

/// Returns the names and contents of all files except LMDB's lock file.
fn contents(directory: &Path) -> std::io::Result<Files> {
    let mut found = files(directory)?;
    found.retain(|path, _| !path.ends_with("lock.mdb"));
    Ok(found)
}

/// Copies a store, as a killed process leaves it.
fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    copied(from, to)?;
    fs::remove_file(to.join("lock.mdb"))
}

fn restored(dirs: &Dirs) -> Result<Rows, Box<dyn std::error::Error>> {
    let to = fresh(dirs.path("").as_path(), "restored");
    Store::restore_archive(&dirs.archive).run(&to)?;
    rows_of(&to)
}

fn refused_as_ended<T: std::fmt::Debug>(outcome: &index_table::Result<T>) {
    let is_refused = matches!(outcome, Err(Error::NotInArchive { reason, .. })
        if reason.contains("without it") && reason.contains("until_end"));
    assert!(is_refused, "{outcome:?}");
}

#[test]
fn a_store_is_not_written_without_its_archive() -> TestResult {
    let (dirs, mut rows) = (Dirs::new()?, Rows::new());
    write(&options(&dirs.archive), &dirs.store, &mut rows)?;
    let before = contents(&dirs.store)?;
    for durability in [Durability::Full, Durability::Journal, Durability::Relaxed] {
        let outcome = Store::options().durability(durability).open(&dirs.store).map(drop);
        let Err(error @ Error::ArchiveNotNamed { .. }) = outcome else {
            panic!("{outcome:?}");
        };
        let text = error.to_string();
        for part in [
            "`archive(…)`",
            "`without_archive()`",
            "--archive",
            "--without-archive",
            &dirs.archive.display().to_string(),
            &dirs.store.display().to_string(),
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert_eq!(contents(&dirs.store)?, before);
    }
    let reader = Store::options().read_only(true).open(&dirs.store)?;
    assert_eq!(NoteRepository::open(&reader)?.all(&reader.read()?).count()?, rows.len() as u64);
    drop(reader);
    write(&options(&dirs.archive), &dirs.store, &mut rows)?;
    assert!(restored(&dirs)? == rows && !dirs.has_ended());
    Ok(())
}

#[test]
fn an_archive_is_the_same_by_each_of_its_paths() -> TestResult {
    let (dirs, mut rows) = (Dirs::new()?, Rows::new());
    write(&options(&dirs.archive), &dirs.store, &mut rows)?;
    #[cfg(unix)]
    {
        let link = dirs.path("link");
        std::os::unix::fs::symlink(&dirs.archive, &link)?;
        write(&options(&link), &dirs.store, &mut rows)?;
        let (one, other) = (options(&link), options(&dirs.archive));
        let store = one.open(&dirs.store)?;
        assert!(other.open(&dirs.store).is_ok());
        drop(store);
    }
    write(&options(&dirs.path("x").join("../archive")), &dirs.store, &mut rows)?;
    assert!(!dirs.has_ended() && restored(&dirs)? == rows);
    Ok(())
}

#[test]
fn an_archive_that_is_given_up_ends() -> TestResult {
    let (dirs, mut rows) = (Dirs::new()?, Rows::new());
    write(&options(&dirs.archive), &dirs.store, &mut rows)?;
    let follower = Follower::open(dirs.path("standby"), &dirs.archive)?;
    let (archived, before) = (rows.clone(), SystemTime::now());
    std::thread::sleep(Duration::from_millis(3));
    write(&Store::options().without_archive(), &dirs.store, &mut rows)?;
    // From now on, the store has no archive.
    write(&Store::options(), &dirs.store, &mut rows)?;
    write(&Store::options().durability(Durability::Journal), &dirs.store, &mut rows)?;

    let lag = follower.lag()?;
    let error = lag.error.as_deref().unwrap_or_default();
    assert!(error.contains("without it") && lag.commits > 0, "{lag:?}");
    refused_as_ended(&follower.promote());
    let to = dirs.path("ended");
    refused_as_ended(&Store::restore_archive(&dirs.archive).run(&to));
    refused_as_ended(&Store::restore_archive(&dirs.archive).until(SystemTime::now()).run(&to));
    refused_as_ended(&Follower::open(&to, &dirs.archive).map(drop));
    assert!(!to.exists());
    let last = Store::restore_archive(&dirs.archive).until_end().run(&to)?;
    assert!(rows_of(&to)? == archived);
    let to = dirs.path("commit");
    Store::restore_archive(&dirs.archive).until_commit(last).run(&to)?;
    assert!(rows_of(&to)? == archived);
    let to = dirs.path("before");
    Store::restore_archive(&dirs.archive).until(before).run(&to)?;
    assert!(rows_of(&to)? == archived);

    // It continues after a gap.
    write(&options(&dirs.archive), &dirs.store, &mut rows)?;
    assert!(restored(&dirs)? == rows);
    let outcome = Store::open(&dirs.store);
    assert!(matches!(outcome, Err(Error::ArchiveNotNamed { .. })), "{outcome:?}");
    let follower = Follower::open(dirs.path("standby"), &dirs.archive)?;
    assert_eq!(follower.lag()?.error, None);
    Ok(())
}

#[test]
fn an_archive_that_is_not_there_ends_when_it_is_back() -> TestResult {
    let (dirs, mut rows) = (Dirs::new()?, Rows::new());
    write(&options(&dirs.archive), &dirs.store, &mut rows)?;
    let away = dirs.path("away");
    fs::rename(&dirs.archive, &away)?;
    let outcome = Store::open(&dirs.store);
    assert!(matches!(outcome, Err(Error::ArchiveNotNamed { .. })), "{outcome:?}");
    write(&Store::options().without_archive(), &dirs.store, &mut rows)?;
    write(&Store::options(), &dirs.store, &mut rows)?;
    // The mount point of the archive.
    fs::create_dir(&dirs.archive)?;
    write(&Store::options(), &dirs.store, &mut rows)?;
    assert!(!dirs.has_ended());
    fs::remove_dir(&dirs.archive)?;
    fs::rename(&away, &dirs.archive)?;
    write(&Store::options(), &dirs.store, &mut rows)?;
    refused_as_ended(&Store::restore_archive(&dirs.archive).run(dirs.path("to")));
    assert!(!dirs.store.join("archive.known").exists());
    Ok(())
}

#[test]
fn a_kill_while_an_archive_is_given_up_leaves_a_store_with_its_archive() -> TestResult {
    let (dirs, mut rows) = (Dirs::new()?, Rows::new());
    write(&options(&dirs.archive), &dirs.store, &mut rows)?;
    // Killed after the archive had the file, and before the first commit.
    let killed = dirs.path("killed");
    copy(&dirs.store, &killed)?;
    drop(Store::options().without_archive().open(&dirs.store)?);
    assert!(dirs.has_ended());
    fs::remove_dir_all(&dirs.store)?;
    fs::rename(killed, &dirs.store)?;
    let outcome = Store::open(&dirs.store);
    assert!(matches!(outcome, Err(Error::ArchiveNotNamed { .. })), "{outcome:?}");
    let middle = rows.clone();
    write(&options(&dirs.archive), &dirs.store, &mut rows)?;
    assert!(!dirs.has_ended() && restored(&dirs)? == rows);

    // Given up, and named again without a commit between.
    drop(Store::options().without_archive().open(&dirs.store)?);
    write(&options(&dirs.archive), &dirs.store, &mut rows)?;
    assert!(restored(&dirs)? == rows && rows != middle);
    Ok(())
}

#[test]
fn a_record_without_a_commit_is_like_a_record_with_commits() -> TestResult {
    let (dirs, mut rows) = (Dirs::new()?, Rows::new());
    write(&options(&dirs.archive), &dirs.store, &mut rows)?;
    // Killed between the record and the first commit in the archive.
    let killed = dirs.path("killed");
    drop(Store::open(&killed)?);
    fs::copy(dirs.store.join("archive.known"), killed.join("archive.known"))?;
    let outcome = Store::open(&killed);
    assert!(matches!(outcome, Err(Error::ArchiveNotNamed { .. })), "{outcome:?}");
    // The archive belongs to the other store, and does not end.
    drop(Store::options().without_archive().open(&killed)?);
    assert!(!dirs.has_ended());
    drop(Store::open(&killed)?);
    Ok(())
}

#[test]
fn a_damaged_record_is_that_of_an_archive() -> TestResult {
    let (dirs, mut rows) = (Dirs::new()?, Rows::new());
    write(&options(&dirs.archive), &dirs.store, &mut rows)?;
    let record = dirs.store.join("archive.known");
    let bytes = fs::read(&record)?;
    for damaged in [&bytes[..0], &bytes[..20], &[&bytes[..], b"x"].concat()] {
        fs::write(&record, damaged)?;
        let outcome = Store::open(&dirs.store);
        assert!(
            matches!(outcome, Err(Error::ArchiveNotNamed { archive: None, .. })),
            "{outcome:?}"
        );
    }
    write(&options(&dirs.archive), &dirs.store, &mut rows)?;
    assert_eq!(fs::read(&record)?, bytes);
    Ok(())
}

#[test]
fn an_earlier_archive_ends_when_another_is_named() -> TestResult {
    let (dirs, mut rows) = (Dirs::new()?, Rows::new());
    write(&options(&dirs.archive), &dirs.store, &mut rows)?;
    let archived = rows.clone();
    let other = dirs.path("other");
    write(&options(&other), &dirs.store, &mut rows)?;
    let to = dirs.path("to");
    refused_as_ended(&Store::restore_archive(&dirs.archive).run(&to));
    Store::restore_archive(&other).run(&to)?;
    assert!(rows_of(&to)? == rows);
    let to = dirs.path("earlier");
    Store::restore_archive(&dirs.archive).until_end().run(&to)?;
    assert!(rows_of(&to)? == archived);
    // An archive that was renamed is not another archive.
    let renamed = dirs.path("renamed");
    fs::rename(&other, &renamed)?;
    write(&options(&renamed), &dirs.store, &mut rows)?;
    let to = dirs.path("again");
    Store::restore_archive(&renamed).run(&to)?;
    assert!(rows_of(&to)? == rows);
    Ok(())
}

#[test]
fn a_function_has_to_be_given_too() -> TestResult {
    let (dirs, mut rows) = (Dirs::new()?, Rows::new());
    let to = dirs.archive.clone();
    let function = Store::options().durability(Durability::Journal).archive_with(move |file| {
        let path = to.join(file.name);
        fs::create_dir_all(path.parent().expect("a directory"))?;
        fs::copy(file.path, path).map(drop)
    });
    drop(function.open(&dirs.store)?);
    let outcome = Store::open(&dirs.store);
    assert!(matches!(outcome, Err(Error::ArchiveNotNamed { archive: None, .. })), "{outcome:?}");
    drop(function.open(&dirs.store)?);
    write(&Store::options().without_archive(), &dirs.store, &mut rows)?;
    write(&Store::options(), &dirs.store, &mut rows)?;
    Ok(())
}

#[test]
fn copies_and_promoted_followers_have_no_archive() -> TestResult {
    let (dirs, mut rows) = (Dirs::new()?, Rows::new());
    write(&options(&dirs.archive), &dirs.store, &mut rows)?;
    let store = options(&dirs.archive).open(&dirs.store)?;
    let paths =
        ["backup", "compact", "restored", "from_archive", "standby"].map(|it| dirs.path(it));
    let [backup, compact, restored, from_archive, standby] = &paths;
    store.backup_to(backup)?;
    store.compact_to(compact)?;
    Store::restore(backup, restored)?;
    wait_for_archive(&store);
    drop(store);
    Store::restore_archive(&dirs.archive).run(from_archive)?;
    drop(Follower::open(standby, &dirs.archive)?.promote()?);
    for path in &paths {
        write(&Store::options(), path, &mut rows.clone())?;
    }
    assert!(!dirs.has_ended());
    Ok(())
}

#[test]
fn a_sharded_store_is_not_written_without_its_archive() -> TestResult {
    let dirs = Dirs::new()?;
    let store = shards::options(&dirs.archive).open(&dirs.store)?;
    let orders = shards::OrderRepository::open(&store)?;
    wait_for_archive(&store);
    let mut rows = shards::Orders::new();
    for _ in 0..10 {
        shards::change(&store, &orders, &mut rows, &mut Random(72))?;
    }
    let last = last_commit(&store)?;
    drop((store, orders));
    let outcome = Store::open(&dirs.store);
    assert!(matches!(outcome, Err(Error::ArchiveNotNamed { .. })), "{outcome:?}");
    drop(Store::options().read_only(true).open(&dirs.store)?);
    let store = Store::options().archive(&dirs.archive).open(&dirs.store)?;
    assert!(Store::open(&dirs.store).is_ok());
    let outcome = Store::options().archive(dirs.path("other")).open(&dirs.store);
    assert!(matches!(outcome, Err(Error::AlreadyOpen { .. })), "{outcome:?}");
    drop(store);

    let store = Store::options().without_archive().open(&dirs.store)?;
    let orders = shards::OrderRepository::open(&store)?;
    let archived = rows.clone();
    shards::change(&store, &orders, &mut rows, &mut Random(73))?;
    drop((store, orders));
    drop(Store::open(&dirs.store)?);
    let to = dirs.path("to");
    refused_as_ended(&Store::restore_archive(&dirs.archive).run(&to));
    refused_as_ended(&Store::restore_archive(&dirs.archive).until(SystemTime::now()).run(&to));
    Store::restore_archive(&dirs.archive).until_commit(last).run(&to)?;
    let to = dirs.path("end");
    Store::restore_archive(&dirs.archive).until_end().run(&to)?;
    let ended = Store::open(&to)?;
    assert!(shards::rows_in(&ended)? == archived);
    let store = shards::options(&dirs.archive).open(&dirs.store)?;
    wait_for_archive(&store);
    drop(store);
    let to = dirs.path("all");
    Store::restore_archive(&dirs.archive).run(&to)?;
    let all = Store::open(&to)?;
    assert!(shards::rows_in(&all)? == rows);
    Ok(())
}

#[test]
fn a_store_whose_shard_map_manager_is_rebuilt_keeps_its_archive() -> TestResult {
    let (dirs, mut rows) = (Dirs::new()?, BTreeMap::default());
    let store = shards::options(&dirs.archive).open(&dirs.store)?;
    let orders = shards::OrderRepository::open(&store)?;
    for _ in 0..10 {
        shards::change(&store, &orders, &mut rows, &mut Random(74))?;
    }
    let places = store.shard_directories();
    drop((store, orders));
    fs::remove_file(dirs.store.join("data.mdb"))?;
    let options = Store::options();
    let options = places.iter().fold(options, |all, (name, place)| all.shard(name, place));
    let outcome = options.rebuild(&dirs.store);
    assert!(matches!(outcome, Err(Error::ArchiveNotNamed { .. })), "{outcome:?}");
    assert!(!dirs.store.join("data.mdb").exists());
    let options = Store::options().archive(&dirs.archive);
    let options = places.iter().fold(options, |all, (name, place)| all.shard(name, place));
    let store = options.rebuild(&dirs.store)?;
    let orders = shards::OrderRepository::open(&store)?;
    shards::change(&store, &orders, &mut rows, &mut Random(75))?;
    wait_for_archive(&store);
    drop((store, orders));
    let to = dirs.path("to");
    Store::restore_archive(&dirs.archive).run(&to)?;
    assert!(shards::rows_in(&Store::open(&to)?)? == rows);
    Ok(())
}

#[test]
fn an_archived_store_is_adopted_without_its_archive() -> TestResult {
    let (dirs, mut rows) = (Dirs::new()?, Rows::new());
    write(&options(&dirs.archive), &dirs.store, &mut rows)?;
    let sharded = Store::options().adopt("main", &dirs.store);
    let outcome = sharded.clone().open(dirs.path("sharded"));
    assert!(matches!(outcome, Err(Error::ArchiveNotNamed { .. })), "{outcome:?}");
    assert!(!dirs.has_ended());
    drop(sharded.without_archive().open(dirs.path("other"))?);
    assert!(dirs.has_ended());
    Ok(())
}

#[test]
fn no_new_archive_begins_where_the_archive_of_the_store_was() -> TestResult {
    let (dirs, mut rows) = (Dirs::new()?, Rows::new());
    write(&options(&dirs.archive), &dirs.store, &mut rows)?;
    let away = dirs.path("away");
    // The disk of the archive is not mounted when the store is opened.
    for has_mount_point in [true, false] {
        fs::rename(&dirs.archive, &away)?;
        if has_mount_point {
            fs::create_dir(&dirs.archive)?;
        }
        for _ in 0..2 {
            let store = options(&dirs.archive).open(&dirs.store)?;
            change(&store, &NoteRepository::open(&store)?, &mut rows, &mut Random(74))?;
            let error = store.archive_lag().and_then(|lag| lag.error).ok_or("no error")?;
            for part in ["manifest is gone", "`without_archive`", "`--without-archive`"] {
                assert!(error.contains(part), "{error}");
            }
        }
        let is_empty = !has_mount_point && !dirs.archive.exists()
            || has_mount_point && fs::read_dir(&dirs.archive)?.next().is_none();
        assert!(is_empty, "a new archive");
        let _ = fs::remove_dir(&dirs.archive);
        fs::rename(&away, &dirs.archive)?;
        write(&options(&dirs.archive), &dirs.store, &mut rows)?;
        assert!(restored(&dirs)? == rows);
    }
    let is_base = |path: &PathBuf| path.ends_with("base");
    let bases = contents(&dirs.archive)?.into_iter().filter(|(path, _)| is_base(path)).count();
    assert_eq!(bases, 1, "another generation has begun");

    // The way to begin a new archive.
    fs::remove_dir_all(&dirs.archive)?;
    drop(Store::options().without_archive().open(&dirs.store)?);
    write(&options(&dirs.archive), &dirs.store, &mut rows)?;
    assert!(restored(&dirs)? == rows);
    Ok(())
}

#[test]
fn no_new_archive_of_a_sharded_store_begins_where_its_archive_was() -> TestResult {
    let dirs = Dirs::new()?;
    let mut rows = shards::Orders::new();
    let mut write = |is_there: bool| -> TestResult {
        let store = shards::options(&dirs.archive).open(&dirs.store)?;
        let orders = shards::OrderRepository::open(&store)?;
        shards::change(&store, &orders, &mut rows, &mut Random(75))?;
        if is_there {
            wait_for_archive(&store);
        } else {
            let error = store.archive_lag().and_then(|lag| lag.error).ok_or("no error")?;
            assert!(error.contains("manifest is gone"), "{error}");
        }
        Ok(())
    };
    write(true)?;
    let away = dirs.path("away");
    fs::rename(&dirs.archive, &away)?;
    write(false)?;
    fs::create_dir(&dirs.archive)?;
    write(false)?;
    fs::remove_dir(&dirs.archive)?;
    fs::rename(&away, &dirs.archive)?;
    write(true)?;
    let to = dirs.path("to");
    Store::restore_archive(&dirs.archive).run(&to)?;
    assert!(shards::rows_in(&Store::open(&to)?)? == rows);
    Ok(())
}
