//! Transactions of a sharded store.

use std::{
    cell::Cell,
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use super::{
    Engine, Locks, Maps, Reader, Routed, Shard, Tables, Writer,
    maps::MapsAt,
    sum,
    writing::{Writing, foreign},
};
use crate::{
    engine::{self, CommitFailure, Retry, Stamp},
    model::{
        error::{Error, Result},
        shard::ShardNumber,
    },
    placement,
};

/// A transaction.
pub(crate) struct Txn<'s> {
    engine: &'s Engine,
    state: State<'s>,
    routed: Routed,
    /// The shard maps that become current with the commit.
    next_maps: Option<Arc<Maps>>,
}

enum State<'s> {
    /// The snapshots of all shards, in the order of their numbers, and the shard of a transaction of one shard.
    Read(Box<[Snapshot<'s>]>, Option<ShardNumber>),
    Write(Box<dyn Writes + 's>),
}

/// The snapshot of a shard.
struct Snapshot<'s> {
    /// `None` if the shard was not available, or if the transaction is limited to another shard.
    txn: Option<engine::Txn<'s>>,
    /// Whether a query has read the snapshot.
    is_read: Cell<bool>,
    /// Counts the read transactions of the shard.
    reads: &'s AtomicU64,
}

impl Drop for Snapshot<'_> {
    fn drop(&mut self) {
        if self.is_read.get() {
            self.reads.fetch_add(1, Relaxed);
        }
    }
}

/// Read access to the tables of single shards.
pub(super) trait Reads {
    fn engine(&self) -> &Engine;

    /// Returns a reader of the table in this shard. The primary key is for error messages.
    fn reader<'t>(
        &'t self,
        tables: &'t Tables,
        shard: ShardNumber,
        primary_key: Option<&[u8]>,
    ) -> Result<engine::Reader<'t>>;

    /// Returns the shard of a row in the shard maps of the transaction; `None` if no shard or every shard has it.
    fn shard_of(&self, tables: &Tables, primary_key: &[u8]) -> Option<ShardNumber>;

    /// Returns the shard whose copy of a reference table is read. A shard that the transaction already uses is
    /// preferred.
    fn nearest(&self, tables: &Tables) -> ShardNumber;

    /// Returns the shard of a transaction that is limited to one shard, or `None`.
    fn alone(&self) -> Option<ShardNumber>;

    /// Whether other threads may use the snapshots while the owner waits. They may not in a write transaction.
    fn may_be_lent(&self) -> bool {
        false
    }

    /// Checks that this shard can be read.
    ///
    /// # Errors
    ///
    /// [`Error::ShardUnavailable`]
    fn available(&self, tables: &Tables, shard: ShardNumber) -> Result<()>;
}

/// A write transaction. The trait hides the lifetime of the engine, which is invariant.
pub(super) trait Writes: Reads {
    /// Calls `write` with a writer of the table in this shard. The primary key is for error messages.
    fn write(
        &mut self,
        tables: &Tables,
        shard: ShardNumber,
        primary_key: Option<&[u8]>,
        write: &mut dyn FnMut(&mut placement::Writer<'_, '_>) -> Result<()>,
    ) -> Result<()>;

    /// Locks a shard. The primary key is for error messages.
    fn lock(&self, tables: &Tables, shard: ShardNumber, primary_key: Option<&[u8]>) -> Result<()>;

    /// Whether the transaction has not locked a shard yet, and can lock any.
    fn is_unbound(&self) -> bool;

    /// Returns the number of shards that the transaction has read and written.
    fn used(&self) -> u64;

    /// Begins a nested transaction.
    fn nested(&mut self) -> Result<Box<dyn Writes + '_>>;

    /// Makes all further operations fail, so that the closure runs again with the same shards locked.
    fn run_again(&mut self);

    /// Returns the shards that the closure has used, if it has to run again with more shards locked.
    fn next_locks(&self) -> Option<BTreeSet<ShardNumber>>;

    fn retry(&self) -> Option<Retry>;

    fn stamp(&self) -> Stamp;

    /// Returns the stamps of all shards, with 0 for shards that the transaction does not write.
    fn stamps(&self) -> Vec<Stamp>;

    fn commit(self: Box<Self>, committed: &mut dyn FnMut()) -> Result<(), CommitFailure>;
}

/// Returns the snapshots of the shards, by their numbers.
fn of_shards<'s>(
    engine: &'s Engine,
    snapshots: impl Iterator<Item = Option<engine::Txn<'s>>>,
) -> Box<[Snapshot<'s>]> {
    let snapshot = |(shard, txn): (&'s Shard, _)| {
        let (is_read, reads) = (Cell::new(false), &shard.reads);
        Snapshot { txn, is_read, reads }
    };
    engine.shards.iter().zip(snapshots).map(snapshot).collect()
}

