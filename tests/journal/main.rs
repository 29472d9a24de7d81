//! Stores with a journal.

mod crashes;
#[path = "../support/data_files.rs"]
mod data_files;
mod direct;
#[path = "../support/directories.rs"]
mod directories;
mod durabilities;
mod kinds;
mod missing;
mod nested;
#[cfg(target_os = "linux")]
#[path = "../support/nobody.rs"]
mod nobody;
mod openings;
mod pairs;
#[path = "../support/privileges.rs"]
mod privileges;
mod processes;
mod room;
mod shards;
mod space;

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use index_table::{Durability, IndexTable, Options, Result, Store};
use serde::{Deserialize, Serialize};

pub(crate) use crate::data_files::{Kind, on_each_kind};

pub(crate) type TestResult = std::result::Result<(), Box<dyn std::error::Error>>;

/// A row with every layout of an index.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "notes")]
#[index(topic)]
#[index(topic, title, include = [size])]
#[index(title, strategy = "full", name = "whole")]
#[index(code, unique)]
#[index(size, consistency = "eventual", name = "later")]
pub(crate) struct Note {
    #[primary_key]
    pub(crate) id: u32,
    pub(crate) topic: u8,
    pub(crate) title: String,
    pub(crate) code: u64,
    pub(crate) size: u32,
    pub(crate) text: String,
}

pub(crate) fn note(id: u32, version: u32) -> Note {
    let size = (id * 7 + version * 13) % 97;
    Note {
        id,
        topic: ((id + version) % 5) as u8,
        title: format!("title {}", (id + version) % 11),
        code: u64::from(id) << 20 | u64::from(version),
        size,
        text: "x".repeat(size as usize * 50),
    }
}

/// Returns options with a journal that makes a checkpoint only when the store is closed.
pub(crate) fn options() -> Options {
    Store::options().durability(Durability::Journal).checkpoint(
        u64::MAX,
        u64::MAX,
        Duration::from_hours(1),
    )
}

/// Returns options with a journal that makes a checkpoint every few commits.
pub(crate) fn many_checkpoints() -> Options {
    Store::options().durability(Durability::Journal).checkpoint(
        1 << 16,
        1 << 14,
        Duration::from_hours(1),
    )
}

pub(crate) fn write(store: &Store, notes: &NoteRepository, step: u32) -> Result<()> {
    store.transaction(|txn| {
        for id in step * 3..step * 3 + 5 {
            notes.put(txn, &note(id % 200, step))?;
        }
        notes.delete(txn, step * 5 % 200).map(drop)
    })
}

/// Checks that the store has the rows of this number of steps, and that its indexes match.
pub(crate) fn expect(store: &Store, steps: u32) -> TestResult {
    let mut rows = std::collections::BTreeMap::new();
    for step in 0..steps {
        for id in step * 3..step * 3 + 5 {
            rows.insert(id % 200, note(id % 200, step));
        }
        rows.remove(&(step * 5 % 200));
    }
    store.check()?;
    let notes = NoteRepository::open(store)?;
    let txn = store.read()?;
    let found = notes.all(&txn).rows().collect::<Result<Vec<_>>>()?;
    let expected: Vec<_> = rows.into_values().collect();
    assert_eq!(found.len(), expected.len(), "after {steps} steps");
    assert!(found == expected, "after {steps} steps");
    let report = notes.verify(&txn).run()?;
    assert!(report.is_clean(), "after {steps} steps: {report:?}");
    Ok(())
}

/// Copies the files of a store except LMDB's lock files: the files that remain if the process is killed now.
pub(crate) fn killed(store: &Path, to: &Path) -> std::io::Result<PathBuf> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(store)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            killed(&entry.path(), &to.join(entry.file_name()))?;
        } else if entry.file_name() != "lock.mdb" {
            fs::copy(entry.path(), to.join(entry.file_name()))?;
        }
    }
    Ok(to.to_owned())
}
