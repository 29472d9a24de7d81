//! Commits of write transactions.
//!
//! A commit of several shards has two steps:
//!
//! 1. It becomes durable in all of its shards at once: with a journal, by one record and one sync
//!    ([`engine::Txn::prepare`]). Until then, nothing is visible, and an error leaves everything as it was.
//! 2. It becomes visible in one shard after another. [`Visibility`](super::instant::Visibility) prevents
//!    snapshots of all shards from seeing a part of it. All shards stay locked until it is visible in each, so
//!    write transactions don't see a part either.
//!
//! If the second step fails in the first shard, the record is taken back. If it fails in a later shard, the
//! commit is visible in some of the shards. With a journal, writes and snapshots of all shards then fail until
//! the store is opened again. Opening applies the record to each shard that lacks it. Without a journal, there is
//! no record, and the commit stays in some of the shards only.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use super::Engine;
use crate::{
    engine::{self, CommitFailure, NotVisible},
    model::shard::ShardNumber,
};

impl Engine {
    /// Commits in one shard.
    pub(super) fn commit_one(
        &self,
        shard: ShardNumber,
        txn: engine::Txn<'_>,
        committed: &mut dyn FnMut(),
    ) -> Result<(), CommitFailure> {
        let gate = self.gate.read();
        let outcome = txn.commit(committed);
        self.count(shard);
        drop(gate);
        outcome
    }

    /// Counts a commit, before it returns. Work that writes in a shard by itself, as a bulk load does, also calls this before
    /// it returns: otherwise, a read transaction that has begun meanwhile could lack its rows and include a later commit.
    pub(crate) fn count(&self, shard: ShardNumber) {
        if let Ok(shard) = self.shard(shard) {
            shard.commits.fetch_add(1, SeqCst);
        }
    }

    /// Counts a transaction that has changed a shard.
    pub(super) fn count_write(&self, shard: ShardNumber) {
        if let Ok(shard) = self.shard(shard) {
            shard.writes.fetch_add(1, Relaxed);
        }
    }

    /// Commits in all of several shards or in none.
    pub(super) fn commit_several(
        &self,
        mut written: Vec<(ShardNumber, engine::Txn<'_>)>,
        committed: &mut dyn FnMut(),
    ) -> Result<(), CommitFailure> {
        if written.len() < 2 {
            let Some((shard, txn)) = written.pop() else {
                committed();
                return Ok(());
            };
            return self.commit_one(shard, txn, committed);
        }
        let (shards, txns): (Vec<_>, Vec<_>) = written.into_iter().unzip();
        let prepared = engine::Txn::prepare(txns)?;
        let becomes_visible = self.visibility.begin();
        let outcome = prepared.commit(committed);
        for shard in shards {
            self.count(shard);
        }
        outcome.map_err(|NotVisible { failure, is_split }| {
            if is_split {
                becomes_visible.split();
            }
            failure
        })
    }
}
