//! Full disks, and disks that can't be written to.
#![cfg(target_os = "linux")]

use std::{
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use index_table::{Durability, Error, IndexTable, ShardMap, Store, report::MoveState};
use serde::{Deserialize, Serialize};

#[path = "support/nobody.rs"]
mod nobody;
#[path = "support/privileges.rs"]
mod privileges;
use privileges::not_privileged;

type TestResult = Result<(), Box<dyn std::error::Error>>;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[index(code, unique)]
struct Blob {
    #[primary_key]
    id: u32,
    code: u32,
    bytes: Vec<u8>,
}

fn blob(id: u32) -> Blob {
    Blob { id, code: !id, bytes: vec![id as u8; 1000] }
}

fn insert(
    store: &Store,
    blobs: &BlobRepository,
    ids: std::ops::Range<u32>,
) -> index_table::Result<()> {
    store.transaction(|txn| ids.clone().try_for_each(|id| blobs.insert(txn, &blob(id))))
}

fn check(store: &Store, blobs: &BlobRepository, rows: u32) -> TestResult {
    let txn = store.read()?;
    let found: Vec<Blob> = blobs.all(&txn).rows().collect::<Result<_, _>>()?;
    assert!(found.iter().eq((0..rows).map(blob).collect::<Vec<_>>().iter()), "{}", found.len());
    for id in 0..rows {
        assert_eq!(blobs.get_by_code(&txn, !id)?.map(|blob| blob.id), Some(id));
    }
    Ok(())
}

/// Writes ten rows at a time until the disk is full, and returns their number. A reader holds the snapshot of
/// the first ten, so that no page is reused.
fn fill(store: &Store, blobs: &BlobRepository) -> Result<u32, Box<dyn std::error::Error>> {
    insert(store, blobs, 0..10)?;
    let before = store.read()?;
    let mut rows = 10;
    let error = loop {
        match insert(store, blobs, rows..rows + 10) {
            Ok(()) => rows += 10,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::DiskFull { .. }), "{error:?}");
    check(store, blobs, rows)?;
    // A large transaction writes pages before its commit.
    let result = insert(store, blobs, rows..rows + 20_000);
    assert!(matches!(result, Err(Error::DiskFull { .. })), "{result:?}");
    check(store, blobs, rows)?;
    let mut by_hand = store.write()?;
    let result = (rows..rows + 10_000).try_for_each(|id| blobs.insert(&mut by_hand, &blob(id)));
    assert!(result.and_then(|()| by_hand.commit()).is_err());
    check(store, blobs, rows)?;
    assert_eq!(blobs.all(&before).count()?, 10);
    Ok(rows)
}

/// Checks that each closure of a failed commit gets the error, or is committed alone, and that the writer continues. Returns the
/// rows that were inserted.
fn group(
    store: &Store,
    blobs: &BlobRepository,
    rows: u32,
) -> Result<Vec<u32>, Box<dyn std::error::Error>> {
    let writer = store.writer()?.queue(5000).most(5000);
    let txn = store.write()?;
    let submitted: Vec<_> = (rows..rows + 5000)
        .map(|id| {
            let blobs = blobs.clone();
            writer.submit(move |txn| blobs.insert(txn, &blob(id)))
        })
        .collect();
    drop(txn);
    let mut inserted = Vec::new();
    for (id, submitted) in (rows..).zip(submitted) {
        match submitted.wait() {
            Ok(()) => inserted.push(id),
            outcome => assert!(matches!(outcome, Err(Error::DiskFull { .. })), "{outcome:?}"),
        }
    }
    assert!(inserted.len() < 1000, "{}", inserted.len());
    let txn = store.read()?;
    assert_eq!(blobs.all(&txn).count()?, u64::from(rows) + inserted.len() as u64);
    for id in &inserted {
        assert_eq!(blobs.get(&txn, *id)?, Some(blob(*id)));
    }
    drop(txn);
    // A closure that writes nothing succeeds.
    let read_only = blobs.clone();
    let count = writer.submit(move |txn| read_only.all(txn).count()).wait()?;
    assert_eq!(count, u64::from(rows) + inserted.len() as u64);
    Ok(inserted)
}

/// A small file system, if the process may mount one.
struct Disk(tempfile::TempDir);

impl Disk {
    fn new() -> Result<Option<Self>, Box<dyn std::error::Error>> {
        let disk = Self(tempfile::tempdir()?);
        if disk.mount(&["-t", "tmpfs", "-o", "size=3m", "tmpfs"]) {
            return Ok(Some(disk));
        }
        not_privileged("this process can't mount a file system")?;
        Ok(None)
    }

    fn mount(&self, options: &[&str]) -> bool {
        let mut mount = Command::new("mount");
        let mount = mount.args(options).arg(self.path()).stderr(Stdio::null()).status();
        mount.is_ok_and(|status| status.success())
    }

    /// Remounts the disk, with retries: the disk is busy while another test starts a process, because that
    /// process has the files open until `exec`.
    fn remount(&self, mode: &str) -> bool {
        (0..200).any(|_| {
            self.mount(&["-o", &format!("remount,{mode}")]) || {
                thread::sleep(Duration::from_millis(50));
                false
            }
        })
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let mut unmount = Command::new("umount");
        let _ = unmount.arg("--lazy").arg(self.path()).stderr(Stdio::null()).status();
    }
}

#[test]
fn a_full_disk_loses_no_commit_and_the_store_works_again() -> TestResult {
    let Some(disk) = Disk::new()? else { return Ok(()) };
    let store = Store::open(disk.path().join("store"))?;
    let blobs = BlobRepository::open(&store)?;
    let rows = fill(&store, &blobs)?;
    assert!(rows > 100, "{rows}");
    // The space of deleted rows is used again, also if a checkpoint keeps their pages.
    let kept = rows / 2;
    store.transaction(|txn| (kept..rows).try_for_each(|id| blobs.delete(txn, id).map(drop)))?;
    check(&store, &blobs, kept)?;
    (kept..rows).try_for_each(|id| insert(&store, &blobs, id..id + 1))?;
    check(&store, &blobs, rows)?;
    let inserted = group(&store, &blobs, rows)?;

    // On a full disk, a copy fails and leaves no files.
    for result in
        [store.backup_to(disk.path().join("copy")), store.compact_to(disk.path().join("copy"))]
    {
        let Err(Error::DiskFull { path, source }) = result else {
            return Err(format!("{result:?}").into());
        };
        assert_eq!((path, source.kind()), (disk.path().join("copy"), io::ErrorKind::StorageFull));
    }
    assert_eq!(fs::read_dir(disk.path())?.count(), 1);

    // After the disk is enlarged, the open store continues.
    assert!(disk.mount(&["-o", "remount,size=64m"]));
    store.transaction(|txn| inserted.iter().try_for_each(|id| blobs.delete(txn, *id).map(drop)))?;
    insert(&store, &blobs, rows..rows + 5000)?;
    check(&store, &blobs, rows + 5000)?;
    store.backup_to(disk.path().join("copy"))?;
    drop((store, blobs));
    for name in ["store", "copy"] {
        let store = Store::open(disk.path().join(name))?;
        check(&store, &BlobRepository::open(&store)?, rows + 5000)?;
    }
    Ok(())
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "parts", shard_by = tenant)]
#[index(code, unique, scope = "global")]
struct Part {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    number: u32,
    code: u64,
    bytes: Vec<u8>,
}