impl<'s> Txn<'s> {
    pub(super) fn reading(
        engine: &'s Engine,
        snapshots: impl Iterator<Item = Option<engine::Txn<'s>>>,
        maps: MapsAt,
    ) -> Self {
        Self::new(engine, State::Read(of_shards(engine, snapshots), None), maps)
    }

    pub(super) fn reading_one(
        engine: &'s Engine,
        snapshots: impl Iterator<Item = Option<engine::Txn<'s>>>,
        shard: ShardNumber,
        maps: MapsAt,
    ) -> Self {
        Self::new(engine, State::Read(of_shards(engine, snapshots), Some(shard)), maps)
    }

    /// Whether a shard does not belong to the store in the maps of the transaction. Before the first change of the maps in this
    /// process, nobody has the number of such a shard.
    pub(super) fn lacks(&self, shard: ShardNumber) -> bool {
        self.routed.at().lacks(shard)
    }

    /// From now on, checks the pages of LMDB before it reads them.
    pub(crate) fn check_pages(&self) -> Result<()> {
        let State::Read(snapshots, _) = &self.state else { return Ok(()) };
        snapshots.iter().flat_map(|snapshot| &snapshot.txn).try_for_each(engine::Txn::check_pages)
    }

    /// Returns a read transaction without snapshots.
    pub(super) fn over(engine: &'s Engine) -> Self {
        Self::new(engine, State::Read(Box::default(), None), engine.maps.capture())
    }

    const fn new(engine: &'s Engine, state: State<'s>, maps: MapsAt) -> Self {
        Self { engine, state, routed: Routed::new(maps), next_maps: None }
    }

    pub(super) fn writing(engine: &'s Engine, locks: &Locks) -> Result<Self> {
        let (writing, maps) = Writing::with(engine, locks)?;
        Ok(Self::new(engine, State::Write(Box::new(writing)), maps))
    }

    pub(super) fn writing_on(engine: &'s Engine, shard: ShardNumber, grows: bool) -> Result<Self> {
        let (writing, maps) = Writing::on(engine, shard, grows)?;
        Ok(Self::new(engine, State::Write(Box::new(writing)), maps))
    }

    /// Makes these shard maps current when the transaction is committed. It must write in all shards whose ranges differ.
    pub(crate) fn change_maps(&mut self, maps: Arc<Maps>) {
        self.next_maps = Some(maps);
    }

    pub(crate) fn directory(&self) -> std::path::PathBuf {
        self.engine.directory()
    }

    /// Returns the number of shards that queries have read.
    pub(crate) fn shards_read(&self) -> u64 {
        match &self.state {
            State::Read(snapshots, _) => {
                snapshots.iter().filter(|snapshot| snapshot.is_read.get()).count() as u64
            }
            State::Write(writing) => writing.used(),
        }
    }

    /// Whether this is a write transaction that has not locked a shard yet, and can lock any.
    pub(crate) fn is_unbound(&self) -> bool {
        matches!(&self.state, State::Write(writing) if writing.is_unbound())
    }

    /// Makes all further operations fail, so that the closure runs again with the same shards locked.
    pub(crate) fn run_again(&mut self) {
        if let State::Write(writing) = &mut self.state {
            writing.run_again();
        }
    }

    /// Returns the shards that the closure has used, if it has to run again with more shards locked.
    pub(crate) fn next_locks(&self) -> Option<BTreeSet<ShardNumber>> {
        match &self.state {
            State::Read(..) => None,
            State::Write(writing) => writing.next_locks(),
        }
    }

    /// Returns the sum of the stamps of all snapshots, which grows with each commit of another process. Returns 0
    /// unless the store is read-only, because a store that this process writes has no other writer.
    pub(crate) fn found(&self) -> Stamp {
        match &self.state {
            State::Read(snapshots, _) if self.engine.is_read_only() => {
                sum(snapshots.iter().filter_map(|snapshot| Some(snapshot.txn.as_ref()?.found())))
            }
            _ => Stamp::default(),
        }
    }

    pub(crate) fn stamp(&self) -> Stamp {
        match &self.state {
            State::Read(snapshots, _) => {
                sum(snapshots.iter().filter_map(|snapshot| Some(snapshot.txn.as_ref()?.stamp())))
            }
            State::Write(writing) => writing.stamp(),
        }
    }

