//! Snapshots of all shards at one instant.
//!
//! A read transaction has a snapshot of each shard, and three properties:
//!
//! - *If it includes a commit, it includes all commits that returned earlier.* Each shard counts the commits
//!   that have returned. The counters are read before the snapshots are taken, and again afterwards. If the
//!   counter of a shard has changed, the snapshot of this shard is taken again. If no counter has changed, then
//!   no commit returned between the first snapshot and the last snapshot. So a missing commit returned after every
//!   included commit had become visible.
//! - *It includes a commit of several shards in all of its shards or in none.* Such a commit becomes visible in
//!   one shard after another. [`Visibility`] counts the commits that have begun to become visible, and those that
//!   have finished. If the first counter after the last snapshot equals the second counter before the first
//!   snapshot, then no commit became visible between these snapshots. Otherwise, all snapshots are taken again,
//!   and commits of several shards wait until this is done.
//!
//! - *It has the [shard maps](super::maps) of its snapshots.* They change in a commit of several shards, and are taken
//!   again together with the snapshots.
//!
//! After [`TRIES`] rounds, all commits wait until the snapshots are taken.
//!
//! In a process that only reads, [`outside`](super::outside) has the second property for the commits of the process that
//! writes.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering::SeqCst, fence},
};

use super::{Engine, Shard, Txn, outside::Announced};
use crate::{
    engine,
    locks::{RwLock, RwLockReadGuard, RwLockWriteGuard, rank},
    model::{
        error::{Error, Result},
        shard::ShardNumber,
    },
};

/// The number of rounds before commits have to wait.
const TRIES: usize = 32;

/// The numbers of commits of several shards that have begun to become visible, and that have finished.
#[derive(Default)]
pub(super) struct Visibility {
    begun: AtomicU64,
    ended: AtomicU64,
    /// Whether a commit is visible in some of its shards, and can't become visible in the others.
    is_split: AtomicBool,
    /// Locked shared by each commit of several shards while it becomes visible, and exclusively to make these commits
    /// wait.
    turn: RwLock<(), rank::Visibility>,
    /// The same numbers for processes that read the store.
    announced: Option<Arc<Announced>>,
}

/// A commit of several shards that becomes visible.
pub(super) struct BecomesVisible<'e> {
    visibility: &'e Visibility,
    _turn: RwLockReadGuard<'e, ()>,
}

/// A guard: no commit becomes visible until it is dropped.
pub(super) struct Paused<'e> {
    _turn: RwLockWriteGuard<'e, ()>,
    _gate: RwLockWriteGuard<'e, ()>,
}

impl Visibility {
    pub(super) fn new(announced: Option<Arc<Announced>>) -> Self {
        Self { announced, ..Self::default() }
    }

    /// Counts a commit of several shards that is about to become visible in its first shard.
    pub(super) fn begin(&self) -> BecomesVisible<'_> {
        self.begun(self.turn.read())
    }

    /// Does the same in a follower, before its only thread that commits takes the turns to write.
    pub(super) fn follow(&self) -> BecomesVisible<'_> {
        self.begun(self.turn.read_as::<rank::Following>())
    }

    fn begun<'e>(&'e self, turn: RwLockReadGuard<'e, ()>) -> BecomesVisible<'e> {
        self.begun.fetch_add(1, SeqCst);
        if let Some(announced) = &self.announced {
            announced.begin();
        }
        BecomesVisible { visibility: self, _turn: turn }
    }

    fn wait(&self) -> RwLockWriteGuard<'_, ()> {
        self.turn.write()
    }
}

impl BecomesVisible<'_> {
    /// Records that the commit is visible in only some of its shards. Until the store is opened again, snapshots of
    /// all shards fail.
    pub(super) fn split(&self) {
        self.visibility.is_split.store(true, SeqCst);
    }
}

impl Drop for BecomesVisible<'_> {
    fn drop(&mut self) {
        // It is visible in all of its shards, or in none.
        if !self.visibility.is_split.load(SeqCst) {
            self.visibility.ended.fetch_add(1, SeqCst);
            if let Some(announced) = &self.visibility.announced {
                announced.end();
            }
        }
    }
}