fn part(tenant: u32, number: u32) -> Part {
    let code = u64::from(tenant) << 32 | u64::from(number);
    Part { tenant, number, code, bytes: vec![number as u8; 1000] }
}

/// The rows are in shard `near`, with 500 rows for each tenant. Shard `far` is on the small disk.
struct Parts {
    store: Store,
    parts: PartRepository,
}

const TENANTS: u32 = 20;

impl Parts {
    fn open(path: &Path) -> index_table::Result<Self> {
        let store = Store::open(path)?;
        Ok(Self { parts: PartRepository::open(&store)?, store })
    }

    fn create(path: &Path, disk: &Path) -> index_table::Result<Self> {
        let map = ShardMap::ranges().to("near", 0u32..);
        let options = Store::options().shard("near", "near").shard("far", disk.join("far"));
        drop(options.map("parts", map).open(path)?);
        let own = Self::open(path)?;
        for tenant in 0..TENANTS {
            let insert = |number| (tenant, number);
            own.store.transaction(|txn| {
                let mut all = (0..500).map(insert);
                all.try_for_each(|(tenant, number)| own.parts.insert(txn, &part(tenant, number)))
            })?;
        }
        Ok(own)
    }

    /// Checks that each row and each entry is there once.
    fn check(&self) -> TestResult {
        let txn = self.store.read()?;
        let found: Vec<Part> = self.parts.all(&txn).rows().collect::<Result<_, _>>()?;
        let all = (0..TENANTS).flat_map(|tenant| (0..500).map(move |number| part(tenant, number)));
        assert!(found.iter().eq(&all.collect::<Vec<_>>()), "{} rows", found.len());
        assert_eq!(self.parts.by_code(&txn).count()?, u64::from(TENANTS) * 500);
        drop(txn);
        let report = self.store.verify()?;
        assert!(report.is_clean(), "{report}");
        Ok(())
    }