    /// Returns the stamps of all shards, with 0 for shards that the transaction does not have.
    pub(crate) fn stamps(&self) -> Vec<Stamp> {
        match &self.state {
            State::Read(snapshots, _) => {
                let stamp = |snapshot: &Snapshot<'_>| {
                    snapshot.txn.as_ref().map_or_else(Stamp::default, engine::Txn::stamp)
                };
                snapshots.iter().map(stamp).collect()
            }
            State::Write(writing) => writing.stamps(),
        }
    }

    pub(crate) fn reader<'t>(&'t self, tables: &'t Tables) -> Reader<'t> {
        let reads: &'t dyn Reads = match &self.state {
            State::Read(..) => self,
            State::Write(writing) => &**writing,
        };
        Reader::new(reads, self.routed.of(tables))
    }

    /// Returns a writer of the table, or `None` for a read transaction.
    pub(crate) fn writer<'t>(&'t mut self, tables: &'t Tables) -> Option<Writer<'t>> {
        match &mut self.state {
            State::Read(..) => None,
            State::Write(writing) => {
                Some(Writer::new(&mut **writing, self.engine, self.routed.of(tables)))
            }
        }
    }

    /// Begins a nested transaction. Returns `None` for a read transaction.
    pub(crate) fn nested(&mut self) -> Option<Result<Txn<'_>>> {
        let (engine, maps) = (self.engine, self.routed.at().clone());
        match &mut self.state {
            State::Read(..) => None,
            State::Write(writing) => {
                Some(writing.nested().map(|nested| Txn::new(engine, State::Write(nested), maps)))
            }
        }
    }

    pub(crate) fn retry(&self) -> Option<Retry> {
        match &self.state {
            State::Read(..) => None,
            State::Write(writing) => writing.retry(),
        }
    }

    pub(crate) fn commit(self, committed: impl FnOnce()) -> Result<(), CommitFailure> {
        let (mut committed, mut maps) = (Some(committed), self.next_maps);
        let _changing = maps.as_ref().map(|_| self.engine.maps.begin_change());
        match self.state {
            State::Read(..) => Ok(()),
            State::Write(writing) => writing.commit(&mut || {
                if let Some(maps) = maps.take() {
                    self.engine.maps.install(maps);
                }
                if let Some(committed) = committed.take() {
                    committed();
                }
            }),
        }
    }
}

impl Engine {
    /// Returns the error of a transaction of shard `own` that needs `shard`, for the row with this primary key.
    #[cold]
    pub(super) fn other_shard(
        &self,
        tables: &Tables,
        shard: ShardNumber,
        own: Option<ShardNumber>,
        primary_key: Option<&[u8]>,
    ) -> Error {
        let schema = tables.routing.schema();
        Error::OtherShard {
            table: schema.name,
            key: primary_key.map(|key| schema.show_primary_key(key)),
            shard: self.name(shard),
            own: own.map_or_else(String::new, |own| self.name(own)),
        }
    }

    /// Returns the reason why a transaction of all shards does not have this shard.
    #[cold]
    pub(crate) fn without(&self, shard: ShardNumber) -> Error {
        let unavailable = self.shard(shard).and_then(|shard| shard.opened().map(drop));
        unavailable.err().unwrap_or_else(|| Error::ShardUnavailable {
            shard: self.name(shard),
            reason: "it was not available when the transaction began".to_owned(),
        })
    }
}

impl Reads for Txn<'_> {
    fn engine(&self) -> &Engine {
        self.engine
    }

    fn reader<'t>(
        &'t self,
        tables: &'t Tables,
        shard: ShardNumber,
        primary_key: Option<&[u8]>,
    ) -> Result<engine::Reader<'t>> {
        let State::Read(snapshots, only) = &self.state else {
            return Err(Error::internal("a write transaction reads by itself"));
        };
        let snapshot = snapshots.get(shard as usize);
        if let Some(Snapshot { txn: Some(txn), is_read, .. }) = snapshot {
            is_read.set(true);
            let tables_of_shard = tables.of(self.engine, shard)?;
            return txn.reader(tables_of_shard).ok_or_else(|| foreign(tables));
        }
        if let Some(own) = only {
            return Err(self.engine.other_shard(tables, shard, Some(*own), primary_key));
        }
        Err(self.engine.without(shard))
    }

    fn shard_of(&self, tables: &Tables, primary_key: &[u8]) -> Option<ShardNumber> {
        self.routed.of(tables).routing.shard_of(primary_key)
    }

    fn nearest(&self, tables: &Tables) -> ShardNumber {
        let State::Read(snapshots, only) = &self.state else { return 0 };
        // A snapshot may have a shard that is being attached, whose copies are not current yet.
        let present = tables.routing.shards().iter().copied();
        let is_read = |shard: &ShardNumber| {
            snapshots.get(*shard as usize).is_some_and(|snapshot| snapshot.is_read.get())
        };
        let read = || present.clone().find(is_read);
        let first = || present.clone().find(|shard| self.available(tables, *shard).is_ok());
        only.or_else(read).or_else(first).unwrap_or(0)
    }

    fn alone(&self) -> Option<ShardNumber> {
        match &self.state {
            State::Read(_, only) => *only,
            State::Write(_) => None,
        }
    }

    fn may_be_lent(&self) -> bool {
        matches!(self.state, State::Read(..))
    }

    fn available(&self, tables: &Tables, shard: ShardNumber) -> Result<()> {
        match &self.state {
            State::Read(snapshots, None)
                if snapshots.get(shard as usize).is_none_or(|snapshot| snapshot.txn.is_none()) =>
            {
                Err(self.engine.without(shard))
            }
            _ => tables.opened(self.engine, shard).map(drop),
        }
    }
}
