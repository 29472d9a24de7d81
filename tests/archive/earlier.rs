//! A store and its archive, as the release before `archive.known` has written them: two processes with five rows each. Those of
//! that release have rows of format 1. The others are written with rows of format 2, without the file `archive.known`.

use std::{
    fs,
    path::{Path, PathBuf},
};

use index_table::{Durability, Error, Follower, IndexTable, Options, Result, Store};
use serde::{Deserialize, Serialize};

use crate::{
    TestResult,
    directories::{copied, files},
    wait_for_archive,
};

#[derive(Debug, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "notes")]
#[index(text)]
struct Text {
    #[primary_key]
    id: u32,
    text: String,
}

/// The length of each file of the journal. The golden files end with the last byte that is not 0.
const JOURNAL: u64 = 1 << 20;

struct Earlier {
    dir: tempfile::TempDir,
}

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

impl Earlier {
    fn new() -> std::io::Result<Self> {
        Self::of("archive-2")
    }

    fn of(name: &str) -> std::io::Result<Self> {
        let dir = tempfile::tempdir()?;
        copied(&golden(name), dir.path())?;
        for at in 0..3 {
            let path = dir.path().join("store").join(format!("journal.{at}"));
            let file = fs::File::options().write(true).create(true).truncate(false).open(path)?;
            file.set_len(JOURNAL)?;
        }
        Ok(Self { dir })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn archived(&self) -> Options {
        Store::options().durability(Durability::Journal).archive(self.path("archive"))
    }

    fn is_recorded(&self) -> bool {
        self.path("store").join("archive.known").exists()
    }

    /// Restores the archive, and returns the number of its rows.
    fn restored(&self, to: &str) -> Result<u64> {
        Store::restore_archive(self.path("archive")).run(self.path(to))?;
        rows(&Store::open(self.path(to))?)
    }
}

/// Returns the number of rows, with consecutive ids.
fn rows(store: &Store) -> Result<u64> {
    let texts = TextRepository::open(store)?;
    let txn = store.read()?;
    let ids: Vec<u32> = texts.all(&txn).keys().collect::<Result<_>>()?;
    assert!(ids.iter().copied().eq(0..ids.len() as u32), "{ids:?}");
    assert!(texts.verify(&txn).run()?.is_clean());
    Ok(ids.len() as u64)
}

fn insert(store: &Store, id: u32) -> Result<()> {
    let texts = TextRepository::open(store)?;
    store.transaction(|txn| texts.insert(txn, &Text { id, text: format!("note {id}") }))
}

#[test]
fn a_store_of_an_earlier_release_continues_its_archive() -> TestResult {
    let earlier = Earlier::new()?;
    assert_eq!(earlier.restored("before")?, 10);
    {
        let store = earlier.archived().open(earlier.path("store"))?;
        insert(&store, 10)?;
        wait_for_archive(&store);
    }
    assert_eq!(earlier.restored("after")?, 11);
    // It is the same generation.
    assert!(!earlier.path("archive").join("base.0000000003").exists());
    // From now on, the archive is known.
    assert!(earlier.is_recorded());
    let outcome = Store::open(earlier.path("store"));
    assert!(matches!(outcome, Err(Error::ArchiveNotNamed { .. })), "{outcome:?}");
    fs::rename(earlier.path("archive"), earlier.path("away"))?;
    let store = earlier.archived().open(earlier.path("store"))?;
    let error = store.archive_lag().and_then(|lag| lag.error).ok_or("no error")?;
    assert!(error.contains("manifest is gone"), "{error}");
    Ok(())
}

#[test]
fn a_store_of_an_earlier_release_is_opened_without_its_archive() -> TestResult {
    for durability in [Durability::Full, Durability::Journal] {
        let earlier = Earlier::new()?;
        {
            let store = Store::options().durability(durability).open(earlier.path("store"))?;
            assert_eq!(rows(&store)?, 10);
            insert(&store, 10)?;
        }
        assert!(!earlier.is_recorded());
        assert_eq!(earlier.restored("before")?, 10);
        let store = earlier.archived().open(earlier.path("store"))?;
        insert(&store, 11)?;
        wait_for_archive(&store);
        drop(store);
        assert_eq!(earlier.restored("after")?, 12);
    }
    Ok(())
}

#[test]
fn an_unknown_archive_that_is_not_there_begins_again() -> TestResult {
    let earlier = Earlier::new()?;
    fs::rename(earlier.path("archive"), earlier.path("away"))?;
    let store = earlier.archived().open(earlier.path("store"))?;
    insert(&store, 10)?;
    wait_for_archive(&store);
    drop(store);
    assert_eq!(earlier.restored("restored")?, 11);
    Ok(())
}

/// Fails unless the error is that of rows of format 1.
fn assert_refused(outcome: Result<TextRepository>) -> TestResult {
    let error = outcome.map(drop).err().ok_or("it opens")?;
    let Error::SchemaMismatch { table: "notes", difference, way_out } = &error else {
        return Err(error.into());
    };
    assert_eq!(difference, "the file has format 1, this release reads format 2");
    assert!(way_out.contains("by the command `dump`"), "{way_out}");
    assert!(way_out.contains("by `load --no-changes`"), "{way_out}");
    Ok(())
}

#[test]
fn an_archive_of_format_1_is_refused_and_not_changed() -> TestResult {
    let earlier = Earlier::of("archive-1")?;
    let before = files(&earlier.path("archive"))?;
    // The archive has no rows for itself, so it is restored. The table is refused.
    Store::restore_archive(earlier.path("archive")).run(earlier.path("restored"))?;
    let data = |name: &str| fs::read(earlier.path(name).join("data.mdb"));
    let full = || Store::options().durability(Durability::Full).reserve(0);
    let restored = data("restored")?;
    {
        let store = full().open(earlier.path("restored"))?;
        assert_refused(TextRepository::open(&store))?;
    }
    assert!(data("restored")? == restored, "the restored file was changed");
    {
        let follower = Follower::open(earlier.path("follower"), earlier.path("archive"))?;
        assert_refused(TextRepository::open(follower.store()))?;
    }
    assert!(files(&earlier.path("archive"))? == before, "the archive was changed");
    // So is the table of the original.
    let store = earlier.archived().open(earlier.path("store"))?;
    assert_refused(TextRepository::open(&store))
}

/// Writes the files again, after a change of the format: `cargo test --test archive -- --ignored`.
#[test]
#[ignore = "writes the files that the other tests read"]
fn the_archive_is_written_again() -> TestResult {
    let dir = tempfile::tempdir()?;
    let (store, archive) = (dir.path().join("store"), dir.path().join("archive"));
    for ids in [0..5, 5..10] {
        let options = Store::options().durability(Durability::Journal).archive(&archive);
        let store = options.open(&store)?;
        for id in ids {
            insert(&store, id)?;
        }
        wait_for_archive(&store);
    }
    fs::remove_file(store.join("archive.known"))?;
    // The others are empty, or have no permanent data.
    for path in ["store/lock.mdb", "store/journal.0", "archive/lock"] {
        let _ = fs::remove_file(dir.path().join(path));
    }
    for (path, mut bytes) in files(&store)? {
        if path.file_name().is_some_and(|it| it.to_string_lossy().starts_with("journal.")) {
            let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
            bytes.truncate(end);
            fs::write(path, bytes)?;
        }
    }
    let _ = fs::remove_dir_all(golden("archive-2"));
    copied(dir.path(), &golden("archive-2"))?;
    Ok(())
}