    /// Moves rows until the disk of the target is full, and checks that the source has all rows. Returns the move.
    fn move_until_full(&self) -> Result<u64, Box<dyn std::error::Error>> {
        let Err(error) = self.store.move_range("parts", 0u32.., "far").run() else {
            return Err("the disk is large enough".into());
        };
        assert!(matches!(error, Error::DiskFull { .. }), "{error}");
        self.check()?;
        assert_eq!(self.parts.shard_of(&self.store, 7)?.name(), "near");
        let moves = self.store.moves()?;
        assert_eq!(moves.iter().map(|it| it.state).collect::<Vec<_>>(), [MoveState::Copying]);
        Ok(moves[0].id)
    }
}

#[test]
fn a_move_to_a_full_disk_is_cancelled_or_continued() -> TestResult {
    let Some(disk) = Disk::new()? else { return Ok(()) };
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("store");
    let own = Parts::create(&path, disk.path())?;
    own.check()?;
    // While the disk is full, the move continues no further, and its other keys stay where they are.
    let id = own.move_until_full()?;
    assert!(own.store.resume_move(id).run().is_err());
    own.check()?;

    // With more space, the open store cancels the move, and starts it again.
    assert!(disk.remount("size=8m"));
    own.store.cancel_move(id)?;
    own.check()?;
    let id = own.move_until_full()?;

    // The store is opened again, and continues.
    drop(own);
    assert!(disk.remount("size=64m"));
    let own = Parts::open(&path)?;
    own.check()?;
    own.store.resume_move(id).run()?;
    assert_eq!(own.parts.shard_of(&own.store, 7)?.name(), "far");
    assert!(own.store.moves()?.is_empty());
    own.check()?;
    drop(own);
    Parts::open(&path)?.check()
}

