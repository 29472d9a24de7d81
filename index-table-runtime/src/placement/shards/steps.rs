//! The steps of a move: commits in both of its shards, with which the [maps](super::maps) change. Also the commit that
//! assigns keys without a shard.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use super::{
    Engine, Held, Locks, Maps, MoveId, MoveRecord, Moving, Tables, Tracked, Txn,
    moving::{Step, Urgent},
};
use crate::{
    engine::{CommitFailure, Retry},
    locks::MutexGuard,
    model::{
        error::{Error, Result},
        schema::TableSchema,
        shard::{GlobalIndex, Routing, ShardNumber, placed_table},
    },
    placement,
};

/// The change of a move in a step.
#[derive(Clone)]
pub(crate) enum MoveStep {
    /// The move begins, or has switched.
    Set(Arc<Moving>),
    /// The move has ended.
    End(Arc<Moving>),
}

impl MoveStep {
    fn record(&self) -> &MoveRecord {
        match self {
            Self::Set(moving) | Self::End(moving) => &moving.record,
        }
    }

    fn maps(&self, now: &Maps) -> Maps {
        match self {
            Self::Set(moving) => now.with(Arc::clone(moving)),
            Self::End(moving) => now.without(moving.record.id),
        }
    }
}

/// The writer of a change during a move.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Author {
    /// The transaction that writes the row. An offline move refuses it.
    Row,
    /// The index worker. Its messages are in the order of their commits, so one that is refused would stop all messages after it,
    /// also those of rows that don't move.
    IndexWorker,
}

impl Author {
    /// Returns the writer of the entries of an index.
    pub(super) fn of_entry(schema: &TableSchema, index: usize) -> Self {
        match schema.indexes.get(index) {
            Some(index) if index.eventual => Self::IndexWorker,
            _ => Self::Row,
        }
    }
}

impl Engine {
    /// Returns the unfinished moves.
    pub(crate) fn moves(&self) -> Vec<Arc<Moving>> {
        self.maps.now().moves().to_vec()
    }

