//! Copies of a store that is in use.

use std::{
    cell::Cell,
    fs, io,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use index_table::{Durability, Error, IndexTable, Progress, Store};
use serde::{Deserialize, Serialize};

type TestResult = Result<(), Box<dyn std::error::Error>>;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[index(round)]
#[index(code, unique)]
struct Item {
    #[primary_key]
    id: u32,
    round: u32,
    code: u32,
    note: String,
}

const ITEMS: u32 = 500;

fn item(id: u32, round: u32) -> Item {
    Item { id, round, code: id ^ round.rotate_left(16), note: format!("{round} ").repeat(50) }
}

fn write(store: &Store, items: &ItemRepository, round: u32) -> index_table::Result<()> {
    store.transaction(|txn| (0..ITEMS).try_for_each(|id| items.put(txn, &item(id, round))))
}

/// Checks that all rows and entries of a copy are from one round, and returns its number.
fn whole(path: &Path) -> Result<u32, Box<dyn std::error::Error>> {
    let store = Store::open(path)?;
    let items = ItemRepository::open(&store)?;
    let txn = store.read()?;
    let rows: Vec<Item> = items.all(&txn).rows().collect::<Result<_, _>>()?;
    let round = rows.first().ok_or("no row")?.round;
    assert!(rows.iter().eq((0..ITEMS).map(|id| item(id, round)).collect::<Vec<_>>().iter()));
    assert_eq!(items.find_by_round(&txn, round).count()?, u64::from(ITEMS));
    assert_eq!(items.by_round(&txn).count()?, u64::from(ITEMS));
    for row in &rows {
        assert_eq!(items.get_by_code(&txn, row.code)?.as_ref(), Some(row));
    }
    drop(txn);
    // The copy can be written to like any store.
    write(&store, &items, round + 1)?;
    Ok(round)
}

fn length(path: &Path) -> io::Result<u64> {
    fs::metadata(path.join("data.mdb")).map(|file| file.len())
}

fn names(path: &Path) -> io::Result<Vec<String>> {
    let mut names = fs::read_dir(path)?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<io::Result<Vec<_>>>()?;
    names.sort();
    Ok(names)
}

#[test]
fn a_copy_is_a_committed_state_during_writes() -> TestResult {
    let dir = tempfile::tempdir()?;
    let store = Store::open(dir.path().join("store"))?;
    let items = ItemRepository::open(&store)?;
    write(&store, &items, 0)?;
    let is_over = AtomicBool::new(false);
    let mut rounds = Vec::new();
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            (1..)
                .take_while(|_| !is_over.load(Ordering::Relaxed))
                .try_fold(0, |_, round| write(&store, &items, round).map(|()| round))
        });
        let copied = (0..20).try_for_each(|n| -> TestResult {
            let path = dir.path().join(format!("copies/{n}"));
            if n % 2 == 0 {
                store.backup_to(&path)?;
            } else {
                store.compact_to(&path)?;
            }
            rounds.push(whole(&path)?);
            Ok(())
        });
        is_over.store(true, Ordering::Relaxed);
        let last = writer.join().unwrap_or_else(|_| panic!("the writer"))?;
        assert!(rounds.is_sorted() && rounds.last() <= Some(&last), "{rounds:?} {last}");
        copied
    })?;
    assert!(rounds.first() < rounds.last(), "no round was written during the copies: {rounds:?}");
    assert_eq!(names(dir.path())?, ["copies", "store"]);
    assert_eq!(names(&dir.path().join("copies"))?.len(), 20);
    Ok(())
}

#[test]
fn a_compact_copy_leaves_out_free_pages() -> TestResult {
    let dir = tempfile::tempdir()?;
    let path = |name| dir.path().join(name);
    // With a journal, no space is reserved.
    let store = Store::options().durability(Durability::Full).open(path("store"))?;
    let items = ItemRepository::open(&store)?;
    write(&store, &items, 1)?;
    store.transaction(|txn| {
        let large = |id| Item { note: "x".repeat(10_000), ..item(id, 1) };
        (ITEMS..ITEMS + 500).try_for_each(|id| items.insert(txn, &large(id)))
    })?;
    store.transaction(|txn| {
        (ITEMS..ITEMS + 500).try_for_each(|id| items.delete(txn, id).map(drop))
    })?;
    let mut reports: Vec<Progress> = Vec::new();
    store.backup(path("backup")).progress(|at| reports.push(at)).run()?;
    let last = reports.last().ok_or("no progress")?;
    // Reserved space is not copied.
    let used = length(&path("backup"))?;
    assert_eq!((last.done, last.total), (used, Some(used)));
    assert!(used < length(&path("store"))?);
    assert!(reports.is_sorted_by_key(|progress| progress.done));

    reports.clear();
    store.backup(path("compact")).compact().progress(|at| reports.push(at)).run()?;
    let last = reports.last().ok_or("no progress")?;
    assert_eq!((last.done, last.total), (length(&path("compact"))?, Some(used)));
    assert!(last.total.is_some_and(|total| last.done * 4 < total), "{last:?}");

    assert_eq!((whole(&path("backup"))?, whole(&path("compact"))?), (1, 1));
    Ok(())
}

