//! The engines of a store: one, or one for each shard.

use std::{
    collections::BTreeSet,
    ops::Deref,
    path::PathBuf,
    sync::{Arc, OnceLock},
    time::Duration,
};

use super::{Inner, Store, lists::TableLists};
use crate::{
    engine::{self, Records, Retry, forward, list::List, lmdb},
    model::{
        error::{Error, Result},
        shard::ShardNumber,
    },
    placement::{
        Txn,
        dispatch::{on_variant, unlikely},
        shards::{self, Shard},
    },
};

/// The engines of a store.
pub(crate) enum Engines {
    /// A store with one data file, in memory without shards or on a server. If a store with one data file has grown since, it
    /// has the shards in `grown`, of which the first has this engine.
    One {
        engine: Arc<engine::Engine>,
        grown: OnceLock<Box<Shards>>,
    },
    Several(Box<Shards>),
}

/// The engines that a store has now.
pub(crate) enum Current<'e> {
    One(&'e Arc<engine::Engine>),
    Several(&'e Shards),
}

/// Calls the same method on the only engine or on the shards.
macro_rules! on_current {
    ($engines:expr, $($rest:tt)*) => {
        on_variant!(Current, $engines.current(), $($rest)*)
    };
}

/// The shards of a store, each with a store of its own.
pub(crate) struct Shards {
    placement: shards::Engine,
    /// The stores of the shards, with those of shards that were replaced or removed.
    stores: List<Arc<Inner>>,
    lists: Arc<TableLists>,
}

impl Deref for Shards {
    type Target = shards::Engine;

    fn deref(&self) -> &shards::Engine {
        &self.placement
    }
}

/// A shard with its store.
pub(crate) struct Member<'s> {
    shard: &'s Shard,
    /// `None` if the shard is not available.
    store: Option<&'s Arc<Inner>>,
}

impl Deref for Member<'_> {
    type Target = Shard;

    fn deref(&self) -> &Shard {
        self.shard
    }
}

impl Member<'_> {
    /// Returns the shard as a store of its own.
    ///
    /// # Errors
    ///
    /// [`Error::ShardUnavailable`]
    pub(crate) fn store(&self) -> Result<Store> {
        self.shard.opened()?;
        let missing = || Error::internal("a shard without a store");
        Ok(Store { inner: Arc::clone(self.store.ok_or_else(missing)?) })
    }
}

impl Shards {
    pub(super) fn new(
        placement: shards::Engine,
        stores: impl IntoIterator<Item = Arc<Inner>>,
        lists: Arc<TableLists>,
    ) -> Self {
        if let Some(manager) = placement.weak_manager() {
            lists.set_manager(manager);
        }
        let shards = Self { placement, stores: List::default(), lists };
        stores.into_iter().for_each(|store| shards.keep_store(&store));
        shards
    }

    /// Returns the lists of the tables.
    pub(super) const fn lists(&self) -> &Arc<TableLists> {
        &self.lists
    }

    /// Lets the store of a shard use the lists of this store.
    pub(crate) fn share_lists(&self, store: &Inner) {
        store.lists.share(&self.lists);
    }

    /// Returns a shard that is not in the list of shards yet. From now on, it uses the lists of this store.
    pub(crate) fn coming<'s>(&self, shard: &'s Shard, store: &'s Arc<Inner>) -> Member<'s> {
        self.share_lists(store);
        Member { shard, store: Some(store) }
    }

    /// Keeps the store of a shard that is added, attached or restored.
    pub(crate) fn keep_store(&self, store: &Arc<Inner>) {
        self.share_lists(store);
        if !self.stores.iter().any(|own| Arc::ptr_eq(own, store)) {
            self.stores.push(Arc::clone(store));
        }
    }

