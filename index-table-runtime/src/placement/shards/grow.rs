//! Shards that are added to an open store, and removed from it.
//!
//! The list of shards only grows, so that transactions can refer to their shards. Each [generation](super::Maps) of
//! shard maps has the numbers of the shards that belong to the store. A transaction that is older than a shard does not
//! use this shard, because no map of its generation has keys there. A transaction that began before a shard was removed
//! still has a snapshot of this shard. The environment of a removed shard stays open for such transactions, and is closed
//! when the last of them ends. If the shard is attached again before, it keeps this environment; otherwise it has another
//! one.

use std::{collections::BTreeSet, sync::Arc};

use super::{
    Engine, Hidden, Identity, Locks, ManagerRecords, Maps, Shard, ShardState, Txn, present,
    steps::failed,
};
use crate::{
    engine::{self, Retry},
    locks::next_store,
    model::{
        error::{Error, Result},
        shard::{Boundaries, MapKind, ShardNumber},
    },
};

/// The new boundaries of a shard map.
pub(crate) struct Changed {
    pub(crate) map: String,
    pub(crate) boundaries: Boundaries,
    /// Whether a detached shard keeps the rows of its keys. Then no other shard gets these keys.
    pub(crate) keeps_rows: bool,
}

impl Engine {
    /// Returns the number of the next shard that is added.
    pub(crate) fn next_number(&self) -> ShardNumber {
        ShardNumber::try_from(self.shards.len()).unwrap_or(ShardNumber::MAX)
    }

    /// Adds a shard, after `add_tables` has added the tables with rows in all shards. The caller has the locks of all shards in
    /// `_all`, and the lock of opening tables.
    pub(crate) fn add_shard(
        &self,
        _all: &Txn<'_>,
        shard: Shard,
        add_tables: impl FnOnce(&Arc<str>),
    ) -> Result<()> {
        self.add_own(self.next_number(), shard.name(), shard.engine()?)?;
        add_tables(shard.name());
        shard.set_place(self.id, self.next_number());
        self.shards.push(shard);
        let shards = present(self.shards.iter());
        self.maps.install(Arc::new(self.maps.now().with_shards(shards)));
        Ok(())
    }

    /// Makes a shard available that was restored. Its tables must be open in it.
    pub(crate) fn restore_shard(
        &self,
        number: ShardNumber,
        restored: Arc<engine::Engine>,
    ) -> Result<()> {
        let shard = self.shard(number)?;
        self.add_own(number, shard.name(), &restored)?;
        shard.restored(restored);
        shard.set_place(self.id, number);
        Ok(())
    }

    /// Writes the number of shards, and the shards that were removed, into the own records of the shards. The record of an
    /// unavailable shard is written when the shard is opened.
    pub(crate) fn record_shards(&self) -> Result<()> {
        let (count, maps) = (self.next_number(), self.maps.now());
        let removed = (0..count).filter(|number| !maps.shards().contains(number));
        let removed: Vec<_> = removed.collect();
        for engine in self.engines().filter(|engine| engine.lmdb().is_some()) {
            let Some(own) = Identity::read(engine)? else { continue };
            if own.shards != count || own.removed != removed {
                Identity { shards: count, removed: removed.clone(), ..own }.write(engine)?;
            }
        }
        Ok(())
    }

    /// Returns the maps with keys in a shard, with boundaries that assign these keys to other shards of the map: the
    /// slots of a hash map evenly, other keys to the shard of a neighbouring range. If the shard is detached, its
    /// ranges and listed keys belong to no shard. If the shard has a whole global index, the first other shard of the store gets
    /// the index.
    ///
    /// # Errors
    ///
    /// The name of a map that has no other shard.
    pub(crate) fn maps_without(
        &self,
        shard: ShardNumber,
        is_detached: bool,
    ) -> Result<Vec<Changed>, String> {
        let maps = self.maps.now();
        let first_other = maps.shards().iter().copied().find(|other| *other != shard);
        let of_shard =
            maps.by_name.iter().filter(|(_, map)| map.boundaries.shards().contains(&shard));
        let without = |(name, map): (&String, &super::Map)| {
            let keeps_rows = is_detached && map.kind != MapKind::Hashed && !name.contains('.');
            let next = if keeps_rows {
                Some(map.boundaries.with_none_for(shard))
            } else {
                let of_index = first_other.filter(|_| name.contains('.'));
                let whole = || Some(map.boundaries.with_other_for(shard, Some(of_index?)));
                map.without(shard).or_else(whole)
            };
            let boundaries = next.ok_or_else(|| name.clone())?;
            Ok(Changed { map: name.clone(), boundaries, keeps_rows })
        };
        of_shard.map(without).collect()
    }

    /// Returns the maps with these ranges assigned to a detached shard.
    pub(crate) fn with_attached(&self, number: ShardNumber, changed: &[Changed]) -> Maps {
        let now = self.maps.now();
        let mut shards = now.shards().to_vec();
        shards.push(number);
        shards.sort_unstable();
        now.with_boundaries(changed).with_shards(shards.into())
    }

