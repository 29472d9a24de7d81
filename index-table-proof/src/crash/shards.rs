//! Processes that are killed while threads write to all shards of a store. The shards have one journal.

use std::path::{Path, PathBuf};

use index_table::{Result, Store};

use super::{Failure, Known, say};
use crate::sharded::{
    Part, PartRepository, SHARDS, commit_in_rounds, compare_rounds, open as open_shards,
    require_all,
};

/// The lengths of texts are multiples of this number.
const UNIT: u32 = 300;

/// Returns the path of the store in the directory of a scenario.
fn store_path(path: &Path) -> PathBuf {
    path.join("shards")
}

/// Returns true if the directory of a scenario has a store.
pub(crate) fn exists(path: &Path) -> bool {
    store_path(path).exists()
}

fn open(path: &Path) -> Result<(Store, PartRepository)> {
    let store = open_shards(&store_path(path), crate::journal(), "parts")?;
    require_all(&store)?;
    let parts = PartRepository::open(&store)?;
    Ok((store, parts))
}

/// Returns the number of rows of each tenant; a failure if one of them has other rows.
fn counts(store: &Store, parts: &PartRepository) -> Result<std::result::Result<Vec<u32>, Failure>> {
    let txn = store.read()?;
    let mut counts = Vec::new();
    for tenant in 0..SHARDS {
        let Some(count) = parts.count(&txn, tenant, UNIT)? else {
            return Ok(Err(format!("tenant {tenant} has other rows")));
        };
        counts.push(count);
    }
    Ok(Ok(counts))
}

/// Writes rows in rounds, with a thread for each shard.
pub(super) fn write(path: &Path) -> Result<()> {
    let (store, parts) = open(path)?;
    let counts = match counts(&store, &parts)? {
        Ok(counts) => counts,
        Err(wrong) => {
            say(&format!("error: {wrong}"));
            return Ok(());
        }
    };
    say("open");
    commit_in_rounds(counts, |tenant, number| {
        store.transaction(|txn| parts.insert(txn, &Part::new(tenant, number, UNIT)))?;
        say("done");
        Ok(())
    })
}

/// Checks the rows, and returns their number.
fn check(store: &Store, parts: &PartRepository) -> Result<std::result::Result<u64, Failure>> {
    let counts = match counts(store, parts)? {
        Ok(counts) => counts,
        Err(wrong) => return Ok(Err(wrong)),
    };
    if let Err(wrong) = compare_rounds(&counts) {
        return Ok(Err(wrong));
    }
    let report = parts.verify(&store.read()?).run()?;
    if !report.is_clean() {
        return Ok(Err(report.to_string()));
    }
    Ok(Ok(counts.into_iter().map(u64::from).sum()))
}

/// Checks that every tenant has its acknowledged rows, and at most one more.
pub(super) fn prove(path: &Path, known: &mut Known) -> Result<(), Failure> {
    let (store, parts) = open(path).map_err(|error| error.to_string())?;
    let count = check(&store, &parts).map_err(|error| error.to_string())??;
    known.find(count, u64::from(SHARDS))
}

/// Commits once more in each shard, and checks everything again.
pub(crate) fn go_on(path: &Path) -> Result<(), Failure> {
    let continued = || {
        let (store, parts) = open(path)?;
        let txn = store.read()?;
        for tenant in 0..SHARDS {
            let count = parts.find_by_tenant(&txn, tenant).count()? as u32;
            store.transaction(|txn| parts.insert(txn, &Part::new(tenant, count, UNIT)))?;
        }
        drop(txn);
        drop((store, parts));
        let (store, parts) = open(path)?;
        check(&store, &parts)
    };
    continued().map_err(|error| format!("the next commit: {error}"))?.map(drop)
}
