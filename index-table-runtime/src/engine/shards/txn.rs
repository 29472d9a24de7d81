//! Transactions of a sharded store.

use std::cell::{Cell, OnceCell};

use super::{Engine, Reader, Tables, Writer, sum};
use crate::{
    engine::{self, CommitFailure, Retry, Stamp},
    model::{
        error::{Error, Result},
        shard::ShardNumber,
    },
};

/// A transaction.
pub(crate) struct Txn<'s> {
    engine: &'s Engine,
    state: State<'s>,
}

enum State<'s> {
    /// By the numbers of shards.
    Read(Box<[Snapshot<'s>]>, Option<ShardNumber>),
    Write(Box<dyn Writes + 's>),
}

/// The snapshot of a shard.
struct Snapshot<'s> {
    /// `None`: the shard was not available, or the transaction is of another one.
    txn: Option<engine::Txn<'s>>,
    /// Whether a query has read it.
    is_read: Cell<bool>,
}

/// What reads the tables of single shards.
pub(super) trait Reads {
    fn engine(&self) -> &Engine;

    /// Reads the table in this shard. The primary key is for errors.
    fn reader<'t>(
        &'t self,
        tables: &'t Tables,
        shard: ShardNumber,
        primary_key: Option<&[u8]>,
    ) -> Result<engine::Reader<'t>>;

    /// Whether this shard can be read.
    ///
    /// # Errors
    ///
    /// [`Error::ShardUnavailable`]
    fn available(&self, tables: &Tables, shard: ShardNumber) -> Result<()> {
        self.engine().shard(shard)?.opened()?;
        tables.opened(self.engine(), shard).map(drop)
    }
}

/// A write transaction. The lifetime of its engine is hidden, because it is invariant.
pub(super) trait Writes: Reads {
    /// Lets `write` write the table in this shard.
    fn write(
        &mut self,
        tables: &Tables,
        shard: ShardNumber,
        primary_key: Option<&[u8]>,
        write: &mut dyn FnMut(&mut engine::Writer<'_, '_>) -> Result<()>,
    ) -> Result<()>;

    /// The shard that it belongs to, if it belongs to one already.
    fn bound(&self) -> Option<ShardNumber>;

    /// Begins a transaction inside of this one, which belongs to a shard.
    fn nested(&mut self) -> Result<Box<dyn Writes + '_>>;

    /// Drops what was written and read so far.
    fn reset(&mut self);

    fn retry(&self) -> Option<Retry>;

    fn stamp(&self) -> Stamp;

    fn commit(self: Box<Self>, committed: &mut dyn FnMut()) -> Result<(), CommitFailure>;
}

/// The write transaction of one shard.
struct Writing<'s> {
    engine: &'s Engine,
    /// The shard, and its transaction, once there is one.
    txn: OnceCell<(ShardNumber, engine::Txn<'s>)>,
    is_nested: bool,
}

impl<'s> Writing<'s> {
    /// Begins in this shard, or refuses it.
    fn begin(
        &self,
        tables: &Tables,
        shard: ShardNumber,
        primary_key: Option<&[u8]>,
    ) -> Result<&engine::Txn<'s>> {
        if self.txn.get().is_none() {
            let txn = self.engine.shard(shard)?.engine()?.write()?;
            let _ = self.txn.set((shard, txn));
        }
        match self.txn.get() {
            Some((own, txn)) if *own == shard => Ok(txn),
            own => Err(self.other_shard(tables, own.map(|(own, _)| *own), shard, primary_key)),
        }
    }

    #[cold]
    fn other_shard(
        &self,
        tables: &Tables,
        own: Option<ShardNumber>,
        shard: ShardNumber,
        primary_key: Option<&[u8]>,
    ) -> Error {
        let schema = tables.routing.schema();
        Error::OtherShard {
            table: schema.name,
            key: primary_key.map(|key| schema.show_primary_key(key)),
            shard: self.engine.name(shard),
            own: own.map_or_else(String::new, |own| self.engine.name(own)),
        }
    }
}

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
        let txn = self.begin(tables, shard, primary_key)?;
        txn.reader(tables.of(self.engine, shard)?).ok_or_else(|| foreign(tables))
    }
}