#[test]
fn a_copy_that_fails_changes_no_files() -> TestResult {
    let dir = tempfile::tempdir()?;
    let store = Store::open(dir.path().join("store"))?;
    let items = ItemRepository::open(&store)?;
    write(&store, &items, 1)?;
    fs::create_dir(dir.path().join("empty"))?;
    fs::write(dir.path().join("file"), "something")?;
    #[cfg(unix)]
    std::os::unix::fs::symlink("nowhere", dir.path().join("link"))?;
    let before = names(dir.path())?;
    for name in before.iter().map(String::as_str).chain(["store/data.mdb"]) {
        for result in
            [store.backup_to(dir.path().join(name)), store.compact_to(dir.path().join(name))]
        {
            let Err(Error::Io { path, source }) = result else {
                return Err(format!("{result:?}").into());
            };
            assert_eq!(
                (path, source.kind()),
                (dir.path().join(name), io::ErrorKind::AlreadyExists)
            );
        }
    }
    assert!(matches!(store.backup_to(dir.path().join("file/copy")), Err(Error::Io { .. })));
    assert!(matches!(store.backup_to("/"), Err(Error::Io { .. })));
    let txn = store.write()?;
    assert!(matches!(store.backup_to(dir.path().join("copy")), Err(Error::WriteInProgress)));
    assert!(matches!(store.compact_to(dir.path().join("copy")), Err(Error::WriteInProgress)));
    drop(txn);
    // A file is created at the destination during the copy.
    let path = dir.path().join("late");
    let late = store.backup(&path).progress(|_| {
        fs::create_dir_all(path.join("inside")).unwrap_or_else(|error| panic!("{error}"));
    });
    let late = late.run();
    assert!(matches!(late, Err(Error::Io { .. })), "{late:?}");
    fs::remove_dir_all(path)?;

    assert_eq!(names(dir.path())?, before);
    let Err(error @ Error::NotOffered { .. }) =
        Store::in_memory().backup_to(dir.path().join("copy"))
    else {
        panic!("a store in memory has no file");
    };
    assert_eq!(
        error.to_string(),
        "this store does not offer copies, because it is in memory and has no file"
    );
    store.backup_to(dir.path().join("copy"))?;
    assert_eq!(whole(&dir.path().join("copy"))?, 1);
    Ok(())
}

#[test]
fn a_stopped_copy_leaves_no_files() -> TestResult {
    let dir = tempfile::tempdir()?;
    let store = Store::open(dir.path().join("store"))?;
    let items = ItemRepository::open(&store)?;
    for round in 0..30 {
        store.transaction(|txn| {
            let large = |id| Item { note: "x".repeat(2000), ..item(round * ITEMS + id, 1) };
            (0..ITEMS).try_for_each(|id| items.insert(txn, &large(id)))
        })?;
    }
    let path = dir.path().join("copy");
    for (is_compact, is_checked) in [(false, false), (false, true), (true, false)] {
        let mut units = Vec::new();
        for stop_at in 0.. {
            let (calls, mut last) = (Cell::new(0), None);
            let backup =
                store.backup(&path).stop_when(|| calls.replace(calls.get() + 1) == stop_at);
            let backup = backup.progress(|at| last = Some(at.unit));
            let backup = if is_compact { backup.compact() } else { backup };
            let stopped = if is_checked { backup.checked().run() } else { backup.run() };
            units.extend(last);
            let Err(error) = stopped else {
                // There were no more calls.
                assert_eq!(calls.get(), stop_at);
                break;
            };
            assert!(
                matches!(&error, Error::Io { path: own, source }
                    if *own == path && source.kind() == io::ErrorKind::Interrupted),
                "{error:?}"
            );
            assert_eq!(names(dir.path())?, ["store"]);
        }
        let copied = store.backup(&path).run();
        assert!(matches!(copied, Err(Error::Io { .. })), "the last copy is complete");
        let count = items.all(&store.read()?).count()?;
        let copy = Store::open(&path)?;
        assert_eq!(ItemRepository::open(&copy)?.all(&copy.read()?).count()?, count);
        drop(copy);
        fs::remove_dir_all(&path)?;
        // Each phase was stopped more than once.
        let stops = |unit| units.iter().filter(|own| **own == unit).count();
        assert!(stops("bytes") > 10, "{units:?}");
        assert_eq!(stops("pages") > 5, is_compact || is_checked, "{units:?}");
    }
    Ok(())
}