/// The entries of the shard that is attached are added to a shard on a full disk.
#[test]
fn a_full_disk_refuses_an_attached_shard_and_loses_no_entry() -> TestResult {
    const LEAVES: u32 = 2;
    let Some(disk) = Disk::new()? else { return Ok(()) };
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("store");
    let options = Store::options().shard("near", "near").shard("away", "away");
    let store = options
        .shard("far", disk.path().join("far"))
        .map("parts", ShardMap::ranges().to("near", ..LEAVES).to("away", LEAVES..))
        .map("parts.code", ShardMap::ranges().to("far", 0u64..))
        .open(&path)?;
    let own = Parts { parts: PartRepository::open(&store)?, store };
    own.store.transaction(|txn| {
        let mut all = (0..TENANTS).flat_map(|tenant| (0..500).map(move |number| (tenant, number)));
        all.try_for_each(|(tenant, number)| own.parts.insert(txn, &part(tenant, number)))
    })?;
    own.check()?;

    // The snapshot prevents the reuse of pages.
    let before = own.store.read()?;
    own.store.detach_shard("away")?;
    fill_disk(disk.path())?;
    // There is room for the commit that begins the change, but not for all entries.
    {
        let filler = fs::File::options().write(true).open(disk.path().join("filler"))?;
        filler.set_len(filler.metadata()?.len() - (320 << 10))?;
    }
    let code = part(LEAVES, 7).code;
    for _ in 0..2 {
        let attached = own.store.attach_shard("away", "away");
        assert!(matches!(&attached, Err(Error::DiskFull { .. })), "{attached:?}");
        let txn = own.store.read()?;
        assert_eq!(own.parts.all(&txn).count()?, u64::from(LEAVES) * 500);
        assert_eq!(own.parts.by_code(&txn).count()?, u64::from(LEAVES) * 500);
        assert!(own.parts.get_by_code(&txn, code)?.is_none());
        assert!(own.parts.get_by_code(&txn, part(1, 7).code)?.is_some());
        // A commit in several shards changes nothing.
        let inserted = own.store.transaction(|txn| own.parts.insert(txn, &part(1, 1000)));
        assert!(matches!(&inserted, Err(Error::DiskFull { .. })), "{inserted:?}");
        assert!(own.parts.get(&own.store.read()?, 1, 1000)?.is_none());
    }
    assert_eq!(own.parts.by_code(&before).count()?, u64::from(TENANTS) * 500);
    drop(before);

    fs::remove_file(disk.path().join("filler"))?;
    // A row can take the key of a hidden entry, and then the shard can't be attached.
    own.store.transaction(|txn| own.parts.insert(txn, &Part { code, ..part(1, 1000) }))?;
    let attached = own.store.attach_shard("away", "away");
    assert!(matches!(&attached, Err(Error::ShardRefused { .. })), "{attached:?}");
    own.store.transaction(|txn| own.parts.delete(txn, 1, 1000))?;
    own.store.attach_shard("away", "away")?;
    own.check()?;
    drop(own);
    Parts::open(&path)?.check()
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "notes", shard_by = tenant)]
struct Note {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    number: u32,
    bytes: Vec<u8>,
}

/// The disk with less space has enough for its part of the commit, and the other disk does not.
#[test]
fn a_commit_that_does_not_fit_on_one_of_two_disks_changes_no_shard() -> TestResult {
    let (Some(first), Some(second)) = (Disk::new()?, Disk::new()?) else { return Ok(()) };
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("store");
    let map = ShardMap::ranges().to("first", ..1u32).to("second", 1u32..);
    let options = Store::options().shard("first", first.path().join("shard"));
    let options = options.shard("second", second.path().join("shard")).map("notes", map);
    let store = options.open(&path)?;
    let notes = NoteRepository::open(&store)?;
    let insert = |numbers: std::ops::Range<u32>, length| {
        store.transaction(|txn| {
            notes.insert(txn, &Note { tenant: 0, number: numbers.start, bytes: vec![7] })?;
            numbers.clone().try_for_each(|number| {
                notes.insert(txn, &Note { tenant: 1, number, bytes: vec![7; length] })
            })
        })
    };
    insert(0..1, 1)?;
    for (disk, left) in [(&first, 320 << 10), (&second, 512 << 10)] {
        fill_disk(disk.path())?;
        let filler = fs::File::options().write(true).open(disk.path().join("filler"))?;
        filler.set_len(filler.metadata()?.len() - left)?;
    }
    let outcome = insert(1..2001, 1000);
    assert!(matches!(outcome, Err(Error::DiskFull { .. })), "{outcome:?}");
    assert_eq!(notes.all(&store.read()?).count()?, 2);
    // The open store continues.
    for disk in [&first, &second] {
        fs::remove_file(disk.path().join("filler"))?;
    }
    insert(1..101, 1000)?;
    assert_eq!(notes.all(&store.read()?).count()?, 103);
    drop((store, notes));
    let store = Store::open(&path)?;
    assert_eq!(NoteRepository::open(&store)?.all(&store.read()?).count()?, 103);
    assert!(store.verify()?.is_clean());
    Ok(())
}

