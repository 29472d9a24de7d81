//! Counts over several shards. A long count runs in several shards at the same time.
//!
//! The shards are counted one after another until the count of one shard takes [`LONG`] steps. Then the threads of
//! [`Threads`] count this shard and the following ones. So a short count starts no thread, and a long count repeats its
//! steps in the first long shard.
//!
//! The result, the error and the reported cost don't depend on the threads. Two kinds of counts never use threads: a count
//! with a limit, which may end in the first shard, and a count in a write transaction, which can't leave its thread.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::{Engine, Reader, Tables, threads::Threads};
use crate::{
    engine::{self, Count, Cursor as _, Query, Read as _},
    model::{error::Result, shard::ShardNumber},
};

/// The number of steps in one shard after which it pays to start threads (`--bin shard_reads` of the benchmarks).
static LONG: AtomicU64 = AtomicU64::new(4096);

/// Sets the number of steps in one shard after which counts start threads, for tests and benchmarks. Returns the previous
/// number. With `u64::MAX`, no count starts a thread.
pub fn count_in_parallel_from(steps: u64) -> u64 {
    LONG.swap(steps.max(1), Relaxed)
}

/// A reader of one shard that another thread uses while the caller waits.
struct Lent<'t>(engine::Reader<'t>);

#[expect(unsafe_code, reason = "a transaction of LMDB is `Send`, but a reference to it is not")]
// SAFETY: a reader consists of references to its engine and its tables, which are `Sync` (see below), and to the
// transaction of its shard. `Reader::count_by_threads` is the only place that makes this type, for read transactions
// (`Reads::may_be_lent`). LMDB allows any thread to use a read transaction without thread-local storage, if no other
// thread uses it at the same time. Each reader is of another shard and so of another transaction, one thread takes it, and
// the thread that has borrowed the transaction, which can't be shared, waits until this thread has ended.
unsafe impl Send for Lent<'_> {}

const _: () = {
    const fn is_sync<T: Sync>() {}
    is_sync::<(Engine, Tables, engine::Engine, engine::Tables)>();
};

impl Lent<'_> {
    fn count(self, query: &Query) -> Result<Count> {
        self.0.count(query)
    }
}

impl<'t> Reader<'t> {
    pub(crate) fn count(self, query: &Query) -> Result<Count> {
        if self.routing().omits(query.source) || self.leaving_out(query).is_some() {
            return self.count_entries(query);
        }
        let shards = self.shards_of(query)?;
        match (&*shards, query.limit) {
            ([shard], _) => self.of_shard(*shard)?.count(query),
            (shards, None) => self.count_in(shards, query),
            (shards, Some(limit)) => self.count_up_to(limit, shards, query),
        }
    }

    /// Counts in one shard after another, up to a limit.
    fn count_up_to(self, limit: u64, shards: &[ShardNumber], query: &Query) -> Result<Count> {
        let (mut total, mut query) = (Count::default(), query.clone());
        for shard in shards {
            let left = limit.saturating_sub(total.found);
            if left == 0 {
                break;
            }
            query.limit = Some(left);
            total += self.of_shard(*shard)?.count(&query)?;
        }
        Ok(total)
    }

    /// Counts in these shards, without a limit.
    fn count_in(self, shards: &[ShardNumber], query: &Query) -> Result<Count> {
        let threads = Threads::of_process();
        let is_alone = threads.are_none() || !self.txn.may_be_lent();
        let long = if is_alone { u64::MAX } else { LONG.load(Relaxed) };
        let (mut total, mut part, mut left) = (Count::default(), query.clone(), shards);
        let mut limit = long;
        while let [shard, others @ ..] = left {
            let reader = self.member(*shard)?;
            if others.is_empty() {
                limit = u64::MAX;
            }
            let Some(count) = count_if_short(reader, &mut part, long, &mut limit)? else {
                total += self.count_by_threads(threads, left, query)?;
                break;
            };
            total += count;
            left = others;
        }
        Ok(total)
    }

    #[cold]
    fn count_by_threads(
        self,
        threads: &Threads,
        shards: &[ShardNumber],
        query: &Query,
    ) -> Result<Count> {
        let readers = shards.iter().map(|shard| self.member(*shard).map(Lent)).collect();
        let count = |reader: Result<Lent<'t>>| reader.and_then(|reader| reader.count(query));
        let counts = threads.each(readers, count);
        counts.into_iter().try_fold(Count::default(), |mut total, count| {
            total += count?;
            Ok(total)
        })
    }

    /// Counts the entries one by one. In a global index, only entries with rows in available shards count. Copies
    /// and hidden entries don't count.
    #[cold]
    fn count_entries(self, query: &Query) -> Result<Count> {
        let mut count = Count::default();
        let mut entries = self.cursor(query.clone())?;
        while query.limit.is_none_or(|limit| count.found < limit) && entries.advance()? {
            count.found += 1;
            count.steps += 1;
        }
        Ok(Count { seeks: 1, ..count })
    }
}

/// Counts the entries that a query selects in one shard; `None` if that takes `long` steps or more. Sets the limit of the
/// query. `limit` is the first limit, and the last one afterwards: the next shard probably has as many entries for each
/// step.
fn count_if_short(
    reader: engine::Reader<'_>,
    query: &mut Query,
    long: u64,
    limit: &mut u64,
) -> Result<Option<Count>> {
    loop {
        query.limit = Some(*limit);
        let count = reader.count(query)?;
        if count.found < *limit {
            if count.steps >= long {
                *limit = long;
            }
            return Ok(Some(count));
        }
        if count.seeks == 0 {
            // The engine has stored the count.
            query.limit = None;
            return reader.count(query).map(Some);
        }
        if count.steps >= long {
            return Ok(None);
        }
        // A step over a block counts many entries.
        *limit = limit.saturating_mul(8);
    }
}
