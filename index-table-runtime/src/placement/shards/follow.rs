//! The shards of a follower. Only the records of an archive change them.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::{
        Arc,
        atomic::Ordering::{Acquire, Release},
    },
};

use super::{Engine, Identity, Manager, ManagerRecords, Maps, OwnRanges, Seen, ShardState};
use crate::{
    engine::lmdb::{Followed, Parts},
    model::{
        error::{Error, Result},
        shard::{Boundaries, ShardNumber, placed_table},
    },
};

impl Engine {
    /// Returns whether the shards have already applied a record of the archive.
    ///
    /// # Errors
    ///
    /// [`Error::NotInArchive`]: the follower lacks a shard.
    pub(crate) fn has_record(&self, archive: &Path, parts: &Parts) -> Result<bool> {
        for (shard, number) in &parts.shards {
            if self.follower(archive, *shard)?.is_some_and(|engine| engine.last_commit() < *number)
            {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns the data files of a follower, with the numbers of their shards. Some of these shards may have been
    /// removed from the original.
    pub(crate) fn followers(
        &self,
    ) -> impl Iterator<Item = (ShardNumber, &crate::engine::lmdb::Engine)> {
        self.shards().filter_map(|(number, shard)| Some((number, shard.open.get()?.lmdb()?)))
    }

    /// Returns the number of the last commit in each shard that the next opening of the follower opens. The shard map
    /// manager lists a removed shard, which is not opened again.
    pub(crate) fn follower_commits(&self) -> Result<BTreeMap<ShardNumber, u64>> {
        let removed = self.recorded_as_removed()?;
        let own = self.followers().filter(|(number, _)| !removed.contains(number));
        Ok(own.map(|(number, engine)| (number, engine.last_commit())).collect())
    }

    /// Returns the shards that were removed or detached, by the records of the shard map manager.
    fn recorded_as_removed(&self) -> Result<BTreeSet<ShardNumber>> {
        let records = self.manager().map_or(Ok(None), Manager::read)?;
        Ok(records.iter().flat_map(ManagerRecords::removed).collect())
    }

    /// Whether the original has an added shard that the follower lacks.
    pub(crate) fn lacks_shard(&self) -> bool {
        self.lacks_shard.load(Acquire)
    }

    /// Returns the engine of a shard of a follower; `None` if the shard was removed before the copy.
    fn follower(
        &self,
        archive: &Path,
        shard: ShardNumber,
    ) -> Result<Option<&crate::engine::lmdb::Engine>> {
        let own = self.shards.get(shard as usize);
        match own.and_then(super::Shard::last_engine) {
            Some(engine) => Ok(engine.lmdb()),
            None if own.is_some_and(super::Shard::is_gone) => Ok(None),
            None => Err(self.reopened(archive, shard)),
        }
    }

    fn reopened(&self, archive: &Path, shard: ShardNumber) -> Error {
        self.lacks_shard.store(true, Release);
        Error::NotInArchive {
            path: archive.to_owned(),
            reason: format!(
                "shard number {shard} was added to the original; drop the follower and open it again, which copies the shard"
            ),
        }
    }

    /// Applies a record of the archive in the shards that lack it. A snapshot has the record in all of its shards or in
    /// none. Returns whether the shard maps may have changed.
    pub(crate) fn follow(&self, archive: &Path, followed: &Followed<'_>) -> Result<bool> {
        self.refuse_forked()?;
        let parts = followed.parts(archive)?;
        if let Some(manager) = &parts.manager {
            self.follow_manager(manager)?;
        }
        let mut lacking = Vec::new();
        for (shard, number) in &parts.shards {
            if let Some(engine) = self.follower(archive, *shard)?
                && engine.last_commit() < *number
            {
                lacking.push((*shard, *number, engine));
            }
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
        let present = now.shards().iter().filter(|shard| !removed.contains(shard));
        let present: Arc<[_]> = present.copied().collect();
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
            record.place = format!("shard.{number}");
            let is_here = self.shards.get(number).is_some_and(|it| it.last_engine().is_some());
            if !is_here && record.state == ShardState::Open {
                // The rows of this shard follow in later records.
                record.state = ShardState::New;
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
        crate::engine::lmdb::SharedJournal::begin_for_follower(
            &self.directory(),
            records.own.id,
            &shards,
        )?;
        self.complete_shards(&records)?;
        self.read_only.store(false, Release);
        Ok(())
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
