//! The methods with a key or an index as a parameter, for generated methods.

use std::{fmt, marker::PhantomData, ops::Deref, sync::Arc};

use super::{Table, untyped::Writing};
use crate::{
    model::{
        entity::{Entity, IndexEntry, Viewed},
        error::{Error, Result},
        key::{Key, KeyBuf, Sequence},
        row,
        schema::Source,
    },
    query::{Bounds, Distinct, EventualScan, Scan},
    store::{
        GroupWriter, OpenTable, QueueFull, ReadTxn, RowKey, ShardId, Store, Submission, Submitted,
        WriteTxn, shard_id,
    },
    upkeep::opening,
    usage::{RowWrite, trace::span},
    write::{
        Scratch,
        rows::{self, LoadRow as _},
    },
};

/// A table with the methods that have a key or an index as a parameter, for generated methods. They are not methods
/// of [`Table`], so that they don't appear as methods of the repository.
///
/// The unusual alignment distinguishes a repository from a user's type of the same name, which can also be one pointer:
/// see [`is_repository`](super::is_repository).
#[repr(align(16))]
pub struct KeyedTable<R> {
    table: Table<R>,
}

impl<R> Clone for KeyedTable<R> {
    fn clone(&self) -> Self {
        Self { table: self.table.clone() }
    }
}

impl<R> fmt::Debug for KeyedTable<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.table.fmt(f)
    }
}

impl<R> Deref for KeyedTable<R> {
    type Target = Table<R>;

    fn deref(&self) -> &Table<R> {
        &self.table
    }
}

impl<R: Entity> KeyedTable<R> {
    /// Creates the table if it does not exist, compares it with its declaration, and builds the indexes that
    /// are new or declared differently. A small table is built in one write transaction, a large table in batches.
    ///
    /// # Errors
    ///
    /// [`Error::SchemaMismatch`], [`Error::UniqueViolation`] and [`Error::KeyTooLong`] if rows can't have entries in a new
    /// index, and the [errors of writing](crate::Error#common-errors). After an error, nothing has changed, except that
    /// indexes of a large table may be declared and not readable.
    pub fn open(store: &Store) -> Result<Self> {
        opening::open(store, Table::<R>::ROWS).map(Self::of)
    }

    /// Creates the table if it does not exist, and compares it with its declaration. [`build`](Table::build)
    /// builds indexes that are new or declared differently.
    ///
    /// # Errors
    ///
    /// [`Error::SchemaMismatch`], and the [errors of writing](crate::Error#common-errors). After an error, nothing has
    /// changed; in a sharded store, the table may be declared in some shards.
    pub fn open_online(store: &Store) -> Result<Self> {
        opening::open_online(store, Table::<R>::ROWS).map(Self::of)
    }

    const fn of(open: Arc<OpenTable>) -> Self {
        Self { table: Table { open, row: PhantomData } }
    }

    /// Returns the shard of the rows with the shard key at the start of these bounds.
    ///
    /// # Errors
    ///
    /// [`Error::NoShard`]; [`Error::WrongStore`]; [`Error::Forked`].
    pub fn shard_of(&self, store: &Store, shard_key: &Bounds) -> Result<ShardId> {
        let open = &self.table.open;
        store.inner.engines.refuse_forked()?;
        open.check_store(store.inner.id)?;
        shard_id(store, open.shard_of_shard_key(shard_key.range.start())?)
    }