#[test]
fn a_checked_copy_finds_the_damage_that_a_check_finds() -> TestResult {
    const PAGE: usize = 4096;
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("store");
    {
        let store = Store::open(&path)?;
        let items = ItemRepository::open(&store)?;
        write(&store, &items, 1)?;
        write(&store, &items, 2)?;
    }
    let data = path.join("data.mdb");
    let bytes = fs::read(&data)?;
    let (mut damaged, mut intact) = (0, 0);
    for at in (2..bytes.len() / PAGE).step_by(3) {
        let mut changed = bytes.clone();
        changed[at * PAGE..][..PAGE].fill(0);
        fs::write(&data, changed)?;
        // Some damage is found when the store is opened.
        let Ok(store) = Store::options().read_only(true).open(&path) else { continue };
        let (copy, checked) = (dir.path().join("copy"), store.check());
        let copied = store.backup(&copy).checked().run();
        assert_eq!(
            checked.as_ref().map_err(ToString::to_string),
            copied.as_ref().map_err(ToString::to_string),
            "page {at}"
        );
        assert_eq!(copy.exists(), copied.is_ok());
        assert_eq!(names(dir.path())?.len(), 1 + usize::from(copied.is_ok()));
        if copied.is_ok() {
            intact += 1;
            assert_eq!(names(&copy)?, ["data.mdb"]);
            fs::remove_dir_all(copy)?;
        } else {
            damaged += 1;
        }
    }
    assert!(damaged > 3 && intact > 3, "{damaged} damaged, {intact} intact");
    Ok(())
}

#[test]
fn a_copy_removes_what_a_killed_copy_has_left() -> TestResult {
    let dir = tempfile::tempdir()?;
    let path = |name: &str| dir.path().join(name);
    let store = Store::open(path("store"))?;
    let items = ItemRepository::open(&store)?;
    write(&store, &items, 1)?;
    let left = [".copy.123-0.partial", ".copy.124-7.partial"];
    // That of a running process, those of copies with other names, and other files.
    let others = [
        ".copy.125-0.partial",
        ".copy2.123-0.partial",
        ".copy.a.123-0.partial",
        ".copy.a-0.partial",
    ];
    for name in left.iter().chain(&others) {
        fs::create_dir_all(path(name).join("shard.0"))?;
        fs::write(path(name).join("shard.0/data.mdb"), "incomplete")?;
    }
    let running = fs::File::create(path(others[0]).join("copying.lock"))?;
    running.lock()?;
    store.backup_to(path("copy"))?;
    assert!(left.iter().all(|name| !path(name).exists()), "{:?}", names(dir.path())?);
    assert!(others.iter().all(|name| path(name).exists()), "{:?}", names(dir.path())?);
    drop(running);
    fs::remove_dir_all(path("copy"))?;
    store.backup_to(path("copy"))?;
    assert!(!path(others[0]).exists());
    // A copy is locked while it is written, so another one does not remove it.
    let (second, seen) = (path("copy3"), Cell::new(0));
    let backup = store.backup(&second).progress(|_| {
        if seen.replace(seen.get() + 1) == 0 {
            let refused = store.backup(&second).stop_when(|| true).run();
            assert!(refused.is_err());
        }
    });
    backup.run()?;
    assert_eq!(whole(&second)?, 1);
    Ok(())
}

