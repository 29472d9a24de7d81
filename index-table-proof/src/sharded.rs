//! Fixtures of sharded stores.

use std::{
    fs, io,
    path::Path,
    sync::{
        Barrier, Mutex, PoisonError,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    thread,
};

use index_table::{Error, IndexTable, Options, ReadTxn, Result, ShardMap, Store};
use serde::{Deserialize, Serialize};

/// The number of shards. The shard key is the number of the shard.
pub(crate) const SHARDS: u8 = 3;

/// A row of a tenant, which has a shard. The rows of a tenant are numbered from 0.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "parts", shard_by = tenant)]
#[index(kind)]
#[index(tenant, code, unique)]
pub(crate) struct Part {
    #[primary_key]
    tenant: u8,
    #[primary_key]
    number: u32,
    kind: u8,
    code: u32,
    text: String,
}

impl Part {
    /// Returns a row whose text has up to six times `unit` bytes.
    pub(crate) fn new(tenant: u8, number: u32, unit: u32) -> Self {
        let text = "x".repeat((number % 7 * unit) as usize);
        Self { tenant, number, kind: (number % 5) as u8, code: number ^ 0x5555, text }
    }
}

impl PartRepository {
    /// Returns the number of rows of a tenant; `None` if they or their entries differ from the rows of [`Part::new`].
    pub(crate) fn count(&self, txn: &ReadTxn<'_>, tenant: u8, unit: u32) -> Result<Option<u32>> {
        let rows = self.find_by_tenant(txn, tenant).rows().collect::<Result<Vec<_>>>()?;
        let codes = self.find_by_tenant_code_range(txn, tenant, ..).count()?;
        let count = rows.len() as u32;
        let is_right = codes == u64::from(count)
            && rows.into_iter().eq((0..count).map(|number| Part::new(tenant, number, unit)));
        Ok(is_right.then_some(count))
    }
}

/// Opens a sharded store, and creates it if necessary. The tables have the shard map of this name.
pub(crate) fn open(path: &Path, options: Options, map: &str) -> Result<Store> {
    let (mut options, mut shards) = (options, ShardMap::list());
    for shard in 0..SHARDS {
        let name = format!("s{shard}");
        options = options.shard(&name, &name);
        shards = shards.to(&name, [shard]);
    }
    options.map(map, shards).open(path)
}

/// Returns an error if a shard is not available.
pub(crate) fn require_all(store: &Store) -> Result<()> {
    match store.unavailable_shards().pop() {
        Some((shard, reason)) => {
            Err(Error::ShardUnavailable { shard: shard.name().to_owned(), reason })
        }
        None => Ok(()),
    }
}

/// Copies the files of a store as a killed process leaves them. No thread commits during the copy.
pub(crate) fn copy_files(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_files(&entry.path(), &to)?;
        } else if entry.file_name() != "lock.mdb" {
            fs::copy(entry.path(), to)?;
        }
    }
    Ok(())
}

/// Commits in rounds until a commit fails: in each round, every thread commits once, at the same time. `counts` are the
/// commits of the threads so far. `commit` has the number of the thread and the number of its commit.
pub(crate) fn commit_in_rounds(
    counts: Vec<u32>,
    commit: impl Fn(u8, u32) -> Result<()> + Sync,
) -> Result<()> {
    let (threads, first) = (counts.len(), counts.iter().copied().max().unwrap_or_default());
    for (thread, count) in (0..).zip(counts) {
        (count..first).try_for_each(|number| commit(thread, number))?;
    }
    let (round, barrier) = (AtomicU32::new(first), Barrier::new(threads));
    let failure = Mutex::new(None);
    let lock = || failure.lock().unwrap_or_else(PoisonError::into_inner);
    thread::scope(|scope| {
        for thread in (0..).take(threads) {
            let (commit, round, barrier, lock) = (&commit, &round, &barrier, &lock);
            scope.spawn(move || {
                while lock().is_none() {
                    let number = round.load(SeqCst);
                    if let Err(error) = commit(thread, number) {
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

/// Returns an error if a round is missing: the counts of two threads differ by one at most.
pub(crate) fn compare_rounds(counts: &[u32]) -> std::result::Result<(), String> {
    let (least, most) = (counts.iter().min(), counts.iter().max());
    if most > least.map(|least| least + 1).as_ref() {
        return Err(format!("a round is missing: {counts:?} commits"));
    }
    Ok(())
}
