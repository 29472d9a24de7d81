//! One instant of all shards: snapshots that have a commit in each of its shards or in none.
//!
//! A read transaction has a snapshot of each shard, and two properties:
//!
//! - *No commit is missing that had returned before a commit that is present.* Each shard counts the commits
//!   that have returned. The counters are read before the snapshots are taken, and again afterwards. Where a
//!   counter has changed, the snapshot of that shard is taken again. If all counters are equal, then no
//!   commit returned between the first snapshot and the last one. So a commit that is missing returned after
//!   every commit that is in a snapshot had become visible.
//! - *A commit of several shards is in all of its shards or in none.* It becomes visible in one shard after
//!   the other. [`Visibility`] counts when it begins and when it ends. If as many have begun after the last
//!   snapshot as had ended before the first one, then none became visible meanwhile. Otherwise, all snapshots
//!   are taken again, and no such commit becomes visible until they are.
//!
//! After [`TRIES`] rounds, all commits wait until the snapshots are taken.

use std::sync::{
    PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
    atomic::{AtomicBool, AtomicU64, Ordering::SeqCst, fence},
};

use super::{Engine, Shard, Txn};
use crate::{
    engine,
    model::error::{Error, Result},
};

/// How often snapshots are taken while shards are written, before commits have to wait.
const TRIES: usize = 32;

/// How many commits of several shards have begun and ended to become visible.
#[derive(Default)]
pub(super) struct Visibility {
    begun: AtomicU64,
    ended: AtomicU64,
    /// A commit is visible in some of its shards and can't become visible in the others.
    is_split: AtomicBool,
    /// Commits of several shards hold it shared while they become visible.
    turn: RwLock<()>,
}

/// A commit of several shards that becomes visible.
pub(super) struct BecomesVisible<'e> {
    visibility: &'e Visibility,
    _turn: RwLockReadGuard<'e, ()>,
}

/// While it exists, no commit becomes visible.
pub(super) struct Paused<'e> {
    _turn: RwLockWriteGuard<'e, ()>,
    _gate: RwLockWriteGuard<'e, ()>,
}

impl Visibility {
    /// Notes that a commit of several shards is about to become visible in its first shard.
    pub(super) fn begin(&self) -> BecomesVisible<'_> {
        let turn = self.turn.read().unwrap_or_else(PoisonError::into_inner);
        self.begun.fetch_add(1, SeqCst);
        BecomesVisible { visibility: self, _turn: turn }
    }

    fn wait(&self) -> RwLockWriteGuard<'_, ()> {
        self.turn.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BecomesVisible<'_> {
    /// Notes that the commit is visible in only some of its shards until the store is opened again. Until
    /// then, no snapshot of all shards is taken.
    pub(super) fn split(&self) {
        self.visibility.is_split.store(true, SeqCst);
    }
}

impl Drop for BecomesVisible<'_> {
    fn drop(&mut self) {
        // It is visible in all of its shards, or in none.
        if !self.visibility.is_split.load(SeqCst) {
            self.visibility.ended.fetch_add(1, SeqCst);
        }
    }
}

impl Engine {
    /// Begins a read transaction: a snapshot of each shard, all of one instant.
    pub(crate) fn read(&self) -> Result<Txn<'_>> {
        let mut snapshots: Vec<Option<(u64, engine::Txn<'_>)>> = Vec::new();
        snapshots.resize_with(self.shards.len(), || None);
        let Visibility { begun, ended, is_split, .. } = &self.visibility;
        let (mut turn, mut gate) = (None, None);
        let mut since = ended.load(SeqCst);
        for round in 0_usize.. {
            if round == TRIES {
                turn = turn.or_else(|| Some(self.visibility.wait()));
                gate = Some(self.gate.write().unwrap_or_else(PoisonError::into_inner));
            }
            for (shard, snapshot) in self.shards.iter().zip(&mut snapshots) {
                let Some(open) = shard.open.get() else { continue };
                let commits = shard.commits.load(SeqCst);
                if snapshot.as_ref().is_none_or(|(before, _)| *before != commits) {
                    // The slot of the reader is free before another one is taken.
                    *snapshot = None;
                    *snapshot = Some((commits, open.engine().read()?));
                }
            }
            fence(SeqCst);
            if begun.load(SeqCst) != since {
                if is_split.load(SeqCst) {
                    return Err(self.split());
                }
                snapshots.fill_with(|| None);
                turn = turn.or_else(|| Some(self.visibility.wait()));
                since = ended.load(SeqCst);
                continue;
            }
            let is_same = |(shard, snapshot): (&Shard, &Option<(u64, _)>)| {
                let commits = || shard.commits.load(SeqCst);
                snapshot.as_ref().is_none_or(|(before, _)| *before == commits())
            };
            if self.shards.iter().zip(&snapshots).all(is_same) {
                break;
            }
        }
        drop((gate, turn));
        let snapshots = snapshots.into_iter().map(|it| it.map(|(_, txn)| txn));
        Ok(Txn::reading(self, snapshots))
    }

    /// Lets no commit become visible in any shard, until the result is dropped.
    ///
    /// # Errors
    ///
    /// A commit is visible in some of its shards.
    pub(super) fn pause(&self) -> Result<Paused<'_>> {
        let turn = self.visibility.wait();
        let gate = self.gate.write().unwrap_or_else(PoisonError::into_inner);
        if self.visibility.is_split.load(SeqCst) {
            return Err(self.split());
        }
        Ok(Paused { _turn: turn, _gate: gate })
    }

    #[cold]
    fn split(&self) -> Error {
        let reason = "a commit of several shards is visible in some of them only, and will be in all of them";
        Error::ReopenNeeded { path: self.directory(), reason }
    }
}