    /// Returns the shard with this number.
    pub(crate) fn member(&self, number: ShardNumber) -> Result<Member<'_>> {
        Ok(self.member_of(self.placement.shard(number)?))
    }

    /// Returns all shards with their numbers, in order. Some may no longer belong to the store.
    pub(crate) fn members(&self) -> impl Iterator<Item = (ShardNumber, Member<'_>)> {
        self.placement.shards().map(|(number, shard)| (number, self.member_of(shard)))
    }

    fn member_of<'s>(&'s self, shard: &'s Shard) -> Member<'s> {
        let engine = shard.opened().ok();
        let is_own = |own: &&Arc<Inner>| {
            own.engines.one().zip(engine).is_some_and(|(own, engine)| Arc::ptr_eq(own, engine))
        };
        Member { shard, store: self.stores.iter().find(is_own) }
    }
}

impl From<engine::Engine> for Engines {
    fn from(engine: engine::Engine) -> Self {
        Self::of(Arc::new(engine))
    }
}

impl Engines {
    /// Returns the engines of a store with this engine alone.
    pub(crate) const fn of(engine: Arc<engine::Engine>) -> Self {
        Self::One { engine, grown: OnceLock::new() }
    }

    /// Adds the shards, because the store has grown.
    pub(crate) fn grow(&self, shards: Box<Shards>) {
        if let Self::One { grown, .. } = self {
            let _ = grown.set(shards);
        }
    }