fn as_other_process() -> Option<PathBuf> {
    std::env::var_os("INDEX_TABLE_OTHER_PROCESS").map(Into::into)
}

/// A limit on the file size has the same effect as a full disk, and needs no privilege.
#[test]
fn a_limit_on_the_file_size_loses_no_commit() -> TestResult {
    if let Some(path) = as_other_process() {
        let store = Store::open(&path)?;
        let blobs = BlobRepository::open(&store)?;
        let rows = fill(&store, &blobs)?;
        // After rows are deleted, writes reuse their pages.
        store.transaction(|txn| (5..rows).try_for_each(|id| blobs.delete(txn, id).map(drop)))?;
        insert(&store, &blobs, 5..rows)?;
        check(&store, &blobs, rows)?;
        fs::write(path.join("rows"), rows.to_string())?;
        return Ok(());
    }
    let dir = tempfile::tempdir()?;
    let output = Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 4096; exec \"$0\" --exact \"$1\""])
        .arg(std::env::current_exe()?)
        .arg("a_limit_on_the_file_size_loses_no_commit")
        .env("INDEX_TABLE_OTHER_PROCESS", dir.path())
        .output()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let rows: u32 = fs::read_to_string(dir.path().join("rows"))?.parse()?;
    assert!(rows > 100, "{rows}");

    let store = Store::open(dir.path())?;
    let blobs = BlobRepository::open(&store)?;
    check(&store, &blobs, rows)?;
    insert(&store, &blobs, rows..rows + 5000)?;
    check(&store, &blobs, rows + 5000)
}

/// Runs a test in its own process, which a signal may end.
fn in_another_process(name: &str, path: &Path) -> TestResult {
    let mut child = Command::new(std::env::current_exe()?);
    let child = child.args(["--exact", name]).env("INDEX_TABLE_OTHER_PROCESS", path);
    let output = child.output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{}: {}", output.status, String::from_utf8_lossy(&output.stdout)).into())
}

/// Fills the disk with a file.
fn fill_disk(disk: &Path) -> TestResult {
    let mut file = fs::File::create(disk.join("filler"))?;
    // More steps than such a disk has room for.
    for _ in 0..1000 {
        match file.write_all(&[7; 4096]) {
            Err(error) if error.kind() == io::ErrorKind::StorageFull => return Ok(()),
            outcome => outcome?,
        }
    }
    Err("the disk is too large".into())
}

#[test]
fn readers_need_no_disk_space() -> TestResult {
    const NAME: &str = "readers_need_no_disk_space";
    if let Some(disk) = as_other_process() {
        let store = Store::open(disk.join("store"))?;
        fill_disk(&disk)?;
        let readers = (0..126).map(|_| store.read()).collect::<Result<Vec<_>, _>>()?;
        assert_eq!(readers.len(), store.readers().count);
        return Ok(());
    }
    let Some(disk) = Disk::new()? else { return Ok(()) };
    in_another_process(NAME, disk.path())?;

    // A lock file of another program, without allocated space.
    fs::remove_file(disk.path().join("filler"))?;
    let lock = fs::File::create(disk.path().join("store/lock.mdb"))?;
    lock.set_len(8192)?;
    in_another_process(NAME, disk.path())
}

