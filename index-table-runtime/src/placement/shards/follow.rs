//! The shards of a follower. Only the records of an archive change them.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::{
        Arc,
        atomic::Ordering::{Acquire, Release},
    },
};

use super::{
    Engine, FIRST, HERE, Identity, Manager, ManagerRecords, Maps, OwnRanges, Seen, Shard,
    ShardState,
};
use crate::{
    engine::{
        self,
        lmdb::{self, Followed, Parts},
    },
    model::{
        error::{Error, Result},
        shard::{Boundaries, ShardNumber, placed_table},
    },
};

/// A shard of a follower.
enum InFollower<'e> {
    Here(&'e lmdb::Engine),
    /// The shard was removed or detached.
    Gone,
    Missing,
}

impl Engine {
    /// Returns whether the shards have already applied a record of the archive; `None` if a shard of the record is
    /// [missing](Self::missing).
    pub(crate) fn has_record(&self, parts: &Parts) -> Option<bool> {
        for (shard, number) in &parts.shards {
            match self.follower(*shard) {
                InFollower::Here(engine) if engine.last_commit() < *number => return Some(false),
                InFollower::Here(_) | InFollower::Gone => {}
                InFollower::Missing => return None,
            }
        }
        Some(true)
    }

    /// Returns the first shard of a record that the follower lacks, and the number of its commit: the shard was added to the
    /// original.
    pub(crate) fn missing(&self, parts: &Parts) -> Option<(ShardNumber, u64)> {
        let is_missing = |shard| matches!(self.follower(shard), InFollower::Missing);
        parts.shards.iter().copied().find(|(shard, _)| is_missing(*shard))
    }

    /// Returns the data files of a follower, with the numbers of their shards. Some of these shards may have been
    /// removed from the original.
    pub(crate) fn followers(&self) -> impl Iterator<Item = (ShardNumber, &lmdb::Engine)> {
        self.shards().filter_map(|(number, shard)| Some((number, shard.open.get()?.lmdb()?)))
    }

    /// Returns the number of the last commit in each shard that the next opening of the follower opens: those that the shard map
    /// manager lists, without removed ones.
    pub(crate) fn follower_commits(&self) -> Result<BTreeMap<ShardNumber, u64>> {
        let records = self.manager().map_or(Ok(None), Manager::read)?;
        let is_opened = |number: ShardNumber| {
            let shards = records.as_ref().map(|records| &records.shards);
            shards.is_none_or(|all| all.get(number as usize).is_some_and(|it| !it.is_removed()))
        };
        let own = self.followers().filter(|(number, _)| is_opened(*number));
        Ok(own.map(|(number, engine)| (number, engine.last_commit())).collect())
    }

    /// Returns the shards that were removed or detached, by the records of the shard map manager.
    fn recorded_as_removed(&self) -> Result<BTreeSet<ShardNumber>> {
        let records = self.manager().map_or(Ok(None), Manager::read)?;
        Ok(records.iter().flat_map(ManagerRecords::removed).collect())
    }

    /// Whether the original has a shard that this follower can't add.
    pub(crate) fn lacks_shard(&self) -> bool {
        self.lacks_shard.load(Acquire)
    }

    /// Notes that this follower can't add a shard of the original. The next opening of the follower copies the archive.
    pub(crate) fn set_lacks_shard(&self) {
        self.lacks_shard.store(true, Release);
    }

