//! The shards of a store: the application's handle to several engines that form one store. A store with one data file has one
//! shard, named `main`.

mod archive;
mod belonging;
mod claim;
mod copy;
mod declared;
mod grow;
mod join;
mod leftovers;
#[cfg(feature = "memory")]
mod memory;
mod open;
mod options;
mod rebuild;
mod settle;
mod shard;
mod shards;

use std::{fmt, sync::Arc};

pub(super) use archive::{first_restorable, last_bases, place_of as place_in_copy, restore_shards};
pub(super) use belonging::{
    has_manager, is_growing, is_open, leave_shards, leave_store, mark_copy, refuse_shard,
};
pub(super) use claim::refuse_new_shard;
pub(super) use copy::{close as close_copy, copy_shards};
pub(crate) use grow::Growing;
pub(super) use grow::{grow_copy, has_one_file};
pub(crate) use join::{
    leave_records, open_added, open_attached, open_copy, open_followed, open_restored,
};
pub(crate) use leftovers::{left_copies, name_of_copy};
pub(super) use open::{LOCK, open};

use super::{OpenTable, ReadTxn, Store, TransactionBody, WriteTxn};
use crate::{
    model::{
        error::{Error, Result},
        shard::ShardNumber,
    },
    placement::Txn,
    store::Shards,
};

/// The name of the only shard of a store with one data file, in memory or on a server.
pub(crate) const MAIN: &str = "main";

/// A shard of a store, returned by the `shard_of` of a repository and by [`Store::shard`]. A store with one data file, in memory
/// without shards or on a server has one shard, named `main`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ShardId {
    number: ShardNumber,
    name: Arc<str>,
    /// The [`Inner::id`] of its store.
    store: u64,
}

impl ShardId {
    pub(crate) const fn new(number: ShardNumber, name: Arc<str>, store: u64) -> Self {
        Self { number, name, store }
    }

    /// Returns the name of the shard.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl ShardId {
    /// Returns the number of the shard in the store with this [`Inner::id`].
    pub(crate) fn number_in(&self, store: u64) -> Result<ShardNumber> {
        if self.store != store {
            return Err(Error::ShardRefused {
                what: format!("shard `{self}`"),
                reason: "it is a shard of another store".to_owned(),
            });
        }
        Ok(self.number)
    }
}

impl fmt::Display for ShardId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.name)
    }
}

impl Store {
    /// Returns the shard with this name.
    ///
    /// # Errors
    ///
    /// [`Error::ShardRefused`]: no shard has this name.
    pub fn shard(&self, name: &str) -> Result<ShardId> {
        let number = match shards_of(self)? {
            Some(shards) => shards.number(name),
            None => (name == MAIN).then_some(0),
        };
        let number = number.ok_or_else(|| Error::ShardRefused {
            what: format!("shard `{name}`"),
            reason: "the store has no such shard".to_owned(),
        })?;
        shard_id(self, number)
    }

    /// Returns all shards, in the order in which they were declared. In a forked process, returns no shards.
    #[must_use]
    pub fn shard_ids(&self) -> Vec<ShardId> {
        let engine = match shards_of(self) {
            Ok(Some(engine)) => engine,
            Ok(None) => return shard_id(self, 0).into_iter().collect(),
            Err(_) => return Vec::new(),
        };
        let present = engine.current_shards().into_iter();
        present.filter_map(|number| shard_id(self, number).ok()).collect()
    }

    /// Returns the shards that are not available, each with the reason. A shard is not available if it was left out by
    /// [`only`](crate::Options::only), or if it could not be opened.
    #[must_use]
    pub fn unavailable_shards(&self) -> Vec<(ShardId, String)> {
        let Ok(engine) = engine_of(self) else { return Vec::new() };
        let missing = engine.shards().filter_map(|(number, shard)| {
            let Err(Error::ShardUnavailable { reason, .. }) = shard.opened() else { return None };
            if shard.is_gone() {
                return None;
            }
            Some((shard_id(self, number).ok()?, reason))
        });
        missing.collect()
    }