#[test]
fn opening_a_store_without_a_lock_file_needs_disk_space() -> TestResult {
    const NAME: &str = "opening_a_store_without_a_lock_file_needs_disk_space";
    if let Some(disk) = as_other_process() {
        for path in [disk.join("store"), disk.join("new")] {
            let result = Store::open(&path);
            let Err(Error::DiskFull { path: named, source }) = result else {
                return Err(format!("{result:?}").into());
            };
            assert_eq!((named, source.kind()), (path, io::ErrorKind::StorageFull));
        }
        return Ok(());
    }
    let Some(disk) = Disk::new()? else { return Ok(()) };
    let store = Store::open(disk.path().join("store"))?;
    let blobs = BlobRepository::open(&store)?;
    insert(&store, &blobs, 0..10)?;
    drop((store, blobs));
    fs::remove_file(disk.path().join("store/lock.mdb"))?;
    fill_disk(disk.path())?;
    in_another_process(NAME, &disk.path().canonicalize()?)?;

    fs::remove_file(disk.path().join("filler"))?;
    let store = Store::open(disk.path().join("store"))?;
    check(&store, &BlobRepository::open(&store)?, 10)?;
    Store::open(disk.path().join("new"))?;
    Ok(())
}

#[test]
fn the_lock_file_is_fully_allocated() -> TestResult {
    use std::os::unix::fs::MetadataExt;

    for readers in [1, 2, 62, 63, 126, 127, 1000, 10_000] {
        let dir = tempfile::tempdir()?;
        let options = Store::options().max_readers(readers);
        let store = options.open(dir.path())?;
        let lock = fs::metadata(dir.path().join("lock.mdb"))?;
        assert!(lock.blocks() * 512 >= lock.len(), "{readers} {lock:?}");
        assert!(lock.len() > 64 * u64::from(readers));
        // The same holds for a lock file that grows for more readers.
        drop(store);
        let _store = Store::options().max_readers(2 * readers).open(dir.path())?;
        let lock = fs::metadata(dir.path().join("lock.mdb"))?;
        assert!(lock.blocks() * 512 >= lock.len(), "{readers} {lock:?}");
        assert!(lock.len() > 128 * u64::from(readers));
    }
    Ok(())
}

/// Users that share the data file need the lock file too.
#[test]
fn a_new_lock_file_has_the_mode_of_the_data() -> TestResult {
    use std::os::unix::fs::PermissionsExt;

    let dir = tempfile::tempdir()?;
    drop(Store::open(dir.path())?);
    let [data, lock] = ["data.mdb", "lock.mdb"].map(|name| dir.path().join(name));
    for mode in [0o600, 0o660, 0o666] {
        fs::set_permissions(&data, fs::Permissions::from_mode(mode))?;
        fs::remove_file(&lock)?;
        drop(Store::open(dir.path())?);
        assert_eq!(fs::metadata(&lock)?.permissions().mode() & 0o7777, mode);
    }
    Ok(())
}

fn assert_read_only(path: &Path) {
    for open in [path.to_owned(), path.join("new")] {
        let result = Store::open(&open);
        assert!(
            matches!(&result, Err(Error::ReadOnly { path, .. }) if *path == open),
            "{result:?}"
        );
    }
}

/// Runs the test of this name in a process of an unprivileged user that owns the files at `path`.
fn run_as_nobody(name: &str, path: &Path) -> TestResult {
    use std::os::unix::fs::chown;

    use nobody::{NOBODY, as_nobody};

    let mut files = [path.to_owned(), path.join("data.mdb"), path.join("lock.mdb")].into_iter();
    let output = files
        .try_for_each(|file| chown(file, Some(NOBODY), Some(NOBODY)))
        .and_then(|()| as_nobody(name).env("INDEX_TABLE_OTHER_PROCESS", path).output());
    match output {
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && said.contains("is refused"), "{said}");
            Ok(())
        }
        Err(error) => not_privileged(&format!("no process of another user starts: {error}")),
    }
}

#[test]
fn a_directory_that_cant_be_written_to_is_refused() -> TestResult {
    use std::os::unix::fs::PermissionsExt;

    if let Some(path) = as_other_process() {
        assert!(fs::write(path.join("file"), "").is_err(), "this user ignores permissions");
        assert_read_only(&path);
        println!("the directory is refused");
        return Ok(());
    }
    let dir = tempfile::tempdir()?;
    drop(Store::open(dir.path())?);
    let file = dir.path().join("data.mdb");
    let allow = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode));
    allow(&file, 0o400)?;
    allow(dir.path(), 0o500)?;
    if fs::write(dir.path().join("file"), "").is_err() {
        assert_read_only(dir.path());
    } else {
        // The current user ignores permissions.
        run_as_nobody("a_directory_that_cant_be_written_to_is_refused", dir.path())?;
    }
    allow(dir.path(), 0o700)?;
    allow(&file, 0o600)?;
    Store::open(dir.path())?;
    Ok(())
}