impl Engine {
    /// Begins a read transaction: a snapshot of each shard, all of one instant.
    pub(crate) fn read(&self) -> Result<Txn<'_>> {
        self.refuse_forked()?;
        self.between_commits(|| self.read_all())
    }

    fn read_all(&self) -> Result<Txn<'_>> {
        let mut snapshots: Vec<Option<(u64, engine::Txn<'_>)>> = Vec::new();
        let Visibility { begun, ended, is_split, .. } = &self.visibility;
        let (mut turn, mut gate) = (None, None);
        let mut since = ended.load(SeqCst);
        let mut maps = self.maps.capture();
        snapshots.resize_with(self.shards.len(), || None);
        for round in 0_usize.. {
            if round == TRIES {
                // The gate comes first in the order of locks.
                drop(turn.take());
                gate = Some(self.gate.write());
                turn = Some(self.visibility.wait());
            }
            for (shard, snapshot) in self.shards.iter().zip(&mut snapshots) {
                let Some(open) = shard.current() else { continue };
                let commits = shard.commits.load(SeqCst);
                if snapshot.as_ref().is_none_or(|(before, _)| *before != commits) {
                    // Frees the reader slot before another slot is taken.
                    *snapshot = None;
                    let engine = open;
                    let begun = shard.unless_left(engine, engine.read())?;
                    *snapshot = begun.map(|txn| (commits, txn));
                }
            }
            fence(SeqCst);
            if begun.load(SeqCst) != since {
                if is_split.load(SeqCst) {
                    return Err(self.split());
                }
                snapshots.clear();
                turn = turn.or_else(|| Some(self.visibility.wait()));
                since = ended.load(SeqCst);
                maps = self.maps.capture();
                snapshots.resize_with(self.shards.len(), || None);
                continue;
            }
            let is_same = |(shard, snapshot): (&Shard, &Option<(u64, _)>)| {
                let commits = || shard.commits.load(SeqCst);
                snapshot.as_ref().is_none_or(|(before, _)| *before == commits())
            };
            if self.maps.generation() != maps.generation {
                snapshots.clear();
                maps = self.maps.capture();
                // A later generation can have more shards.
                snapshots.resize_with(self.shards.len(), || None);
                continue;
            }
            if self.shards.iter().zip(&snapshots).all(is_same) {
                break;
            }
        }
        drop((gate, turn));
        self.check_replaced()?;
        for (shard, snapshot) in (0..).zip(&snapshots).filter(|_| !self.seen.is_empty()) {
            if let Some((_, txn)) = snapshot {
                self.check_seen(shard, txn)?;
            }
        }
        let snapshots = snapshots.into_iter().map(|it| it.map(|(_, txn)| txn));
        Ok(Txn::reading(self, snapshots, maps))
    }

    /// Begins a read transaction of one shard.
    pub(crate) fn read_on(&self, shard: ShardNumber) -> Result<Txn<'_>> {
        self.refuse_forked()?;
        let own = self.shard(shard)?;
        let engine = own.engine()?;
        let mut maps = self.maps.capture();
        let txn = loop {
            let txn = own.unless_left(engine, engine.read())?;
            let txn = txn.map_or_else(|| own.engine()?.read(), Ok)?;
            if self.maps.are_still(&maps) {
                break txn;
            }
            drop((txn, self.visibility.wait()));
            if self.visibility.is_split.load(SeqCst) {
                return Err(self.split());
            }
            maps = self.maps.capture();
        };
        self.check_replaced()?;
        self.check_seen(shard, &txn)?;
        let mut txn = Some(txn);
        let snapshots = (0..self.shards.len()).map(|at| txn.take_if(|_| at == shard as usize));
        self.refuse_absent(shard, Txn::reading_one(self, snapshots, shard, maps))
    }

    /// Prevents commits from becoming visible in any shard until the result is dropped.
    ///
    /// # Errors
    ///
    /// [`Error::ReopenNeeded`]: a commit is visible in some of its shards only.
    pub(super) fn pause(&self) -> Result<Paused<'_>> {
        let gate = self.gate.write();
        let turn = self.visibility.wait();
        if self.visibility.is_split.load(SeqCst) {
            return Err(self.split());
        }
        Ok(Paused { _turn: turn, _gate: gate })
    }

    /// Whether a commit is visible in some of its shards only, and will be in all of them when the store is opened again.
    pub(super) fn is_split(&self) -> bool {
        self.visibility.is_split.load(SeqCst)
    }

    #[cold]
    fn split(&self) -> Error {
        let reason = "a commit of several shards is visible in some of them only, and will be in all of them";
        Error::ReopenNeeded { path: self.directory(), reason }
    }
}
