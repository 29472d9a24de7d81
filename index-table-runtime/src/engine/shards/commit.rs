//! Commits of write transactions.
//!
//! A commit of several shards has two steps:
//!
//! 1. It becomes durable in all of its shards at once: with a journal, by one record and one sync
//!    ([`engine::Txn::prepare`]). Until then, nothing is visible, and an error leaves everything as it was.
//! 2. It becomes visible, in one shard after the other. [`Visibility`](super::instant::Visibility) keeps
//!    snapshots of all shards from seeing a part of it. Each shard stays locked until all have it, so no
//!    other transaction sees a part either.
//!
//! If the second step fails in the first shard, the record is taken back. If it fails later, the commit is in
//! some of the shards. With a journal, nothing is written any more and no snapshot of all shards is taken
//! until the store is opened again, which applies the record to each shard that lacks it. Shards without a
//! journal have no record: the commit stays in some of them.

use std::sync::{PoisonError, atomic::Ordering::SeqCst};

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
        let gate = self.gate.read().unwrap_or_else(PoisonError::into_inner);
        let outcome = txn.commit(committed);
        self.count(shard);
        drop(gate);
        outcome
    }

    /// Counts a commit that returns.
    fn count(&self, shard: ShardNumber) {
        if let Ok(shard) = self.shard(shard) {
            shard.commits.fetch_add(1, SeqCst);
        }
    }

    /// Commits in several shards: in all or in none.
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