#[test]
fn a_file_system_that_cant_be_written_to_is_refused() -> TestResult {
    let Some(disk) = Disk::new()? else { return Ok(()) };
    drop(Store::open(disk.path())?);
    assert!(disk.remount("ro"));
    assert_read_only(&disk.path().canonicalize()?);
    assert!(disk.remount("rw"));
    Store::open(disk.path())?;
    Ok(())
}

#[test]
fn a_store_on_a_read_only_file_system_is_read() -> TestResult {
    const NAME: &str = "a_store_on_a_read_only_file_system_is_read";
    if let Some(path) = as_other_process() {
        let store = Store::options().read_only(true).open(&path)?;
        return check(&store, &BlobRepository::open(&store)?, 50);
    }
    let Some(disk) = Disk::new()? else { return Ok(()) };
    let [path, other] = ["store", "other"].map(|name| disk.path().join(name));
    for path in [&path, &other] {
        let store = Store::open(path)?;
        let blobs = BlobRepository::open(&store)?;
        insert(&store, &blobs, 0..50)?;
    }
    fs::remove_file(other.join("lock.mdb"))?;
    assert!(disk.remount("ro"));
    for path in [&path, &other] {
        let store = Store::options().read_only(true).open(path)?;
        let blobs = BlobRepository::open(&store)?;
        check(&store, &blobs, 50)?;
        store.check()?;
        let result = insert(&store, &blobs, 50..51);
        assert!(matches!(result, Err(Error::ReadOnly { source: None, .. })), "{result:?}");
        let dir = tempfile::tempdir()?;
        store.backup_to(dir.path().join("copy"))?;
        in_another_process(NAME, path)?;
        drop(store);
        Store::restore(path, dir.path().join("restored"))?;
        for copy in ["copy", "restored"] {
            let store = Store::open(dir.path().join(copy))?;
            check(&store, &BlobRepository::open(&store)?, 50)?;
        }
    }
    assert!(disk.remount("rw"));
    Ok(())
}

#[test]
fn a_store_that_was_not_closed_is_recovered_by_a_reader_that_may_write() -> TestResult {
    let Some(disk) = Disk::new()? else { return Ok(()) };
    assert!(disk.remount("size=64m"));
    let (open, left) = (disk.path().join("open"), disk.path().join("left"));
    let store = Store::options().durability(Durability::Journal).open(&open)?;
    insert(&store, &BlobRepository::open(&store)?, 0..5)?;
    fs::create_dir(&left)?;
    for file in ["data.mdb", "journal.0", "journal.1", "journal.2"] {
        fs::copy(open.join(file), left.join(file))?;
    }
    drop(store);
    fs::remove_dir_all(&open)?;
    let before = fs::read(left.join("data.mdb"))?;
    assert!(disk.remount("ro"));
    let outcome = Store::options().read_only(true).open(&left);
    let message = outcome.as_ref().err().map(ToString::to_string).unwrap_or_default();
    assert!(matches!(outcome, Err(Error::RecoveryNeeded { .. })), "{outcome:?}");
    assert!(message.contains("`index-table recover "), "{message}");
    assert!(fs::read(left.join("data.mdb"))? == before);
    assert!(disk.remount("rw"));
    let store = Store::options().read_only(true).open(&left)?;
    assert!(store.was_recovered());
    check(&store, &BlobRepository::open(&store)?, 5)
}