    /// Submits a closure for the rows with the shard key at the start of these bounds.
    pub fn submit_for<T, E, F>(
        &self,
        writer: &GroupWriter,
        shard_key: &Bounds,
        body: F,
    ) -> Submitted<T, E>
    where
        T: Send + 'static,
        E: From<Error> + Send + 'static,
        F: FnMut(&mut WriteTxn<'_>) -> Result<T, E> + Send + 'static,
    {
        writer.submit_for(self.row_key(shard_key), body)
    }

    /// Submits a closure for the rows with the shard key at the start of these bounds if there is room in the queue.
    ///
    /// # Errors
    ///
    /// [`QueueFull`] with the closure.
    pub fn try_submit_for<T, E, F>(
        &self,
        writer: &GroupWriter,
        shard_key: &Bounds,
        body: F,
    ) -> Result<Submitted<T, E>, QueueFull<F>>
    where
        T: Send + 'static,
        E: From<Error> + Send + 'static,
        F: FnMut(&mut WriteTxn<'_>) -> Result<T, E> + Send + 'static,
    {
        writer.try_submit_for(self.row_key(shard_key), body)
    }

    /// Submits a closure for the rows with the shard key at the start of these bounds from async code.
    pub fn submit_for_async<T, E, F>(
        &self,
        writer: &GroupWriter,
        shard_key: &Bounds,
        body: F,
    ) -> Submission<T, E, F>
    where
        T: Send + 'static,
        E: From<Error> + Send + 'static,
        F: FnMut(&mut WriteTxn<'_>) -> Result<T, E> + Send + 'static,
    {
        writer.submit_for_async(self.row_key(shard_key), body)
    }

    fn row_key(&self, shard_key: &Bounds) -> RowKey {
        RowKey::new(&self.table.open, shard_key.range.start())
    }

    /// Calls `row` with the next number after the leading fields of the primary key, adds the returned row, and returns
    /// the number.
    ///
    /// # Errors
    ///
    /// The errors of [`insert_with`](Table::insert_with); [`Error::KeyTooLong`] if the leading fields have more than 400 bytes.
    #[expect(clippy::needless_pass_by_value, reason = "generated code passes a new value")]
    pub fn insert_within<N: Sequence>(
        &self,
        txn: &mut WriteTxn<'_>,
        leading: Bounds,
        row: impl FnOnce(N) -> R,
    ) -> Result<N> {
        span!(TRACE, "insert", table = R::TABLE.name);
        self.table.insert_after(txn, leading.range.start(), row)
    }

    /// Returns the row with this primary key.
    ///
    /// # Errors
    ///
    /// The [errors of reading](crate::Error#common-errors), such as [`Error::Corrupt`] if it can't be decoded.
    pub fn get(&self, txn: &ReadTxn<'_>, key: <R::Key as Key>::Arg<'_>) -> Result<Option<R>> {
        self.table.get_encoded(txn, &encoded_argument::<R>(key))
    }

    /// Returns the view of the row with this primary key.
    ///
    /// # Errors
    ///
    /// The [errors of reading](crate::Error#common-errors), such as [`Error::Corrupt`] if it can't be decoded.
    pub fn get_view<'txn>(
        &'txn self,
        txn: &'txn ReadTxn<'_>,
        key: <R::Key as Key>::Arg<'_>,
    ) -> Result<Option<R::View<'txn>>>
    where
        R: Viewed,
    {
        let key = encoded_argument::<R>(key);
        span!(TRACE, "get", table = R::TABLE.name);
        let open = &self.table.open;
        let Some(bytes) = txn.fact(open, key.as_bytes())? else { return Ok(None) };
        match row::view::<R>(&open.rows.lists, bytes, &txn.session.unescaped) {
            Ok(view) => Ok(Some(view)),
            Err(error) => Err(open.corrupt(Source::Facts, key.as_bytes(), error)),
        }
    }

    /// Reads a row, calls `change`, and writes the row back. Returns false if there is no such row.
    ///
    /// # Errors
    ///
    /// The errors of [`put`](Table::put), and [`Error::DuplicateKey`] if `change` sets the primary key to the key of another
    /// row. After an error, nothing has changed.
    pub fn update(
        &self,
        txn: &mut WriteTxn<'_>,
        key: <R::Key as Key>::Arg<'_>,
        change: impl FnOnce(&mut R),
    ) -> Result<bool> {
        self.table.update_encoded(txn, &encoded_argument::<R>(key), change)
    }

    /// Reads a row, calls `change`, and writes the row back if `change` succeeds. Returns `None` if there is no such
    /// row.
    ///
    /// # Errors
    ///
    /// The errors of `change` and of [`update`](KeyedTable::update). After an error, nothing has changed.
    pub fn try_update<T, E: From<Error>>(
        &self,
        txn: &mut WriteTxn<'_>,
        key: <R::Key as Key>::Arg<'_>,
        change: impl FnOnce(&mut R) -> Result<T, E>,
    ) -> Result<Option<T>, E> {
        let key = encoded_argument::<R>(key);
        txn.operate_once(|txn| self.table.try_update_encoded(txn, &key, change))
    }

    /// Removes a row. Returns false if there is no such row.
    ///
    /// # Errors
    ///
    /// The [errors of writing](crate::Error#common-errors), such as [`Error::Corrupt`] if the row can't be decoded; in this
    /// case, use [`repair`](Table::repair).
    pub fn delete(&self, txn: &mut WriteTxn<'_>, key: <R::Key as Key>::Arg<'_>) -> Result<bool> {
        self.table.open.delete(txn, encoded_argument::<R>(key).as_bytes())
    }

    /// Removes a row and returns it.
    ///
    /// # Errors
    ///
    /// The errors of [`delete`](KeyedTable::delete).
    pub fn remove(
        &self,
        txn: &mut WriteTxn<'_>,
        key: <R::Key as Key>::Arg<'_>,
    ) -> Result<Option<R>> {
        self.table.remove_encoded(txn, &encoded_argument::<R>(key))
    }

    /// Replaces the row with the same key in the unique index at this position, or adds the row.
    ///
    /// # Errors
    ///
    /// The errors of [`put`](Table::put), [`Error::DuplicateKey`] if a third row has the primary key, and
    /// [`Error::IndexNotReadable`]. After an error, nothing has changed.
    pub fn put_by(&self, txn: &mut WriteTxn<'_>, index: usize, row: &R) -> Result<()> {
        let open = &self.table.open;
        open.write_row(txn, Writing::PutBy(index), &open.new_row(row))
    }

    /// Removes the row with this key in the unique index at this position. Returns false if there is no such row.
    ///
    /// # Errors
    ///
    /// The errors of [`delete`](KeyedTable::delete); [`Error::IndexNotReadable`].
    #[expect(clippy::needless_pass_by_value, reason = "generated code passes a new value")]
    pub fn delete_by(&self, txn: &mut WriteTxn<'_>, index: usize, key: Bounds) -> Result<bool> {
        self.table.open.delete_by(txn, Source::Index(index), &key)
    }

    /// Returns the row with this key in the unique index at this position.
    ///
    /// # Errors
    ///
    /// [`Error::IndexNotReadable`], and the [errors of reading](crate::Error#common-errors), such as [`Error::Corrupt`] if
    /// the row can't be decoded or an entry refers to a missing row.
    #[expect(clippy::needless_pass_by_value, reason = "generated code passes a new value")]
    pub fn get_by(&self, txn: &ReadTxn<'_>, index: usize, key: Bounds) -> Result<Option<R>> {
        let (open, source) = (&self.table.open, Source::Index(index));
        let Some(bytes) = open.row_by(txn, source, &key)? else { return Ok(None) };
        match row::decode(&open.rows.lists, bytes) {
            Ok(row) => Ok(Some(row)),
            Err(error) => Err(open.corrupt_by(txn, source, &key, error)),
        }
    }

    /// Returns the view of the row with this key in the unique index at this position.
    ///
    /// # Errors
    ///
    /// [`Error::IndexNotReadable`], and the [errors of reading](crate::Error#common-errors), such as [`Error::Corrupt`] if
    /// the row can't be decoded or an entry refers to a missing row.
    #[expect(clippy::needless_pass_by_value, reason = "generated code passes a new value")]
    pub fn get_view_by<'txn>(
        &'txn self,
        txn: &'txn ReadTxn<'_>,
        index: usize,
        key: Bounds,
    ) -> Result<Option<R::View<'txn>>>
    where
        R: Viewed,
    {
        let (open, source) = (&self.table.open, Source::Index(index));
        let Some(bytes) = open.row_by(txn, source, &key)? else { return Ok(None) };
        match row::view::<R>(&open.rows.lists, bytes, &txn.session.unescaped) {
            Ok(view) => Ok(Some(view)),
            Err(error) => Err(open.corrupt_by(txn, source, &key, error)),
        }
    }

    /// Returns a scan of the entries within `bounds` in the index, or the fact table, of `E`.
    ///
    /// The other methods take the position of an index, and this one does not require that `E` is an entry of `R`: if
    /// another type has the name of an entry, each bound causes an error of its own.
    pub fn scan<'txn, E: IndexEntry<'txn>>(
        &'txn self,
        txn: &'txn ReadTxn<'_>,
        bounds: Bounds,
    ) -> Scan<'txn, E> {
        Scan { request: self.table.open.scan(txn, E::SOURCE, bounds), entry: PhantomData }
    }

