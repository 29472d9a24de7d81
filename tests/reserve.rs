//! Reserved space after the used pages of a file, which a store with a journal does not need.
#![cfg(unix)]

use std::{fs, path::Path, process::Command};

use index_table::{Durability, Error, IndexTable, Options, Store};
use serde::{Deserialize, Serialize};

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

fn insert(store: &Store, blobs: &BlobRepository, ids: std::ops::Range<u32>) -> TestResult {
    Ok(store.transaction(|txn| ids.clone().try_for_each(|id| blobs.insert(txn, &blob(id))))?)
}

fn length(path: &Path) -> std::io::Result<u64> {
    Ok(fs::metadata(path.join("data.mdb"))?.len())
}

fn options() -> Options {
    Store::options().durability(Durability::Full)
}

/// Writes 3,000 rows of a thousand bytes and then single rows, while a reader prevents the reuse of pages.
/// Returns the length of the file, and how often it has grown during the single rows.
fn grow(options: &Options, path: &Path) -> Result<(u64, u32), Box<dyn std::error::Error>> {
    let store = options.open(path)?;
    let blobs = BlobRepository::open(&store)?;
    insert(&store, &blobs, 0..3000)?;
    let _reader = store.read()?;
    let mut growths = 0;
    for id in 3000..3100 {
        let before = length(path)?;
        insert(&store, &blobs, id..id + 1)?;
        growths += u32::from(length(path)? > before);
    }
    assert_eq!(blobs.all(&store.read()?).count()?, 3100);
    Ok((length(path)?, growths))
}

#[test]
fn the_file_grows_in_steps_or_with_each_commit() -> TestResult {
    let dir = tempfile::tempdir()?;
    let (none, each) = grow(&options().reserve(0), &dir.path().join("none"))?;
    assert_eq!(each, 100, "each commit needs new pages");
    let mut longest = none;
    for (name, step, most) in [("small", 100_000, 100), ("default", 1 << 20, 15)] {
        let path = dir.path().join(name);
        let (length, growths) = grow(&options().reserve(step), &path)?;
        assert!((1..most).contains(&growths), "{growths} steps of {step}");
        assert!(length <= none + step as u64, "more than a step is reserved");
        longest = longest.max(length);
        // Reserved space does not prevent opening, and is not copied.
        let store = options().reserve(step).open(&path)?;
        let blobs = BlobRepository::open(&store)?;
        assert_eq!(blobs.all(&store.read()?).count()?, 3100);
        store.backup_to(path.join("copy"))?;
        assert_eq!(self::length(&path.join("copy"))?, none);
    }
    assert!(longest > none);
    let unsynced = Store::options().durability(Durability::None);
    assert_eq!(grow(&unsynced, &dir.path().join("unsynced"))?, (none, 100));
    Ok(())
}

#[test]
fn a_replaced_file_is_not_changed() -> TestResult {
    let dir = tempfile::tempdir()?;
    let (path, moved) = (dir.path().join("store"), dir.path().join("moved"));
    let store = options().open(&path)?;
    let blobs = BlobRepository::open(&store)?;
    insert(&store, &blobs, 0..3000)?;
    fs::rename(&path, &moved)?;
    fs::create_dir(&path)?;
    fs::write(path.join("data.mdb"), [7; 1000])?;
    let mut refused = None;
    for begin in (3000..6000).step_by(100) {
        refused = insert(&store, &blobs, begin..begin + 100).err();
    }
    let refused = refused.expect("a refused commit").downcast::<Error>()?;
    assert!(matches!(*refused, Error::FileReplaced { .. }), "{refused:?}");
    assert_eq!(length(&path)?, 1000);
    Ok(())
}

#[test]
fn small_stores_stay_small() -> TestResult {
    let dir = tempfile::tempdir()?;
    let mut lengths = Vec::new();
    for step in [1 << 20, 0] {
        let path = dir.path().join(step.to_string());
        let store = options().reserve(step).open(&path)?;
        let blobs = BlobRepository::open(&store)?;
        for id in 0..100 {
            store.transaction(|txn| blobs.insert(txn, &blob(id)))?;
        }
        lengths.push(length(&path)?);
    }
    assert_eq!(lengths[0], lengths[1]);
    Ok(())
}

#[test]
fn reserved_space_ends_with_the_map() -> TestResult {
    let dir = tempfile::tempdir()?;
    let size = 4 << 20;
    let store = options().map_size(size).max_map_size(size).open(dir.path())?;
    let blobs = BlobRepository::open(&store)?;
    let mut rows = 0;
    let full = loop {
        let insert = |id| store.transaction(|txn| blobs.insert(txn, &blob(id)));
        match (rows..rows + 10).try_for_each(insert) {
            Ok(()) => rows += 10,
            Err(full) => break full,
        }
        assert!(length(dir.path())? <= size as u64);
    };
    assert!(matches!(full, Error::MapFull { .. }), "{full:?}");
    assert!(rows > 1000, "{rows}");
    Ok(())
}

/// The store uses all space that a limit on the file size leaves. The process survives, although it does not
/// ignore the signal for exceeding the limit.
#[test]
fn a_limit_on_the_file_size_is_not_an_error() -> TestResult {
    const NAME: &str = "a_limit_on_the_file_size_is_not_an_error";
    if let Some(path) = std::env::var_os("INDEX_TABLE_OTHER_PROCESS") {
        let path = Path::new(&path);
        let store = options().open(path)?;
        let blobs = BlobRepository::open(&store)?;
        let mut rows = 0;
        while length(path)? < 1900 << 10 {
            insert(&store, &blobs, rows..rows + 1)?;
            rows += 1;
        }
        return Ok(());
    }
    let dir = tempfile::tempdir()?;
    let output = Command::new("sh")
        .args(["-c", "ulimit -f 3840; exec \"$0\" --exact \"$1\""])
        .arg(std::env::current_exe()?)
        .arg(NAME)
        .env("INDEX_TABLE_OTHER_PROCESS", dir.path())
        .output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
    assert!(length(dir.path())? >= 1900 << 10);
    Ok(())
}

/// Two processes that reserve in turn.
#[test]
fn processes_share_reserved_space() -> TestResult {
    const NAME: &str = "processes_share_reserved_space";
    let work = |path: &Path| -> TestResult {
        let store = options().open(path)?;
        let blobs = BlobRepository::open(&store)?;
        for _ in 0..100 {
            store.transaction(|txn| {
                let last = blobs.all(txn).rev().keys().next().transpose()?;
                blobs.insert(txn, &blob(last.map_or(0, |last| last + 1)))
            })?;
        }
        Ok(())
    };
    if let Some(path) = std::env::var_os("INDEX_TABLE_OTHER_PROCESS") {
        return work(Path::new(&path));
    }
    let dir = tempfile::tempdir()?;
    {
        let store = options().open(dir.path())?;
        insert(&store, &BlobRepository::open(&store)?, 0..3000)?;
    }
    let mut child = Command::new(std::env::current_exe()?)
        .args(["--exact", NAME])
        .env("INDEX_TABLE_OTHER_PROCESS", dir.path())
        .spawn()?;
    work(dir.path())?;
    assert!(child.wait()?.success());
    let store = options().open(dir.path())?;
    let blobs = BlobRepository::open(&store)?;
    let rows: Vec<Blob> = blobs.all(&store.read()?).rows().collect::<Result<_, _>>()?;
    assert!(rows.iter().eq((0..3200).map(blob).collect::<Vec<_>>().iter()));
    Ok(())
}