    /// Returns the engines that the store has now.
    #[inline]
    pub(crate) fn current(&self) -> Current<'_> {
        match self {
            Self::One { engine, grown } => match grown.get() {
                None => Current::One(engine),
                Some(shards) => Current::Several(shards),
            },
            Self::Several(shards) => Current::Several(shards),
        }
    }

    /// Returns the engine of a store with one data file, in memory without shards or on a server.
    #[inline]
    pub(crate) fn one(&self) -> Option<&Arc<engine::Engine>> {
        match self.current() {
            Current::One(engine) => Some(engine),
            Current::Several(_) => None,
        }
    }

    /// Returns the shards; `None` for one engine.
    #[inline]
    pub(crate) fn several(&self) -> Option<&Shards> {
        match self.current() {
            Current::One(_) => None,
            Current::Several(shards) => Some(shards),
        }
    }

    /// Returns the LMDB environment, for operations that other engines don't have.
    pub(crate) fn lmdb(&self) -> Option<&lmdb::Engine> {
        self.one()?.lmdb()
    }

    /// Returns the store on a server.
    #[cfg(feature = "postgres")]
    pub(crate) fn postgres(&self) -> Option<&engine::postgres::Engine> {
        self.one()?.postgres()
    }

    /// Returns each LMDB environment: the environment of the store, or the environments of its available shards.
    pub(crate) fn each_lmdb(&self) -> impl Iterator<Item = &lmdb::Engine> {
        self.each().filter_map(engine::Engine::lmdb)
    }

    /// Returns the engine of the store, or the engines of its available shards.
    pub(crate) fn each(&self) -> impl Iterator<Item = &engine::Engine> {
        let shards = self.several().into_iter().flat_map(|shards| shards.engines());
        self.one().into_iter().map(|engine| &**engine).chain(shards)
    }

    /// Returns the LMDB environment, or an error if the store has several shards or is in memory.
    pub(crate) fn on_disk(&self) -> Result<&lmdb::Engine> {
        match self.current() {
            Current::One(engine) => engine.on_disk(),
            Current::Several(_) => Err(Error::NotOffered { what: "copying a sharded store" }),
        }
    }

    /// Whether other clients commit while this process has write transactions. Then, a transaction can fail because of
    /// a [conflict](Retry::Conflict).
    pub(crate) fn has_other_writers(&self) -> bool {
        self.one().is_some_and(|engine| engine.has_other_writers())
    }

    /// Returns the time in which a closure runs again after conflicts.
    pub(crate) fn retry_for(&self) -> Duration {
        self.one().map_or(Duration::ZERO, |engine| engine.retry_for())
    }

    /// Counts a closure that runs again after a conflict.
    pub(crate) fn note_retry(&self) {
        if let Some(engine) = self.one() {
            engine.note_retry();
        }
    }

    forward! {
        on_current:
        /// Begins a read transaction.
        pub(crate) fn read(&self) -> Result<Txn<'_>> as Txn;

        /// Prepares another run of a closure. This thread must have no transaction. Returns false if the run would
        /// fail in the same way.
        pub(crate) fn prepare(&self, retry: Retry) -> Result<bool>;

        /// Returns the default directory of temporary files.
        pub(crate) fn directory(&self) -> PathBuf;

        /// Returns an error if this process has inherited the store in a fork.
        pub(crate) fn refuse_forked(&self) -> Result<()>;

        /// Whether threads of this process wait for their turn to write, or would soon have to wait.
        pub(crate) fn is_contended(&self) -> bool;

        /// Whether this process can't write the store.
        pub(crate) fn is_read_only(&self) -> bool;

        /// Returns an error if this process can't write the store.
        pub(crate) fn refuse_read_only(&self) -> Result<()>;

        /// Whether the catalog can be read without the write lock.
        pub(crate) fn has_catalog(&self) -> bool;

        /// Reads all records of the catalog.
        pub(crate) fn catalog(&self) -> Result<Records>;

        /// Calls `choose` with the records of the catalog, removes the indexes whose names it returns, with their
        /// records, and returns these names.
        ///
        /// Open tables have the databases `in_use`, by their names in the data file. Such a database stays, with its records. No table
        /// may be opened until this returns.
        ///
        /// # Errors
        ///
        /// If the error comes with a [`Retry`], the call can be repeated after [`prepare`](Engines::prepare).
        pub(crate) fn drop_indexes(
            &self,
            in_use: &BTreeSet<String>,
            choose: &mut dyn FnMut(&Records) -> Vec<String>,
        ) -> Result<Vec<String>, (Error, Option<Retry>)>;
    }

    /// Begins a write transaction.
    pub(crate) fn write(&self) -> Result<Txn<'_>> {
        match self.current() {
            Current::One(engine) => {
                let txn = engine.write()?;
                // The store may have grown while the thread has waited for its turn.
                match self.several() {
                    None => Ok(Txn::One(txn)),
                    Some(shards) => {
                        drop(txn);
                        shards.write().map(Txn::Several)
                    }
                }
            }
            Current::Several(shards) => {
                unlikely();
                shards.write().map(Txn::Several)
            }
        }
    }

    /// Begins a read transaction that sees the result of the write transactions in some order.
    pub(crate) fn read_serializable(&self) -> Result<Txn<'_>> {
        match self.current() {
            Current::One(engine) => engine.read_serializable().map(Txn::One),
            Current::Several(shards) => shards.read().map(Txn::Several),
        }
    }

    /// Begins a read transaction that may take its snapshot when it is first used.
    pub(crate) fn read_later(&self) -> Result<Txn<'_>> {
        match self.current() {
            Current::One(engine) => engine.read_later().map(Txn::One),
            Current::Several(shards) => shards.read().map(Txn::Several),
        }
    }

    /// Returns a read transaction without a snapshot, in the place of a snapshot that has to end. It is not used to read.
    pub(crate) fn without_snapshot(&self) -> Result<Txn<'_>> {
        match self.current() {
            Current::One(engine) => engine.without_snapshot().map(Txn::One),
            Current::Several(shards) => Ok(Txn::Several(shards.without_snapshot())),
        }
    }

    /// Returns the error of a function that needs a second data file.
    #[cold]
    pub(crate) fn has_one_shard(&self) -> Error {
        let what = self.one().map_or("another shard", |engine| engine.why_one());
        Error::NotOffered { what }
    }

    /// Returns the directory or the server of the store, for errors.
    pub(crate) fn location(&self) -> PathBuf {
        match self.current() {
            Current::One(engine) => engine.location(),
            Current::Several(shards) => shards.directory(),
        }
    }
}
