//! The transaction as the tables use it.

use std::{
    cell::{Cell, OnceCell},
    collections::BTreeSet,
};

use super::{
    super::{
        Engine, Tables,
        txn::{Reads, Writes},
    },
    Doom, Locked, Other, Scope, Writing, failed, foreign, nested, of_shard,
};
use crate::{
    engine::{self, CommitFailure, Retry, Stamp},
    model::{error::Result, shard::ShardNumber},
    placement,
};

impl Reads for Writing<'_> {
    fn engine(&self) -> &Engine {
        self.engine
    }

    fn reader<'t>(
        &'t self,
        tables: &'t Tables,
        shard: ShardNumber,
        primary_key: Option<&[u8]>,
    ) -> Result<engine::Reader<'t>> {
        let locked = self.begin(tables, shard, primary_key)?;
        locked.txn.reader(tables.of(self.engine, shard)?).ok_or_else(|| foreign(tables))
    }

    fn shard_of(&self, tables: &Tables, primary_key: &[u8]) -> Option<ShardNumber> {
        // The ranges of locked shards stay the same, and locking a further shard compares the generations.
        tables.routing().shard_of(primary_key)
    }

    fn alone(&self) -> Option<ShardNumber> {
        // If all shards were locked at once, `first` is empty.
        let first = self.first.get().filter(|_| !self.scope.grows())?;
        Some(first.shard.get())
    }

    fn available(&self, tables: &Tables, shard: ShardNumber) -> Result<()> {
        self.open(shard)?;
        tables.opened(self.engine, shard).map(drop)
    }

    fn nearest(&self, tables: &Tables) -> ShardNumber {
        // A transaction may have locked a shard that is being attached, whose copies are not current yet.
        let present = tables.routing.shards();
        let own = || self.all().filter(|locked| present.contains(&locked.shard.get()));
        let used = own().find(|locked| locked.is_used.get());
        let locked = used.or_else(|| own().next()).map(|locked| locked.shard.get());
        let is_available = |shard: &ShardNumber| self.available(tables, *shard).is_ok();
        let available = || present.iter().copied().find(is_available);
        locked.or_else(available).unwrap_or(0)
    }
}

impl Writes for Writing<'_> {
    fn write(
        &mut self,
        tables: &Tables,
        shard: ShardNumber,
        primary_key: Option<&[u8]>,
        write: &mut dyn FnMut(&mut placement::Writer<'_, '_>) -> Result<()>,
    ) -> Result<()> {
        self.begin(tables, shard, primary_key)?;
        let tables_of_shard = tables.of(self.engine, shard)?;
        let locked = match self.first.get_mut() {
            Some(first) if first.shard.get() == shard => Some(first),
            _ => {
                let others = self.others.get_mut();
                let other = others.and_then(|others| others.get_mut(shard as usize));
                other.and_then(|other| other.locked.get_mut())
            }
        };
        let Some(locked) = locked else { return Err(foreign(tables)) };
        locked.is_written = true;
        let writer = locked.txn.writer(tables_of_shard).ok_or_else(|| foreign(tables))?;
        write(&mut placement::Writer::One(writer))
    }

    fn lock(&self, tables: &Tables, shard: ShardNumber, primary_key: Option<&[u8]>) -> Result<()> {
        self.begin(tables, shard, primary_key).map(drop)
    }

    fn is_unbound(&self) -> bool {
        matches!(self.scope, Scope::Growing(_)) && self.last().is_none()
    }

    fn used(&self) -> u64 {
        self.all().filter(|locked| locked.is_used.get()).count() as u64
    }

    fn nested(&mut self) -> Result<Box<dyn Writes + '_>> {
        let grows = self.scope.grows();
        let Self { engine, generation, scope, first, others } = self;
        let doom = match scope {
            Scope::Fixed(doom) | Scope::Growing(doom) => &*doom,
            Scope::Nested { doom, .. } => *doom,
        };
        let mut inside = Writing::new(engine, Scope::Nested { doom, grows }, *generation);
        // Most nested transactions use the first shard of the outer one, so they begin in it at once.
        if let Some(locked) = first.get_mut().filter(|_| doom.get().is_none()) {
            let shard = locked.shard.get();
            inside.first = OnceCell::from(nested(shard, locked)?);
        }
        if let Some(others) = others.get_mut().filter(|_| doom.get().is_none()) {
            let inner = (0..).zip(others).map(|(shard, other)| {
                let begin = other.nested(shard);
                Other { locked: OnceCell::new(), begin: Cell::new(begin) }
            });
            inside.others = OnceCell::from(inner.collect::<Box<[_]>>());
        }
        Ok(Box::new(inside))
    }

    fn run_again(&mut self) {
        self.again(None);
    }

    fn next_locks(&self) -> Option<BTreeSet<ShardNumber>> {
        match self.scope.doom().get() {
            Some(Doom::Again(used)) => Some(used.clone()),
            _ => None,
        }
    }

    fn retry(&self) -> Option<Retry> {
        if let Some(Doom::Again(_)) = self.scope.doom().get() {
            return Some(Retry::Shards);
        }
        self.all().find_map(|locked| {
            let retry = locked.txn.retry()?;
            Some(of_shard(retry, locked.shard.get()))
        })
    }

    fn stamp(&self) -> Stamp {
        self.all().next().map_or_else(Stamp::default, |locked| locked.txn.stamp())
    }

    fn stamps(&self) -> Vec<Stamp> {
        let mut stamps = vec![Stamp::default(); self.engine.shards.len()];
        let is_alone = self.others.get().is_none();
        for locked in self.all().filter(|locked| locked.is_written || is_alone) {
            if let Some(stamp) = stamps.get_mut(locked.shard.get() as usize) {
                *stamp = locked.txn.stamp();
            }
        }
        stamps
    }

    fn commit(self: Box<Self>, committed: &mut dyn FnMut()) -> Result<(), CommitFailure> {
        let Self { engine, scope, first, others, .. } = *self;
        match scope.doom().get() {
            None => {}
            // The closure runs again, after any error.
            Some(_) => return Err(CommitFailure::Failed(failed())),
        }
        let others = others.into_inner().unwrap_or_default();
        let others = others.into_iter().filter_map(|other| other.locked.into_inner());
        let mut all = first.into_inner().into_iter().chain(others);
        if let Scope::Nested { doom, .. } = scope {
            return Self::commit_nested(doom, all, committed);
        }
        let Some(first) = all.next() else {
            committed();
            return Ok(());
        };
        let Some(second) = all.next() else {
            let (shard, is_written) = (first.shard.get(), first.is_written);
            engine.commit_one(shard, first.txn, committed)?;
            if is_written {
                engine.count_write(shard);
            }
            return Ok(());
        };
        let all = [first, second].into_iter().chain(all);
        let (written, _read): (Vec<_>, Vec<_>) = all.partition(|locked| locked.is_written);
        let shards: Vec<_> = written.iter().map(|locked| locked.shard.get()).collect();
        let written = written.into_iter().map(|Locked { shard, txn, .. }| (shard.get(), txn));
        engine.commit_several(written.collect(), committed)?;
        for shard in shards {
            engine.count_write(shard);
        }
        Ok(())
    }
}
