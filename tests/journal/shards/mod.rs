//! Stores with several data files, which have one journal for all shards.

mod damage;
mod lost;
mod missing;
mod openings;
mod processes;
mod readers;
mod together;

use std::{
    fs,
    path::{Path, PathBuf},
};

use index_table::{IndexTable, Options, Result, ShardMap, Store};
use serde::{Deserialize, Serialize};

pub(crate) use crate::{TestResult, killed};

/// The number of shards. Each shard has the tenant with its number.
pub(crate) const SHARDS: u8 = 3;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "notes", shard_by = tenant)]
#[index(topic)]
#[index(tenant, code, unique)]
#[index(topic, title, include = [size])]
pub(crate) struct Note {
    #[primary_key]
    pub(crate) tenant: u8,
    #[primary_key]
    pub(crate) id: u32,
    pub(crate) topic: u8,
    pub(crate) title: String,
    pub(crate) code: u64,
    pub(crate) size: u32,
    pub(crate) text: String,
}

pub(crate) fn note(tenant: u8, id: u32, version: u32) -> Note {
    let size = (id * 7 + version * 13) % 97;
    Note {
        tenant,
        id,
        topic: ((id + version) % 5) as u8,
        title: format!("title {}", (id + version) % 11),
        code: u64::from(id) << 20 | u64::from(version),
        size,
        text: "x".repeat(size as usize * 50),
    }
}

fn with(options: Options) -> Options {
    let names: Vec<String> = (0..SHARDS).map(|shard| format!("s{shard}")).collect();
    let map = names
        .iter()
        .zip(0_u8..)
        .fold(ShardMap::list().to("s0", [u8::MAX]), |map, (name, at)| map.to(name, [at]));
    with_shards(options).map("notes", map)
}

pub(crate) fn with_shards(options: Options) -> Options {
    let names = (0..SHARDS).map(|shard| format!("s{shard}"));
    names.fold(options, |options, name| options.shard(&name, &name))
}

pub(crate) use crate::options as journal;

pub(crate) fn options() -> Options {
    with(journal())
}

/// Returns options with a journal that makes a checkpoint every few commits.
pub(crate) fn many_checkpoints() -> Options {
    with(crate::many_checkpoints())
}

/// Creates a store and its table.
pub(crate) fn create(path: &Path) -> Result<()> {
    let store = options().open(path)?;
    NoteRepository::open(&store).map(drop)
}

/// Runs a step in a transaction of one tenant's shard.
pub(crate) fn write(store: &Store, notes: &NoteRepository, tenant: u8, step: u32) -> Result<()> {
    store.transaction(|txn| {
        for id in step * 3..step * 3 + 5 {
            notes.put(txn, &note(tenant, id % 200, step))?;
        }
        notes.delete(txn, tenant, step * 5 % 200).map(drop)
    })
}

/// Checks that the store has the rows of the given steps of each tenant, and that its indexes match the rows.
pub(crate) fn expect(store: &Store, steps: &[u32]) -> TestResult {
    let notes = NoteRepository::open(store)?;
    let txn = store.read()?;
    for (tenant, steps) in (0..).zip(steps) {
        expect_of(&notes, &txn, tenant, *steps)?;
    }
    assert!(notes.verify(&txn).run()?.is_clean());
    Ok(())
}

/// Checks the rows and the indexes of one tenant.
pub(crate) fn expect_of(
    notes: &NoteRepository,
    txn: &index_table::ReadTxn<'_>,
    tenant: u8,
    steps: u32,
) -> TestResult {
    let mut rows = std::collections::BTreeMap::new();
    for step in 0..steps {
        for id in step * 3..step * 3 + 5 {
            rows.insert(id % 200, note(tenant, id % 200, step));
        }
        rows.remove(&(step * 5 % 200));
    }
    let found = notes.find_by_tenant(txn, tenant).rows().collect::<Result<Vec<_>>>()?;
    let expected: Vec<_> = rows.into_values().collect();
    assert_eq!(found.len(), expected.len(), "tenant {tenant} after {steps} steps");
    assert!(found == expected, "tenant {tenant} after {steps} steps");
    Ok(())
}

pub(crate) fn data_of(store: &Path, shard: u8) -> PathBuf {
    store.join(format!("s{shard}/data.mdb"))
}

/// Returns the number of the segment in a file of the journal.
pub(crate) fn segment(store: &Path, file: u8) -> std::io::Result<u64> {
    let head = fs::read(store.join(format!("shards.journal.{file}")))?;
    let word = head.get(48..56).and_then(|word| word.try_into().ok());
    Ok(word.map_or(0, u64::from_le_bytes))
}