    /// Prevents the steps of moves until the result is dropped.
    pub(crate) fn hold_moves(&self) -> Held<'_> {
        self.holds.hold()
    }

    /// Waits until a step of a move can be made. Also returns the number of [holds](Self::hold_moves) so far.
    pub(crate) fn step(&self) -> (Step<'_>, u64) {
        self.holds.step()
    }

    /// Makes work that would [hold](Self::hold_moves) moves wait until the result is dropped, at most for about this time. Otherwise, a
    /// move that starts over after each hold would never end beside bulk loads that follow each other.
    pub(crate) fn hurry_move(&self, time: Duration) -> Urgent<'_> {
        self.holds.hurry(time)
    }

    /// Does the same as [`step`](Self::step), or returns `None` instead of waiting. For callers that have the lock of opening tables: work that
    /// holds moves may open a table.
    pub(crate) fn try_step(&self) -> Option<(Step<'_>, u64)> {
        self.holds.try_step()
    }

    /// Returns the turn to move; `None` if another move is running.
    pub(crate) fn move_turn(&self) -> Option<MutexGuard<'_, ()>> {
        self.move_turn.try_lock()
    }

    /// Adds a change of a row, or of an entry, to the moves of its key in this shard map.
    ///
    /// # Errors
    ///
    /// [`Error::ShardReadOnly`]: a move is offline, and the change is not one of the index worker.
    pub(super) fn track(
        &self,
        routing: &Routing,
        (map, map_key): (&str, &[u8]),
        (primary_key, author): (&[u8], Author),
        changed: impl Fn() -> Tracked,
    ) -> Result<()> {
        for moving in self.maps.now().moves() {
            let MoveRecord { map: own, from, to, is_offline, is_switched, .. } = &moving.record;
            if *is_switched || own != map || !moving.record.has(map_key) {
                continue;
            }
            if *is_offline && author == Author::Row {
                let schema = routing.schema();
                return Err(Error::ShardReadOnly {
                    table: schema.name,
                    key: schema.show_primary_key(primary_key),
                    shard: self.name(*from),
                    to: self.name(*to),
                    rows: moving.rows.load(Relaxed),
                });
            }
            moving.tracker.add(changed());
        }
        Ok(())
    }

    /// Adds the row with this primary key to the moves of its shard key, before it changes.
    ///
    /// # Errors
    ///
    /// [`Error::ShardReadOnly`]
    pub(crate) fn note_change(
        &self,
        routing: &Routing,
        primary_key: &[u8],
        author: Author,
    ) -> Result<()> {
        let Some(key) = routing.map_key(primary_key) else { return Ok(()) };
        let table = routing.schema().name;
        let changed = || Tracked::Row(table, primary_key.to_vec());
        self.track(routing, (routing.map(), &key), (primary_key, author), changed)
    }

    /// Adds an entry of a global index to the moves of its index key, before it changes.
    ///
    /// # Errors
    ///
    /// [`Error::ShardReadOnly`]
    #[cold]
    pub(super) fn note_entry(
        &self,
        routing: &Routing,
        global: &GlobalIndex,
        key: &[u8],
        primary_key: &[u8],
    ) -> Result<()> {
        let schema = routing.schema();
        let changed = || Tracked::entry(schema, global.index(), key, primary_key);
        let author = Author::of_entry(schema, global.index());
        self.track(routing, (global.map(), &global.map_key(key)), (primary_key, author), changed)
    }

    /// Restarts the copies of all moves, and the attaching of a shard.
    pub(super) fn restart_moves(&self) {
        self.lose_coming();
        for moving in self.maps.now().moves() {
            moving.tracker.restart();
        }
    }

    /// Sets the moves that an earlier process has left unfinished.
    pub(crate) fn with_moves(self, moves: Vec<MoveRecord>) -> Self {
        for record in moves {
            let maps = self.maps.now().with(Arc::new(Moving::new(record)));
            self.maps.install(Arc::new(maps));
        }
        self
    }

    /// Adds an unfinished move of two shards that are not available.
    pub(crate) fn add_move(&self, record: &MoveRecord) {
        let _held = self.hold_moves();
        let moving = Arc::new(Moving::new(record.clone()));
        self.maps.install(Arc::new(self.maps.now().with(moving)));
    }

    /// Removes such a move again, whose keys belonged to this shard.
    pub(crate) fn forget_move(&self, record: &MoveRecord, owner: ShardNumber) {
        let _held = self.hold_moves();
        let (map, span) = (&record.map, (&*record.start, record.end.as_deref()));
        let maps = self.maps.now().without(record.id).with_assigned(map, span, owner);
        self.maps.install(Arc::new(maps));
    }

    /// Makes a step of a move in a transaction of both shards, in which `body` writes too. The caller has a [`Step`].
    ///
    /// # Errors
    ///
    /// If the error comes with a [`Retry`], the call can be repeated after [`prepare`](Engine::prepare).
    pub(crate) fn change_move(
        &self,
        step: &MoveStep,
        body: &mut dyn FnMut(&mut Txn<'_>) -> Result<()>,
    ) -> Result<(), (Error, Option<Retry>)> {
        let record = step.record();
        self.change_maps(&[record.from, record.to], &|now| step.maps(now), body)
    }

    /// Assigns a range of keys that belong to no shard, in a commit of all shards in which `body` writes too. The caller has a
    /// [`Step`].
    ///
    /// # Errors
    ///
    /// If the error comes with a [`Retry`], the call can be repeated after [`prepare`](Engine::prepare).
    pub(crate) fn assign(
        &self,
        map: &str,
        (start, end): (&[u8], Option<&[u8]>),
        to: ShardNumber,
        body: &mut dyn FnMut(&mut Txn<'_>) -> Result<()>,
    ) -> Result<(), (Error, Option<Retry>)> {
        let next = |now: &Maps| now.with_assigned(map, (start, end), to);
        self.shard(to).and_then(|shard| shard.opened()).map_err(|error| (error, None))?;
        let shards = self.available(self.maps.now().shards());
        self.change_maps(&shards, &next, body)
    }

    /// Changes the maps in a transaction of these shards, in which `body` writes too.
    pub(super) fn change_maps(
        &self,
        shards: &[ShardNumber],
        next: &dyn Fn(&Maps) -> Maps,
        body: &mut dyn FnMut(&mut Txn<'_>) -> Result<()>,
    ) -> Result<(), (Error, Option<Retry>)> {
        let without_retry = |error| (error, None);
        let own = self.own_tables().map_err(without_retry)?;
        let locks = Locks::These(shards.iter().copied().collect());
        let mut txn = self.write_with(&locks).map_err(without_retry)?;
        let maps = next(&self.maps.now());
        let written = body(&mut txn).and_then(|()| match own {
            Some(own) => self.write_own(&mut txn, own, shards, &maps),
            None => Ok(()),
        });
        written.map_err(|error| (error, txn.retry()))?;
        txn.change_maps(Arc::new(maps));
        txn.commit(|| ()).map_err(failed)
    }

    /// Writes in one shard, in a transaction of its own.
    ///
    /// # Errors
    ///
    /// If the error comes with a [`Retry`], the call can be repeated after [`prepare`](Engine::prepare).
    pub(crate) fn write_alone(
        &self,
        shard: ShardNumber,
        tables: &Tables,
        write: &mut dyn FnMut(&mut placement::Writer<'_, '_>) -> Result<()>,
    ) -> Result<(), (Error, Option<Retry>)> {
        let mut txn = self.write_on(shard).map_err(|error| (error, None))?;
        let written = match txn.writer(tables) {
            Some(mut writer) => writer.beside(shard, write),
            None => Err(Error::internal("a write transaction without a writer")),
        };
        written.map_err(|error| (error, txn.retry()))?;
        txn.commit(|| ()).map_err(failed)
    }

    /// Stores the shard map of a move that has switched, in the shard map manager.
    pub(crate) fn keep_map(&self, name: &str) -> Result<()> {
        let (Some(manager), maps) = (&self.manager, self.maps.now()) else { return Ok(()) };
        let map =
            maps.get(name).ok_or_else(|| Error::internal("a move of a map that is not there"))?;
        if let Some(table) = placed_table(name)
            && let Some(shard) = map.boundaries.shard_of(&[])
        {
            return manager.write_placed((table, name), map.declared(), shard);
        }
        manager.write_map(name, map.declared())
    }

    /// Returns the move with this number.
    pub(crate) fn moving(&self, id: MoveId) -> Option<Arc<Moving>> {
        self.maps.now().moves().iter().find(|moving| moving.record.id == id).cloned()
    }
}

pub(super) fn failed(failure: CommitFailure) -> (Error, Option<Retry>) {
    let retry = failure.retry();
    (Error::from(failure), retry)
}