impl Writes for Writing<'_> {
    fn write(
        &mut self,
        tables: &Tables,
        shard: ShardNumber,
        primary_key: Option<&[u8]>,
        write: &mut dyn FnMut(&mut engine::Writer<'_, '_>) -> Result<()>,
    ) -> Result<()> {
        self.begin(tables, shard, primary_key)?;
        let tables_of_shard = tables.of(self.engine, shard)?;
        let Some((_, txn)) = self.txn.get_mut() else { return Err(foreign(tables)) };
        write(&mut txn.writer(tables_of_shard).ok_or_else(|| foreign(tables))?)
    }

    fn bound(&self) -> Option<ShardNumber> {
        self.txn.get().map(|(shard, _)| *shard)
    }

    fn nested(&mut self) -> Result<Box<dyn Writes + '_>> {
        let engine = self.engine;
        let not_begun = || Error::internal("a nested transaction before a shard is known");
        let (shard, txn) = self.txn.get_mut().ok_or_else(not_begun)?;
        let nested = txn.nested().ok_or_else(not_begun)??;
        Ok(Box::new(Writing { engine, txn: OnceCell::from((*shard, nested)), is_nested: true }))
    }

    fn reset(&mut self) {
        self.txn = OnceCell::new();
    }

    fn retry(&self) -> Option<Retry> {
        let (shard, txn) = self.txn.get()?;
        txn.retry().map(|retry| of_shard(retry, *shard))
    }

    fn stamp(&self) -> Stamp {
        self.txn.get().map_or_else(Stamp::default, |(_, txn)| txn.stamp())
    }

    fn commit(self: Box<Self>, committed: &mut dyn FnMut()) -> Result<(), CommitFailure> {
        let Self { engine, txn, is_nested } = *self;
        let Some((shard, txn)) = txn.into_inner() else {
            committed();
            return Ok(());
        };
        if is_nested {
            return txn.commit(committed);
        }
        let gate = engine.gate.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        let outcome = txn.commit(committed);
        if let Ok(shard) = engine.shard(shard) {
            shard.commits.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        }
        drop(gate);
        outcome
    }
}

/// A reason to run a closure again that names the shard.
const fn of_shard(retry: Retry, shard: ShardNumber) -> Retry {
    match retry {
        Retry::Map { map_size } => Retry::ShardMap { shard, map_size },
        other => other,
    }
}

fn foreign(tables: &Tables) -> Error {
    Error::WrongStore { table: tables.routing.schema().name }
}

impl<'s> Txn<'s> {
    pub(super) fn reading(
        engine: &'s Engine,
        snapshots: impl Iterator<Item = Option<engine::Txn<'s>>>,
    ) -> Self {
        let snapshots = snapshots.map(|txn| Snapshot { txn, is_read: Cell::new(false) }).collect();
        Self { engine, state: State::Read(snapshots, None) }
    }

    pub(super) fn reading_one(
        engine: &'s Engine,
        snapshots: impl Iterator<Item = Option<engine::Txn<'s>>>,
        shard: ShardNumber,
    ) -> Self {
        let snapshots = snapshots.map(|txn| Snapshot { txn, is_read: Cell::new(false) }).collect();
        Self { engine, state: State::Read(snapshots, Some(shard)) }
    }

    pub(super) fn writing(engine: &'s Engine) -> Self {
        let writing = Writing { engine, txn: OnceCell::new(), is_nested: false };
        Self { engine, state: State::Write(Box::new(writing)) }
    }

    pub(super) fn writing_on(engine: &'s Engine, shard: ShardNumber) -> Result<Self> {
        let txn = OnceCell::from((shard, engine.shard(shard)?.engine()?.write()?));
        let writing = Writing { engine, txn, is_nested: false };
        Ok(Self { engine, state: State::Write(Box::new(writing)) })
    }

    pub(crate) fn directory(&self) -> std::path::PathBuf {
        self.engine.directory()
    }