/// Other processes may write to the same file system through a writable mount.
#[test]
fn a_read_only_mount_of_a_writable_file_system_is_refused() -> TestResult {
    let Some(disk) = Disk::new()? else { return Ok(()) };
    let path = disk.path().join("store");
    drop(Store::open(&path)?);
    let bound = Disk(tempfile::tempdir()?);
    assert!(bound.mount(&["--bind", &disk.path().display().to_string()]));
    assert!(bound.remount("bind,ro"));
    let result = Store::options().read_only(true).open(bound.path().join("store"));
    assert!(matches!(result, Err(Error::NoReaderSlot { .. })), "{result:?}");
    Store::options().read_only(true).open(&path)?;
    Ok(())
}

/// Fills the disk, except for this number of bytes.
fn fill_up(disk: &Disk, free: u64) -> TestResult {
    let path = disk.path().join("filler");
    let mut file = fs::File::create(&path)?;
    while file.write_all(&[1; 4096]).is_ok() {}
    let full = file.metadata()?.len();
    Ok(file.set_len(full.saturating_sub(free))?)
}

/// The databases of a new store are made step by step: the catalog, the second copies of lists, those of the table.
#[test]
fn a_new_store_on_a_full_disk_is_opened_when_the_disk_has_room() -> TestResult {
    let Some(disk) = Disk::new()? else { return Ok(()) };
    let mut failed = [0; 2];
    for free in (0..2 << 20).step_by(16 << 10) {
        let path = disk.path().join("store");
        fill_up(&disk, free)?;
        let create = |failed: &mut [u32; 2]| -> index_table::Result<()> {
            failed[0] += 1;
            let store = Store::options().map_size(1 << 20).open(&path)?;
            failed[0] -= 1;
            failed[1] += 1;
            let blobs = BlobRepository::open(&store)?;
            insert(&store, &blobs, 0..1)?;
            failed[1] -= 1;
            Ok(())
        };
        match create(&mut failed) {
            Ok(()) | Err(Error::DiskFull { .. }) => {}
            Err(error) => return Err(format!("with {free} bytes: {error:?}").into()),
        }
        fs::remove_file(disk.path().join("filler"))?;
        let store = Store::options().map_size(1 << 20).open(&path)?;
        let blobs = BlobRepository::open(&store)?;
        store.transaction(|txn| blobs.put(txn, &blob(0)))?;
        check(&store, &blobs, 1)?;
        store.check()?;
        drop((store, blobs));
        fs::remove_dir_all(&path)?;
    }
    assert!(failed.iter().all(|failed| *failed > 0), "{failed:?}");
    Ok(())
}

#[test]
fn a_restore_onto_a_full_disk_names_the_disk() -> TestResult {
    let Some(disk) = Disk::new()? else { return Ok(()) };
    let dir = tempfile::tempdir()?;
    let archive = dir.path().join("archive");
    {
        let options = Store::options().durability(Durability::Journal).archive(&archive);
        let store = options.open(dir.path().join("store"))?;
        let blobs = BlobRepository::open(&store)?;
        insert(&store, &blobs, 0..100)?;
        while store.archive_lag().is_none_or(|lag| !lag.has_base) {
            thread::sleep(Duration::from_millis(20));
        }
        // The base has few of these rows, and the segments have the others.
        (1..15).try_for_each(|at| insert(&store, &blobs, at * 100..at * 100 + 100))?;
    }
    let to = disk.path().join("restored");
    fill_disk(disk.path())?;
    let filler = fs::File::options().write(true).open(disk.path().join("filler"))?;
    // The room ends in the base, or while records are applied.
    for _ in 0..12 {
        let outcome = Store::restore_archive(&archive).run(&to);
        let Err(Error::DiskFull { path, .. }) = outcome else {
            return Err(format!("{outcome:?}").into());
        };
        assert_eq!(path, to);
        assert!(!to.exists());
        filler.set_len(filler.metadata()?.len() - (100 << 10))?;
    }
    assert!(disk.mount(&["-o", "remount,size=64m"]));
    Store::restore_archive(&archive).run(&to)?;
    let store = Store::open(&to)?;
    check(&store, &BlobRepository::open(&store)?, 1500)
}