    /// Begins a read transaction of one shard.
    ///
    /// A query that needs another shard fails with [`Error::OtherShard`].
    ///
    /// Cost: the same as [`Store::read`] on a store with one data file.
    ///
    /// # Errors
    ///
    /// [`Error::ShardUnavailable`], and the errors of [`Store::read`].
    pub fn read_on(&self, shard: &ShardId) -> Result<ReadTxn<'_>> {
        let (inner, number) = (&self.inner, self.number_of(shard)?);
        let Some(shards) = shards_of(self)? else { return self.read() };
        let opened = inner.opened();
        let txn = shards.read_on(number)?;
        Ok(ReadTxn::new(Txn::Several(txn), inner.id, opened))
    }

    /// Begins a write transaction of one shard. Other shards can be written to at the same time.
    ///
    /// # Errors
    ///
    /// [`Error::ShardUnavailable`], and the errors of [`Store::write`].
    pub fn write_on(&self, shard: &ShardId) -> Result<WriteTxn<'_>> {
        self.begin_write_on(shard).map(WriteTxn::reporting_loss)
    }

    /// [`write_on`](Store::write_on), for a transaction whose changes may be dropped.
    pub(in crate::store) fn begin_write_on(&self, shard: &ShardId) -> Result<WriteTxn<'_>> {
        let (inner, number) = (&self.inner, self.number_of(shard)?);
        let Some(shards) = shards_of(self)? else { return self.begin_write() };
        inner.refuse_nested_write()?;
        Ok(self.writing(Txn::Several(shards.write_on(number)?)))
    }

    /// Runs `body` in a write transaction of one shard, as [`Store::transaction`] does. Other shards can be written to
    /// at the same time.
    ///
    /// # Errors
    ///
    /// [`Error::OtherShard`]: a row or a query needs another shard. [`Error::ShardUnavailable`], and the errors of
    /// [`Store::transaction`].
    pub fn transaction_on<T, E, F>(&self, shard: &ShardId, mut body: F) -> Result<T, E>
    where
        F: FnMut(&mut WriteTxn<'_>) -> Result<T, E> + TransactionBody<E>,
    {
        self.try_transaction_on(shard, |txn| body(txn).map_err(F::into_error)).map_err(F::of)
    }

    /// Runs `body` like [`transaction_on`](Store::transaction_on), with an error of your own.
    ///
    /// # Errors
    ///
    /// The errors of [`transaction_on`](Store::transaction_on), and those of `body`.
    pub fn try_transaction_on<T, E: From<Error>>(
        &self,
        shard: &ShardId,
        body: impl FnMut(&mut WriteTxn<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        self.run_transaction(|_| self.write_on(shard), body)
    }
}

impl Store {
    /// Returns the number of a shard of this store.
    pub(crate) fn number_of(&self, shard: &ShardId) -> Result<ShardNumber> {
        shard.number_in(self.inner.id)
    }
}

/// Returns the shards of a store; `None`: the store has one data file, is in memory without shards, or is on a server.
pub(crate) fn shards_of(store: &Store) -> Result<Option<&Shards>> {
    let Some(shards) = store.inner.engines.several() else { return Ok(None) };
    // In a forked process, a lock may be held by a thread that does not exist.
    shards.refuse_forked()?;
    Ok(Some(shards))
}

/// Returns the shards of a store with several data files.
///
/// # Errors
///
/// [`Error::NotOffered`]: the store has one shard.
pub(crate) fn engine_of(store: &Store) -> Result<&Shards> {
    shards_of(store)?.ok_or_else(|| store.inner.engines.has_one_shard())
}

/// Returns the shards of a store with several data files that is to be changed.
///
/// # Errors
///
/// The store can't be written, or this thread has a write transaction.
pub(crate) fn engine_to_change(store: &Store) -> Result<&Shards> {
    let shards = engine_of(store)?;
    shards.refuse_read_only()?;
    store.inner.refuse_nested_write()?;
    Ok(shards)
}

/// Returns the shard with this number.
pub(crate) fn shard_id(store: &Store, number: ShardNumber) -> Result<ShardId> {
    let name = match shards_of(store)? {
        Some(shards) => Arc::clone(shards.shard(number)?.name()),
        None => Arc::from(MAIN),
    };
    Ok(ShardId { number, name, store: store.inner.id })
}

/// Returns the shards that have a table, or only one shard, each as a store of its own. Leaves out a shard that is removed or
/// detached meanwhile.
///
/// # Errors
///
/// [`Error::ShardUnavailable`]
pub(crate) fn parts_of(
    store: &Store,
    table: &OpenTable,
    only: Option<ShardNumber>,
) -> Result<Vec<(Store, Arc<OpenTable>)>> {
    let engine = engine_of(store)?;
    let routing = table.tables.routing().ok_or_else(|| store.inner.engines.has_one_shard())?;
    let shards = routing.shards().iter().copied();
    let shards = shards.filter(|shard| only.is_none_or(|only| only == *shard));
    let part = |number: ShardNumber| {
        let shard = engine.member(number)?;
        let own = || table.in_shard(number).ok_or_else(|| engine.without(number));
        let part = shard.store().and_then(|store| Ok((store, own()?)));
        match part {
            Err(_) if only.is_none() && shard.is_gone() => Ok(None),
            part => part.map(Some),
        }
    };
    shards.map(part).filter_map(Result::transpose).collect()
}