    fn follower(&self, shard: ShardNumber) -> InFollower<'_> {
        let Some(own) = self.shards.get(shard as usize) else { return InFollower::Missing };
        match own.last_engine().and_then(engine::Engine::lmdb) {
            Some(engine) => InFollower::Here(engine),
            None if own.is_gone() => InFollower::Gone,
            None => InFollower::Missing,
        }
    }

    /// Adds a shard that was added to the original, after `add_tables` has added its name to the tables in use. The shard belongs to
    /// the store when other shards count it. The caller has the lock of opening tables.
    pub(crate) fn add_followed(&self, shard: Shard, add_tables: impl FnOnce(&Arc<str>)) {
        add_tables(shard.name());
        shard.set_place(self.id, self.next_number());
        self.shards.push(shard);
    }

    /// Applies a record of the archive in the shards that lack it. A snapshot has the record in all of its shards or in
    /// none. Returns whether the shard maps may have changed.
    pub(crate) fn follow(
        &self,
        archive: &Path,
        followed: &Followed<'_>,
        parts: &Parts,
    ) -> Result<bool> {
        self.refuse_forked()?;
        let (mut lacking, mut gone) = (Vec::new(), None);
        for (shard, number) in &parts.shards {
            match self.follower(*shard) {
                InFollower::Here(engine) if engine.last_commit() < *number => {
                    lacking.push((*shard, *number, engine));
                }
                InFollower::Here(_) => {}
                InFollower::Gone => gone = gone.or(Some(*shard)),
                InFollower::Missing => return Err(Error::internal("a follower without a shard")),
            }
        }
        // A record that another shard lacks is later than the commit that removed this one.
        if let Some(shard) = gone.filter(|_| !lacking.is_empty()) {
            self.set_lacks_shard();
            return Err(Error::NotInArchive {
                path: archive.to_owned(),
                reason: format!(
                    "shard number {shard} was attached to the original again; drop the follower and open it again, which copies the \
                     archive"
                ),
            });
        }
        if let Some(manager) = &parts.manager {
            self.follow_manager(manager)?;
        }
        if lacking.is_empty() {
            return Ok(false);
        }
        // Shard maps change together with the records of the shards.
        let changing = parts.has_own_records.then(|| self.maps.begin_change());
        let becomes_visible = self.visibility.follow();
        for (shard, number, engine) in &lacking {
            engine.follow(archive, followed, Some((*shard, *number)))?;
            self.count(*shard);
        }
        if parts.has_own_records {
            self.follow_own_records()?;
        }
        drop((becomes_visible, changing));
        Ok(parts.has_own_records)
    }

    /// Updates the shard maps, the moves and the list of shards from the own records of the shards.
    pub(crate) fn follow_own_records(&self) -> Result<()> {
        let (mut identities, mut moves, mut hidden) = (Vec::new(), Vec::new(), BTreeSet::new());
        let mut incomplete = Vec::new();
        for (number, shard) in self.shards().filter(|(_, shard)| !shard.is_gone()) {
            let Some(open) = shard.open.get() else { continue };
            let Some(seen) = Seen::read(open)? else {
                incomplete.push(number);
                continue;
            };
            moves.extend(seen.moves()?);
            hidden.extend(seen.hidden().iter().cloned());
            identities.push(seen.identity().clone());
        }
        // A shard that was attached again is still in the own records of other shards. The archive has the record of the
        // manager before the commit that removes a shard.
        let recorded = self.recorded_as_removed()?;
        let removed = identities.iter().flat_map(|own| own.removed.clone());
        let removed: BTreeSet<_> = removed.filter(|shard| recorded.contains(shard)).collect();
        let now = self.maps.now();
        let mut changed = Vec::new();
        let placed = identities.iter().flat_map(Identity::placed_maps).map(|own| &own.map);
        let placed: BTreeSet<_> = placed.collect();
        let names: BTreeSet<_> = now.by_name.keys().chain(placed.iter().copied()).collect();
        for name in names {
            if placed_table(name).is_some() && !placed.contains(name) {
                continue;
            }
            // The original has not written the map of a table that was only opened here.
            if identities.iter().all(|own| own.maps.iter().all(|it| it.map != *name)) {
                continue;
            }
            let mut boundaries = Boundaries::all_in(None);
            // The original was creating this shard, which keeps the ranges in the record of the manager.
            for number in &incomplete {
                let known = now.get(name).map(|map| map.boundaries.of_shard(*number));
                for (start, end) in known.into_iter().flatten() {
                    boundaries.assign(&start, end.as_deref(), Some(*number));
                }
            }
            for identity in identities.iter().filter(|own| !removed.contains(&own.number)) {
                for OwnRanges { ranges, .. } in identity.maps.iter().filter(|own| own.map == *name)
                {
                    for (start, end) in ranges {
                        boundaries.assign(start, end.as_deref(), Some(identity.number));
                    }
                }
            }
            changed.push((name.clone(), boundaries));
        }
        // An added shard belongs to the store when it has the rows of all reference tables. Then the others count it.
        let is_added = |(number, shard): &(ShardNumber, &Shard)| {
            let counts_it = |own: &Identity| own.number != *number && own.shards > *number;
            shard.last_engine().is_some() && !shard.is_gone() && identities.iter().any(counts_it)
        };
        let added = self.shards().filter(is_added).map(|(number, _)| number);
        let present: BTreeSet<_> = now.shards().iter().copied().chain(added).collect();
        let present: Arc<[_]> = present.difference(&removed).copied().collect();
        if let Some(next) = now.followed(changed, moves, (present, hidden)) {
            self.maps.install(Arc::new(next));
        }
        for shard in removed {
            self.shard(shard)?.set_gone(true);
        }
        Ok(())
    }

    /// Stores the records of the original's shard map manager.
    fn follow_manager(&self, entries: &[(Vec<u8>, Vec<u8>)]) -> Result<()> {
        let Some(mut records) = ManagerRecords::decode(entries)? else { return Ok(()) };
        for (number, record) in (0_usize..).zip(&mut records.shards) {
            // The shard in the first data file of a store that has grown keeps its place.
            if number > FIRST as usize || !self.has_grown() {
                record.place = format!("shard.{number}");
            } else {
                HERE.clone_into(&mut record.place);
            }
            let is_here = self.shards.get(number).is_some_and(|it| it.last_engine().is_some());
            if !is_here && record.state == ShardState::Open {
                // The rows of an added shard follow in later records. A shard that comes back stays away until the next copy.
                let is_gone = self.shards.get(number).is_some_and(super::Shard::is_gone);
                record.state = if is_gone { ShardState::Removed } else { ShardState::New };
            }
        }
        for (name, map) in &records.maps {
            if self.maps.now().get(name).is_none() {
                self.maps.add(name.clone(), map.clone().into());
            }
        }
        self.follow_tables(&records);
        let manager = self.manager().ok_or_else(Error::no_file)?;
        manager.write(&records)
    }

    /// Makes the store writable for this process, with a journal of all shards.
    pub(crate) fn become_writable(&self) -> Result<()> {
        let manager = self.manager().ok_or_else(Error::no_file)?;
        let records = manager.read()?.ok_or_else(|| Error::internal("no shard map manager"))?;
        let shards = self.shards().filter_map(|(number, shard)| {
            let open = shard.current()?;
            Some((number, open.lmdb()?))
        });
        let shards: Vec<_> = shards.collect();
        lmdb::SharedJournal::begin_for_follower(&self.directory(), records.own.id, &shards)?;
        self.complete_shards(&records)?;
        self.forget_added(manager, records)?;
        self.read_only.store(false, Release);
        Ok(())
    }

    /// Removes the records of shards that the original was adding when its archive ended, and that are not here.
    fn forget_added(&self, manager: &Manager, mut records: ManagerRecords) -> Result<()> {
        let (count, listed) = (self.next_number(), records.shards.len());
        records.remove_unused(|number, _| number >= count);
        if records.shards.len() == listed { Ok(()) } else { manager.write(&records) }
    }

    /// Writes the own records of shards that the original was creating when its archive ended.
    fn complete_shards(&self, records: &ManagerRecords) -> Result<()> {
        let path = self.directory();
        for (number, shard) in self.shards().filter(|(_, shard)| !shard.is_gone()) {
            let Some(engine) = shard.current() else { continue };
            if Seen::read(engine)?.is_none()
                && let Some(record) = records.shards.get(number as usize)
            {
                let checked = (record.state == ShardState::Adopted).then(Vec::new);
                let directory = engine.directory();
                records.identity(number, &record.name, &path, &directory, checked).write(engine)?;
            }
        }
        Ok(())
    }
}

impl Maps {
    /// Returns the next generation with these boundaries, moves, shards and hidden entries; `None` if nothing has changed.
    fn followed(
        &self,
        changed: Vec<(String, Boundaries)>,
        moves: Vec<super::MoveRecord>,
        (shards, hidden): (Arc<[ShardNumber]>, BTreeSet<String>),
    ) -> Option<Self> {
        let is_same = |(name, boundaries): &(String, Boundaries)| {
            self.get(name).is_some_and(|map| *map.boundaries == *boundaries)
        };
        let own: Vec<_> = self.moves().iter().map(|moving| &moving.record).collect();
        let has_moves = own.iter().all(|own| moves.contains(own))
            && moves.iter().all(|record| own.contains(&record));
        if changed.iter().all(is_same)
            && has_moves
            && *shards == *self.shards()
            && hidden == *self.hidden().maps()
        {
            return None;
        }
        Some(self.replaced(changed, moves, shards, hidden))
    }
}