    /// Returns a scan of the entries within `bounds` in the eventual index of `E`.
    pub fn eventual_scan<'txn, E: IndexEntry<'txn>>(
        &'txn self,
        txn: &'txn ReadTxn<'_>,
        bounds: Bounds,
    ) -> EventualScan<'txn, E> {
        EventualScan::new(self.scan(txn, bounds))
    }

    /// Returns the distinct values of the fields after `leading` in an index, or in the fact table.
    pub fn distinct<'txn, V: Key>(
        &'txn self,
        txn: &'txn ReadTxn<'_>,
        source: Source,
        leading: Bounds,
    ) -> Distinct<'txn, V> {
        Distinct { request: self.table.open.distinct(txn, source, leading), value: PhantomData }
    }
}

impl<R: Entity> Table<R> {
    pub(super) fn get_encoded(&self, txn: &ReadTxn<'_>, key: &KeyBuf) -> Result<Option<R>> {
        span!(TRACE, "get", table = R::TABLE.name);
        let Some(bytes) = txn.fact(&self.open, key.as_bytes())? else { return Ok(None) };
        self.decode(bytes, Source::Facts, key.as_bytes())
    }

    fn remove_encoded(&self, txn: &mut WriteTxn<'_>, key: &KeyBuf) -> Result<Option<R>> {
        let mut row = None;
        self.open.remove_row(txn, key.as_bytes(), &mut |writer, old| {
            row = rows::load_by_key::<R>(&self.open.rows, writer, key.as_bytes(), old)?;
            Ok(row.is_some())
        })?;
        Ok(row)
    }