    /// Adds a detached shard, with these ranges, in one commit of all shards, in which `body` writes too. Then there are no
    /// [hidden entries](super::hidden). The caller has the lock of opening tables. It has opened the tables in the shard.
    ///
    /// The manager is written first, and again after the commit, which confirms it. If the process ends before the commit, the own
    /// records of the shards still have the shard as detached, and opening the store corrects the manager.
    ///
    /// # Errors
    ///
    /// If the error comes with a [`Retry`], the call can be repeated after [`prepare`](Engine::prepare).
    pub(crate) fn attach_shard(
        &self,
        (number, open): (ShardNumber, &Arc<engine::Engine>),
        records: &ManagerRecords,
        changed: &[Changed],
        body: &mut dyn FnMut(&mut Txn<'_>) -> Result<()>,
    ) -> Result<(), (Error, Option<Retry>)> {
        let without_retry = |error| (error, None);
        let shard = self.shard(number).map_err(without_retry)?;
        self.add_own(number, shard.name(), open).map_err(without_retry)?;
        // From now on, transactions of all shards have it. No map gives it keys yet.
        shard.restored(Arc::clone(open));
        shard.set_place(self.id, number);
        shard.set_gone(false);
        let attached = self.commit_attached(number, records, changed, body);
        if attached.is_err() && !self.is_split() {
            shard.set_gone(true);
        }
        attached
    }

    fn commit_attached(
        &self,
        number: ShardNumber,
        records: &ManagerRecords,
        changed: &[Changed],
        body: &mut dyn FnMut(&mut Txn<'_>) -> Result<()>,
    ) -> Result<(), (Error, Option<Retry>)> {
        let without_retry = |error| (error, None);
        let own = self.own_tables().map_err(without_retry)?;
        let manager = self.manager().ok_or_else(Error::no_file).map_err(without_retry)?;
        let mut txn = self.write_with(&Locks::All).map_err(without_retry)?;
        let maps = self.with_attached(number, changed).with_hidden(Hidden::default());
        let written = body(&mut txn).and_then(|()| match own {
            Some(own) => self.write_own(&mut txn, own, &self.available(maps.shards()), &maps),
            None => Ok(()),
        });
        written.map_err(|error| (error, txn.retry()))?;
        let missing = || Error::internal("a sharded store without records");
        let known = manager.read().and_then(|known| known.ok_or_else(missing));
        let known = known.map_err(without_retry)?;
        let mut records = records.clone();
        if let Some(record) = records.shards.get_mut(number as usize) {
            record.will_be(ShardState::Open);
        }
        manager.write(&records).map_err(without_retry)?;
        txn.change_maps(Arc::new(maps));
        let committed = txn.commit(|| ()).map_err(failed);
        if committed.is_ok() {
            manager.confirm(number);
        } else if !self.is_split() {
            manager.write(&known).map_err(without_retry)?;
        }
        committed
    }

    /// Removes a shard in one commit of all shards, in which `body` checks that it has no rows that would be lost, and
    /// returns the shard maps of the global indexes that then have [hidden entries](super::hidden).
    ///
    /// The manager is written first, and again after the commit, which confirms it. If the process ends before the commit, the own
    /// records of the shards still have the shard, and opening the store corrects the manager.
    ///
    /// # Errors
    ///
    /// If the error comes with a [`Retry`], the call can be repeated after [`prepare`](Engine::prepare).
    pub(crate) fn remove_shard(
        &self,
        shard: ShardNumber,
        changed: &[Changed],
        body: &mut dyn FnMut(&mut Txn<'_>) -> Result<BTreeSet<String>>,
    ) -> Result<(), (Error, Option<Retry>)> {
        let without_retry = |error| (error, None);
        let own = self.own_tables().map_err(without_retry)?;
        let mut txn = self.write_with(&Locks::All).map_err(without_retry)?;
        let now = self.maps.now();
        let left: Arc<[_]> = now.shards().iter().copied().filter(|own| *own != shard).collect();
        let hides = body(&mut txn).map_err(|error| (error, txn.retry()))?;
        let hidden = Hidden::of(now.hidden().maps().union(&hides).cloned().collect());
        let maps = now.with_boundaries(changed).with_shards(Arc::clone(&left));
        let maps = maps.with_hidden(hidden);
        let written = match own {
            Some(own) => self
                .write_own(&mut txn, own, &left, &maps)
                .and_then(|()| Self::write_left(&mut txn, own, shard, &maps)),
            None => Ok(()),
        };
        written.map_err(|error| (error, txn.retry()))?;
        let known = match &self.manager {
            None => None,
            Some(manager) => {
                let missing = || Error::internal("a sharded store without records");
                let known = manager.read().and_then(|known| known.ok_or_else(missing));
                let known = known.map_err(without_retry)?;
                let mut records = known.clone();
                for Changed { map, boundaries, .. } in changed {
                    if let Some(map) = records.maps.get_mut(map) {
                        map.boundaries.clone_from(boundaries);
                    }
                }
                if let Some(record) = records.shards.get_mut(shard as usize) {
                    record.will_be(ShardState::Removed);
                }
                records.own.version += 1;
                manager.write(&records).map_err(without_retry)?;
                Some((manager, known))
            }
        };
        txn.change_maps(Arc::new(maps));
        let committed = txn.commit(|| ()).map_err(failed);
        if let Some((manager, known)) = known {
            if committed.is_ok() {
                manager.confirm(shard);
            } else if !self.is_split() {
                manager.write(&known).map_err(without_retry)?;
            }
        }
        committed?;
        let shard = self.shard(shard).map_err(without_retry)?;
        shard.set_gone(true);
        // It is written alone from now on, possibly by a thread that has the turns of all shards.
        shard.set_place(next_store(), 0);
        Ok(())
    }
}
