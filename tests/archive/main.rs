//! Stores with an archive, and stores that are restored from one.

mod damage;
#[path = "../support/directories.rs"]
mod directories;
mod earlier;
mod forks;
mod handed;
mod joining;
mod moments;
mod named;
mod processes;
mod shards;
mod targets;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use index_table::{CommitNumber, Durability, IndexTable, Options, Result, Store};
use serde::{Deserialize, Serialize};

pub(crate) type TestResult = std::result::Result<(), Box<dyn std::error::Error>>;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "notes")]
#[index(topic)]
#[index(title, strategy = "full", name = "whole")]
#[index(code, unique)]
pub(crate) struct Note {
    #[primary_key]
    pub(crate) id: u32,
    pub(crate) topic: u8,
    pub(crate) title: String,
    pub(crate) code: u64,
    pub(crate) text: String,
}

pub(crate) type Rows = BTreeMap<u32, Note>;

pub(crate) fn note(id: u32, version: u32) -> Note {
    Note {
        id,
        topic: ((id + version) % 5) as u8,
        title: format!("title {}", (id + version) % 11),
        code: u64::from(id) << 32 | u64::from(version),
        text: "x".repeat((id * 7 + version * 13) as usize % 97 * 50),
    }
}

/// Returns options with an archive, and a journal that makes a checkpoint every few commits.
pub(crate) fn options(archive: &Path) -> Options {
    let options = Store::options().durability(Durability::Journal).archive(archive);
    options.checkpoint(1 << 16, 1 << 14, Duration::from_hours(1))
}

pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, below: u32) -> u32 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % u64::from(below)) as u32
    }
}

/// Commits some changes, at least a put, and makes the same changes in the model.
pub(crate) fn change(
    store: &Store,
    notes: &NoteRepository,
    rows: &mut Rows,
    random: &mut Random,
) -> Result<()> {
    let changes = (0..random.below(6))
        .map(|_| (random.below(80), random.below(1 << 20), random.below(4) == 0))
        .collect::<Vec<_>>();
    let changes: Vec<_> =
        changes.into_iter().chain([(80 + random.below(5), random.below(1 << 20), false)]).collect();
    store.transaction(|txn| {
        for (id, version, is_deleted) in &changes {
            if *is_deleted {
                notes.delete(txn, *id)?;
            } else {
                notes.put(txn, &note(*id, *version))?;
            }
        }
        Ok::<_, index_table::Error>(())
    })?;
    for (id, version, is_deleted) in changes {
        if is_deleted {
            rows.remove(&id);
        } else {
            rows.insert(id, note(id, version));
        }
    }
    Ok(())
}

pub(crate) fn last_commit(store: &Store) -> Result<CommitNumber> {
    Ok(store.read()?.commit_number())
}

/// Returns the rows of a store, after all checks.
pub(crate) fn rows_of(path: &Path) -> std::result::Result<Rows, Box<dyn std::error::Error>> {
    let store = Store::options().create(false).open(path)?;
    store.check()?;
    let notes = NoteRepository::open(&store)?;
    let txn = store.read()?;
    let report = notes.verify(&txn).run()?;
    assert!(report.is_clean(), "{report:?}");
    let rows = notes.all(&txn).rows().map(|row| row.map(|row| (row.id, row)));
    Ok(rows.collect::<Result<_>>()?)
}

/// Returns a path that does not exist.
pub(crate) fn fresh(dir: &Path, name: &str) -> PathBuf {
    let path = dir.join(name);
    let _ = std::fs::remove_dir_all(&path);
    path
}

/// Waits until the archive has all commits and a base.
pub(crate) fn wait_for_archive(store: &Store) {
    let begun = Instant::now();
    loop {
        let lag = store.archive_lag().expect("an archive");
        if lag.commits == 0 && lag.has_base && lag.error.is_none() {
            return;
        }
        assert!(begun.elapsed() < Duration::from_mins(1), "{lag:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