#[test]
fn a_restore_replaces_no_existing_store() -> TestResult {
    let dir = tempfile::tempdir()?;
    let path = |name| dir.path().join(name);
    let store = Store::open(path("store"))?;
    let items = ItemRepository::open(&store)?;
    write(&store, &items, 1)?;
    store.compact_to(path("backup"))?;
    write(&store, &items, 2)?;

    let Err(Error::Io { source, .. }) = Store::restore(path("backup"), path("store")) else {
        return Err("a store was replaced".into());
    };
    assert_eq!(source.kind(), io::ErrorKind::AlreadyExists);
    let Err(Error::Io { path: missing, source }) = Store::restore(path("nothing"), path("new"))
    else {
        return Err("nothing was restored".into());
    };
    assert_eq!((missing, source.kind()), (path("nothing/data.mdb"), io::ErrorKind::NotFound));
    assert!(!path("nothing").exists() && !path("new").exists());
    fs::create_dir(path("damaged"))?;
    fs::write(path("damaged/data.mdb"), "no store")?;
    assert!(matches!(Store::restore(path("damaged"), path("new")), Err(Error::DamagedFile { .. })));
    assert!(!path("new").exists());

    let mut reports: Vec<Progress> = Vec::new();
    let before = fs::read(path("backup/data.mdb"))?;
    Store::restore(path("backup"), path("new"))?;
    // A journal would write to the backup.
    assert_eq!(names(&path("backup"))?, ["data.mdb", "lock.mdb"]);
    assert!(fs::read(path("backup/data.mdb"))? == before);
    Store::open(path("backup"))?.backup(path("again")).progress(|at| reports.push(at)).run()?;
    let last = reports.last().ok_or("no progress")?;
    assert_eq!((last.done, last.total), (length(&path("new"))?, Some(length(&path("backup"))?)));
    assert_eq!((whole(&path("new"))?, whole(&path("backup"))?), (1, 1));
    // A store that is in use can be restored from.
    Store::restore(path("store"), path("another"))?;
    assert_eq!(whole(&path("another"))?, 2);
    Ok(())
}

/// The parent of a path with one component is the current directory.
#[test]
fn a_copy_can_have_a_relative_path() -> TestResult {
    let dir = tempfile::tempdir_in(".")?;
    let name = dir.path().file_name().ok_or("no name")?;
    let store = Store::open(dir.path())?;
    let items = ItemRepository::open(&store)?;
    write(&store, &items, 1)?;
    let mut copy = name.to_owned();
    copy.push("-copy");
    let copied = store.backup_to(&copy);
    let round = whole(copy.as_ref());
    fs::remove_dir_all(&copy)?;
    copied?;
    assert_eq!(round?, 1);
    Ok(())
}

#[cfg(unix)]
fn modes(path: &Path) -> io::Result<(u32, u32)> {
    use std::os::unix::fs::PermissionsExt;

    let mode = |path: &Path| fs::metadata(path).map(|entry| entry.permissions().mode() & 0o7777);
    Ok((mode(path)?, mode(&path.join("data.mdb"))?))
}

#[cfg(unix)]
#[test]
fn a_copy_has_the_modes_of_the_store() -> TestResult {
    use std::os::unix::fs::PermissionsExt;

    let dir = tempfile::tempdir()?;
    let path = |name: &str| dir.path().join(name);
    let store = Store::open(path("new/store"))?;
    let items = ItemRepository::open(&store)?;
    write(&store, &items, 1)?;
    // New directories and files are private, and so are their copies.
    let mode =
        |name: &str| fs::metadata(path(name)).map(|entry| entry.permissions().mode() & 0o7777);
    assert_eq!((mode("new")?, mode("new/store/lock.mdb")?), (0o700, 0o600));
    assert_eq!(modes(&path("new/store"))?, (0o700, 0o600));
    let copied = |name: &str| -> Result<_, Box<dyn std::error::Error>> {
        let path = |what: &str| path(what).join(name);
        // Other users can't read a copy before it is complete.
        let mut seen = Vec::new();
        let backup = store.backup(path("backup")).progress(|_| {
            let partial = fs::read_dir(dir.path().join("backup")).into_iter().flatten().flatten();
            let partial = partial
                .map(|entry| entry.path())
                .find(|path| path.extension().is_some_and(|extension| extension == "partial"));
            seen.extend(partial.map(|partial| modes(&partial).ok()));
        });
        backup.run()?;
        assert!(!seen.is_empty(), "no partial copy was observed");
        assert!(seen.iter().all(|modes| *modes == Some((0o700, 0o600))), "{seen:?}");
        store.compact_to(path("compact"))?;
        Store::restore(path("backup"), path("restored"))?;
        let copies = [path("backup"), path("compact"), path("restored")];
        Ok(copies.iter().map(|copy| modes(copy)).collect::<Result<Vec<_>, _>>()?)
    };
    assert_eq!(copied("private")?, [(0o700, 0o600); 3]);
    assert_eq!((mode("backup")?, mode("restored")?), (0o700, 0o700));

    // Changed modes are copied, regardless of the umask of the process.
    for (name, directory, file) in [("group", 0o770, 0o660), ("all", 0o755, 0o644)] {
        fs::set_permissions(path("new/store"), fs::Permissions::from_mode(directory))?;
        fs::set_permissions(path("new/store/data.mdb"), fs::Permissions::from_mode(file))?;
        assert_eq!(copied(name)?, [(directory, file); 3]);
        assert_eq!(whole(&path("restored").join(name))?, 1);
    }
    Ok(())
}