    /// The number of shards that queries have read.
    pub(crate) fn shards_read(&self) -> u64 {
        match &self.state {
            State::Read(snapshots, _) => {
                snapshots.iter().filter(|snapshot| snapshot.is_read.get()).count() as u64
            }
            State::Write(writing) => u64::from(writing.bound().is_some()),
        }
    }

    /// Whether it writes, and belongs to no shard yet.
    pub(crate) fn is_unbound(&self) -> bool {
        matches!(&self.state, State::Write(writing) if writing.bound().is_none())
    }

    /// Drops what was written and read so far; it belongs to no shard then.
    pub(crate) fn reset(&mut self) {
        if let State::Write(writing) = &mut self.state {
            writing.reset();
        }
    }

    /// As snapshots of other processes are compared: the sum of the stamps, each of which ascends. A store that
    /// this process writes is written by no other one.
    pub(crate) fn found(&self) -> Stamp {
        match &self.state {
            State::Read(snapshots, _) if self.engine.read_only => {
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

    /// The stamps of all shards. Shards that it does not have are 0.
    pub(crate) fn stamps(&self) -> Vec<Stamp> {
        match &self.state {
            State::Read(snapshots, _) => {
                let stamp = |snapshot: &Snapshot<'_>| {
                    snapshot.txn.as_ref().map_or_else(Stamp::default, engine::Txn::stamp)
                };
                snapshots.iter().map(stamp).collect()
            }
            State::Write(writing) => {
                let own = |at| writing.bound().is_some_and(|own| own as usize == at);
                let stamp = |at| if own(at) { writing.stamp() } else { Stamp::default() };
                (0..self.engine.shards.len()).map(stamp).collect()
            }
        }
    }

    pub(crate) fn reader<'t>(&'t self, tables: &'t Tables) -> Reader<'t> {
        let reads: &'t dyn Reads = match &self.state {
            State::Read(..) => self,
            State::Write(writing) => &**writing,
        };
        Reader::new(reads, tables)
    }

    /// `None`: it is a read transaction.
    pub(crate) fn writer<'t>(&'t mut self, tables: &'t Tables) -> Option<Writer<'t>> {
        match &mut self.state {
            State::Read(..) => None,
            State::Write(writing) => Some(Writer::new(&mut **writing, self.engine, tables)),
        }
    }

    /// Begins a transaction inside of this one; `None`: this one does not write.
    pub(crate) fn nested(&mut self) -> Option<Result<Txn<'_>>> {
        let engine = self.engine;
        match &mut self.state {
            State::Read(..) => None,
            State::Write(writing) => {
                Some(writing.nested().map(|nested| Txn { engine, state: State::Write(nested) }))
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
        let mut committed = Some(committed);
        match self.state {
            State::Read(..) => Ok(()),
            State::Write(writing) => writing.commit(&mut || {
                if let Some(committed) = committed.take() {
                    committed();
                }
            }),
        }
    }
}

impl Txn<'_> {
    /// Why it has no snapshot of a shard.
    #[cold]
    fn without(&self, shard: ShardNumber) -> Error {
        let unavailable = self.engine.shard(shard).and_then(|shard| shard.opened().map(drop));
        unavailable.err().unwrap_or_else(|| Error::ShardUnavailable {
            shard: self.engine.name(shard),
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
        if let Some(Snapshot { txn: Some(txn), is_read }) = snapshot {
            is_read.set(true);
            let tables_of_shard = tables.of(self.engine, shard)?;
            return txn.reader(tables_of_shard).ok_or_else(|| foreign(tables));
        }
        if let Some(own) = only {
            let schema = tables.routing.schema();
            return Err(Error::OtherShard {
                table: schema.name,
                key: primary_key.map(|key| schema.show_primary_key(key)),
                shard: self.engine.name(shard),
                own: self.engine.name(*own),
            });
        }
        Err(self.without(shard))
    }

    fn available(&self, tables: &Tables, shard: ShardNumber) -> Result<()> {
        match &self.state {
            State::Read(snapshots, None)
                if snapshots.get(shard as usize).is_none_or(|snapshot| snapshot.txn.is_none()) =>
            {
                Err(self.without(shard))
            }
            _ => tables.opened(self.engine, shard).map(drop),
        }
    }
}
