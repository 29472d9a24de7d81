//! Processes that are killed while threads write to all shards of a store, with one journal.

use std::{
    path::Path,
    sync::{
        Barrier, Mutex, PoisonError,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    thread,
};

use index_table::{Error, IndexTable, Result, ShardMap, ShardedStore, Store};
use serde::{Deserialize, Serialize};

use super::{Failure, Known, say};

/// Each has the tenant of its number.
const SHARDS: u8 = 3;

/// The rows of a tenant have the numbers from 0 on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "parts", shard_by = tenant)]
#[index(kind)]
#[index(tenant, code, unique)]
struct Part {
    #[primary_key]
    tenant: u8,
    #[primary_key]
    number: u32,
    kind: u8,
    code: u32,
    text: String,
}

fn part(tenant: u8, number: u32) -> Part {
    let text = "x".repeat((number % 7 * 300) as usize);
    Part { tenant, number, kind: (number % 5) as u8, code: number ^ 0x5555, text }
}

/// Returns the directory of the store of a scenario.
fn place(path: &Path) -> std::path::PathBuf {
    path.join("shards")
}

pub(crate) fn is_there(path: &Path) -> bool {
    place(path).exists()
}

fn open(path: &Path) -> Result<(ShardedStore, PartRepository)> {
    let map = (1..SHARDS).fold(ShardMap::list().to("s0", [0_u8]), |map, tenant| {
        map.to(format!("s{tenant}"), [tenant])
    });
    let options = ShardedStore::options().options(crate::journal());
    let options = (0..SHARDS).map(|shard| format!("s{shard}")).fold(options, |options, name| {
        let directory = name.clone();
        options.shard(name, directory)
    });
    let store = options.map("parts", map).open(place(path))?;
    if let Some((shard, reason)) = store.unavailable_shards().pop() {
        return Err(Error::ShardUnavailable { shard: shard.name().to_owned(), reason });
    }
    let parts = PartRepository::open(&store)?;
    Ok((store, parts))
}

fn counts(store: &Store, parts: &PartRepository) -> Result<Vec<u32>> {
    let txn = store.read()?;
    (0..SHARDS).map(|tenant| Ok(parts.find_by_tenant(&txn, tenant).count()? as u32)).collect()
}

fn insert(store: &Store, parts: &PartRepository, tenant: u8, number: u32) -> Result<()> {
    store.transaction(|txn| parts.insert(txn, &part(tenant, number)))?;
    say("done");
    Ok(())
}

/// Writes in rounds: in each, a thread for each shard writes a row, all at the same time.
pub(super) fn write(path: &Path) -> Result<()> {
    let (store, parts) = open(path)?;
    let counts = counts(&store, &parts)?;
    say("open");
    let first = counts.iter().copied().max().unwrap_or_default();
    for (tenant, count) in (0..).zip(counts) {
        (count..first).try_for_each(|number| insert(&store, &parts, tenant, number))?;
    }
    let (round, barrier) = (AtomicU32::new(first), Barrier::new(usize::from(SHARDS)));
    let failure = Mutex::new(None);
    let lock = || failure.lock().unwrap_or_else(PoisonError::into_inner);
    thread::scope(|scope| {
        for tenant in 0..SHARDS {
            let (store, parts, round, barrier, lock) = (&store, &parts, &round, &barrier, &lock);
            scope.spawn(move || {
                while lock().is_none() {
                    let number = round.load(SeqCst);
                    if let Err(error) = insert(store, parts, tenant, number) {
                        *lock() = Some(error);
                    }
                    if barrier.wait().is_leader() {
                        round.store(number + 1, SeqCst);
                    }
                    barrier.wait();
                }
            });
        }
    });
    let failure = lock().take();
    failure.map_or(Ok(()), Err)
}

/// Returns the number of rows, or a description of wrong rows.
fn look(store: &ShardedStore, parts: &PartRepository) -> Result<std::result::Result<u64, String>> {
    let counts = counts(store, parts)?;
    let (least, most) = (counts.iter().min(), counts.iter().max());
    if most > least.map(|least| least + 1).as_ref() {
        return Ok(Err(format!("a round was lost: {counts:?} rows")));
    }
    let txn = store.read()?;
    for (tenant, count) in (0..).zip(&counts) {
        let rows = parts.find_by_tenant(&txn, tenant).rows().collect::<Result<Vec<_>>>()?;
        if !rows.into_iter().eq((0..*count).map(|number| part(tenant, number))) {
            return Ok(Err(format!("tenant {tenant} has other rows")));
        }
    }
    let report = parts.verify(&txn).run()?;
    if !report.is_clean() {
        return Ok(Err(report.to_string()));
    }
    Ok(Ok(counts.into_iter().map(u64::from).sum()))
}

/// Checks that each tenant has the acknowledged rows, or one more.
pub(super) fn prove(path: &Path, known: &mut Known) -> Result<(), Failure> {
    let (store, parts) = open(path).map_err(|error| error.to_string())?;
    let count = look(&store, &parts).map_err(|error| error.to_string())??;
    match count.checked_sub(known.acknowledged + known.found) {
        Some(found) if found <= u64::from(SHARDS) => known.found += found,
        _ => {
            let said = known.acknowledged + known.found;
            return Err(format!("{count} rows, and {said} are known"));
        }
    }
    Ok(())
}

/// Commits once more in each shard, and looks at everything again.
pub(crate) fn go_on(path: &Path) -> Result<(), Failure> {
    let gone_on = || {
        let (store, parts) = open(path)?;
        for (tenant, count) in (0..).zip(counts(&store, &parts)?) {
            store.transaction(|txn| parts.insert(txn, &part(tenant, count)))?;
        }
        drop((store, parts));
        let (store, parts) = open(path)?;
        look(&store, &parts)
    };
    gone_on().map_err(|error| format!("the next commit: {error}"))?.map(drop)
}