    fn try_update_encoded<T, E: From<Error>>(
        &self,
        txn: &mut WriteTxn<'_>,
        key: &KeyBuf,
        change: impl FnOnce(&mut R) -> Result<T, E>,
    ) -> Result<Option<T>, E> {
        span!(TRACE, "update", table = R::TABLE.name);
        let (mut writer, Scratch { old, new, tried }, written) = txn.row_writer(&self.open)?;
        let Some(mut row) = rows::load_by_key::<R>(&self.open.rows, &writer, key.as_bytes(), old)?
        else {
            return Ok(None);
        };
        let value = change(&mut row)?;
        self.open.new_row(&row).load(new, tried)?;
        rows::update(&self.open.rows, &mut writer, old, new, written, RowWrite::Update)?;
        Ok(Some(value))
    }

    pub(super) fn update_encoded(
        &self,
        txn: &mut WriteTxn<'_>,
        key: &KeyBuf,
        change: impl FnOnce(&mut R),
    ) -> Result<bool> {
        let mut change = Some(change);
        self.open.update_row(txn, &mut |writer, Scratch { old, new, tried }| {
            let Some(mut row) =
                rows::load_by_key::<R>(&self.open.rows, writer, key.as_bytes(), old)?
            else {
                return Ok(false);
            };
            if let Some(change) = change.take() {
                change(&mut row);
            }
            self.open.new_row(&row).load(new, tried)?;
            Ok(true)
        })
    }
}

/// Returns the stored form of a primary key.
pub(super) fn encoded_argument<R: Entity>(key: <R::Key as Key>::Arg<'_>) -> KeyBuf {
    let mut encoded = KeyBuf::new();
    R::Key::encode(key, &mut encoded);
    encoded
}
