use std::{borrow::Borrow, fmt, marker::PhantomData, sync::Arc, time::Duration};

use crate::{
    engine::Read,
    model::{
        entity::{Entity, IndexEntry, Viewed},
        error::{Error, Result},
        key::{DecodeError, Key, KeyBuf, Sequence},
        row,
        row_vtable::RowVtable,
    },
    query::{self, Bounds, Distinct, EventualScan, GetMany, Scan},
    store::{self, OpenTable, ReadTxn, Store, WriteTxn, watch::Watch},
    upkeep::{
        build::Build,
        bulk::{self, BulkLoad},
        opening,
        queue::{self as index_queue, DeadLetters, Drained},
        upgrade::Upgrade,
        verify::{Repair, Verify},
    },
    usage::{Ledger, RowWrite, Usage, trace::span},
    write::{
        Scratch,
        queue::{self, IndexToken, Lag},
        rows, sequence,
    },
};

/// A table: its facts and its indexes. What generated repositories are made of.
pub struct Table<R> {
    open: Arc<OpenTable>,
    row: PhantomData<fn() -> R>,
}

impl<R: Entity> Table<R> {
    /// What is compiled once asks these of the row.
    const ROWS: &'static RowVtable = &RowVtable::of::<R>();

    /// Creates the table if it is not there, compares it with its declaration, and builds the
    /// indexes that are new or declared in another way: of a small table in one write transaction, of
    /// a large one step by step.
    ///
    /// # Errors
    ///
    /// [`Error::SchemaMismatch`], and what building an index meets; nothing has changed then, but that
    /// indexes of a large table may be declared and not be readable.
    pub fn open(store: &Store) -> Result<Self> {
        Ok(Self { open: opening::open(store, Self::ROWS)?, row: PhantomData })
    }

    /// Creates the table if it is not there, and compares it with its declaration. Indexes that are new
    /// or declared in another way are left to [`build`](Table::build).
    ///
    /// # Errors
    ///
    /// [`Error::SchemaMismatch`] and errors of the engine; nothing has changed then.
    pub fn open_online(store: &Store) -> Result<Self> {
        Ok(Self { open: opening::open_online(store, Self::ROWS)?, row: PhantomData })
    }

    /// Builds the indexes that are not readable yet.
    pub fn build<'t>(&'t self, store: &'t Store) -> Build<'t> {
        Build::new(store, &self.open, Self::ROWS)
    }

    /// The row with this primary key.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] when it can't be decoded.
    pub fn get(&self, txn: &ReadTxn<'_>, key: <R::Key as Key>::Arg<'_>) -> Result<Option<R>> {
        self.fact(txn, key, |bytes| row::decode(bytes))
    }

    /// The view of the row with this primary key.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] when it can't be decoded.
    pub fn get_view<'txn>(
        &'txn self,
        txn: &'txn ReadTxn<'_>,
        key: <R::Key as Key>::Arg<'_>,
    ) -> Result<Option<R::View<'txn>>>
    where
        R: Viewed,
    {
        self.fact(txn, key, |bytes| row::view::<R>(bytes, &txn.session.unescaped))
    }

    /// What `decode` makes of the row with this primary key.
    fn fact<'txn, T>(
        &'txn self,
        txn: &'txn ReadTxn<'_>,
        key: <R::Key as Key>::Arg<'_>,
        decode: impl FnOnce(&'txn [u8]) -> Result<T, DecodeError>,
    ) -> Result<Option<T>> {
        span!(TRACE, "get", table = R::TABLE.name);
        let mut primary_key = KeyBuf::new();
        R::Key::encode(key, &mut primary_key);
        let bytes = txn.reader(&self.open)?.fact(primary_key.as_bytes())?;
        self.ledger(txn).get(bytes.map_or(0, <[u8]>::len));
        let Some(bytes) = bytes else { return Ok(None) };
        decode(bytes).map(Some).map_err(|error| Self::ROWS.corrupt(error, primary_key.as_bytes()))
    }

    /// The row with this key in the unique index of `E`.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] when it can't be decoded, or is not there.
    pub fn get_by<'txn, E: IndexEntry<'txn, Row = R>>(
        &'txn self,
        txn: &'txn ReadTxn<'_>,
        key: Bounds,
    ) -> Result<Option<R>> {
        self.fact_by::<E, R>(txn, key, |bytes| row::decode(bytes))
    }

    /// The view of the row with this key in the unique index of `E`.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] when it can't be decoded, or is not there.
    pub fn get_view_by<'txn, E: IndexEntry<'txn, Row = R>>(
        &'txn self,
        txn: &'txn ReadTxn<'_>,
        key: Bounds,
    ) -> Result<Option<R::View<'txn>>>
    where
        R: Viewed,
    {
        let kept = &txn.session.unescaped;
        self.fact_by::<E, R::View<'txn>>(txn, key, |bytes| row::view::<R>(bytes, kept))
    }

    /// What `decode` makes of the row with this key in the unique index of `E`.
    fn fact_by<'txn, E: IndexEntry<'txn, Row = R>, T>(
        &'txn self,
        txn: &'txn ReadTxn<'_>,
        key: Bounds,
        decode: impl FnOnce(&'txn [u8]) -> Result<T, DecodeError>,
    ) -> Result<Option<T>> {
        if key.is_hashed() {
            let reader = txn.reader_of(&self.open, E::SOURCE);
            return Scan::<E>::new(reader, self.ledger(txn), key).one(decode);
        }
        let (reader, key) = (txn.reader_of(&self.open, E::SOURCE)?, key.range.start());
        let Some(bytes) = query::row_by(reader, R::TABLE, self.ledger(txn), E::SOURCE, key)? else {
            return Ok(None);
        };
        decode(bytes).map(Some).map_err(|error| R::TABLE.corrupt(E::SOURCE, key, error))
    }

    /// What is within `bounds` in the index, or the fact table, of `E`.
    pub fn scan<'txn, E: IndexEntry<'txn, Row = R>>(
        &'txn self,
        txn: &'txn ReadTxn<'_>,
        bounds: Bounds,
    ) -> Scan<'txn, E> {
        let reader = txn.reader_to_scan(&self.open, E::SOURCE);
        Scan::new(reader.map(|(reader, _)| reader), self.ledger(txn), bounds)
    }

    /// What is within `bounds` in the index of `E`, which is eventual.
    pub fn eventual_scan<'txn, E: IndexEntry<'txn, Row = R>>(
        &'txn self,
        txn: &'txn ReadTxn<'_>,
        bounds: Bounds,
    ) -> EventualScan<'txn, E> {
        EventualScan::new(self.scan(txn, bounds))
    }

    /// Applies so many messages to the eventual indexes.
    ///
    /// # Errors
    ///
    /// What [`Store::transaction`] does.
    pub fn drain(&self, store: &Store, messages: u64) -> Result<Drained> {
        index_queue::drain(store, &self.open, messages)
    }

    /// Waits until what a transaction has left is applied to the eventual indexes; `false`: it was not in
    /// this time.
    ///
    /// # Errors
    ///
    /// What [`Store::read`] does; [`Error::WriteInProgress`].
    pub fn wait_for(&self, store: &Store, token: &IndexToken, timeout: Duration) -> Result<bool> {
        store::wait_for(store, &self.open, token, timeout)
    }

    /// How far the eventual indexes are behind the rows.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`], errors of the engine.
    pub fn lag(&self, txn: &ReadTxn<'_>) -> Result<Lag> {
        queue::lag(R::TABLE, txn.reader(&self.open)?)
    }

    /// The messages that could not be applied.
    ///
    /// # Errors
    ///
    /// Errors of the engine.
    pub fn dead_letters(&self, txn: &ReadTxn<'_>) -> Result<DeadLetters> {
        index_queue::list_dead_letters(R::TABLE, txn.reader(&self.open)?)
    }

    /// Applies the messages that could not be applied once more.
    ///
    /// # Errors
    ///
    /// What [`Store::transaction`] does.
    pub fn retry_dead_letters(&self, store: &Store) -> Result<Drained> {
        index_queue::retry_dead_letters(store, &self.open)
    }

    /// The rows with these primary keys.
    pub fn get_many<'txn, I>(
        &'txn self,
        txn: &'txn ReadTxn<'_>,
        keys: I,
    ) -> GetMany<'txn, R, I::IntoIter>
    where
        I: IntoIterator<Item: Borrow<R::Key>>,
    {
        GetMany::new(txn.reader(&self.open), self.ledger(txn), keys.into_iter())
    }

    /// The different values of the fields behind `leading` in the index, or the fact table, of
    /// `E`.
    pub fn distinct<'txn, E: IndexEntry<'txn, Row = R>, V: Key>(
        &'txn self,
        txn: &'txn ReadTxn<'_>,
        leading: Bounds,
    ) -> Distinct<'txn, V> {
        let reader = txn.reader_to_scan(&self.open, E::SOURCE);
        Distinct::new(reader, R::TABLE, self.ledger(txn), E::SOURCE, leading)
    }

    /// What the table and its indexes have been used for.
    #[must_use]
    pub fn usage(&self) -> Usage {
        Usage::of(&self.open.shared.usage)
    }

    /// Compares the table's indexes with its rows.
    pub fn verify<'txn>(&'txn self, txn: &'txn ReadTxn<'_>) -> Verify<'txn, R> {
        let reader = txn.reader(&self.open);
        Verify::new(reader.and_then(|reader| Ok((reader, txn.unreadable(&self.open)?))))
    }

    /// Makes the table's indexes what its rows say.
    pub fn repair<'txn, 's>(&'txn self, txn: &'txn mut WriteTxn<'s>) -> Repair<'txn, 's, R> {
        Repair::new(txn, &self.open, Self::ROWS)
    }

    /// Watches the changes that are committed.
    pub const fn watch<'a>(&'a self, store: &'a Store) -> Watch<'a, R> {
        Watch::new(store, &self.open)
    }

    /// Writes rows of older versions in the current one.
    pub fn upgrade<'a>(&'a self, store: &'a Store) -> Upgrade<'a, R> {
        Upgrade::new(store, &self.open, Self::ROWS)
    }

    /// Loads many rows in a transaction of its own.
    pub fn bulk_load<'a, I: IntoIterator>(
        &'a self,
        store: &'a Store,
        rows: I,
    ) -> BulkLoad<'a, 'a, R, I::IntoIter> {
        BulkLoad::new(&self.open, bulk::Target::Store(store), rows.into_iter())
    }

    /// Loads many rows.
    pub fn bulk_load_in<'a, 's, I: IntoIterator>(
        &'a self,
        txn: &'a mut WriteTxn<'s>,
        rows: I,
    ) -> BulkLoad<'a, 's, R, I::IntoIter> {
        BulkLoad::new(&self.open, bulk::Target::Txn(txn), rows.into_iter())
    }

    /// Writes a new row.
    ///
    /// # Errors
    ///
    /// [`Error::DuplicateKey`], [`Error::UniqueViolation`], [`Error::KeyTooLong`],
    /// [`Error::Codec`]: nothing has changed then. [`Error::MapFull`] and errors of the engine.
    pub fn insert(&self, txn: &mut WriteTxn<'_>, row: &R) -> Result<()> {
        span!(TRACE, "insert", table = R::TABLE.name);
        let (mut writer, Scratch { new, tried, .. }, written) = txn.row_writer(&self.open)?;
        self.open.load_new(row, new, tried)?;
        rows::insert(Self::ROWS, &mut writer, new, written, RowWrite::Insert)
    }

    /// Writes a new row, which `row` makes for the next number of the table's [`sequence`].
    ///
    /// # Errors
    ///
    /// As [`insert`](Table::insert), [`Error::SequenceExhausted`], [`Error::OtherKey`]: nothing
    /// has changed then, and the number is still to be given out.
    pub fn insert_with(
        &self,
        txn: &mut WriteTxn<'_>,
        row: impl FnOnce(R::Key) -> R,
    ) -> Result<R::Key>
    where
        R::Key: Sequence,
    {
        span!(TRACE, "insert", table = R::TABLE.name);
        let (mut writer, Scratch { new, tried, .. }, written) = txn.row_writer(&self.open)?;
        let last = sequence::last::<R>(&writer)?;
        let exhausted = || sequence::exhausted(R::TABLE.name, last);
        let number = last.checked_add(1).ok_or_else(exhausted)?;
        let key = || R::Key::from_number(number).ok_or_else(exhausted);
        self.open.load_new(&row(key()?), new, tried)?;
        let key = key()?;
        let mut given = KeyBuf::new();
        if given.push(&key).as_bytes() != new.primary_key() {
            return Err(Error::OtherKey {
                table: R::TABLE.name,
                given: R::TABLE.show_primary_key(given.as_bytes()),
                key: R::TABLE.show_primary_key(new.primary_key()),
            });
        }
        rows::insert(Self::ROWS, &mut writer, new, written, RowWrite::Insert)?;
        sequence::keep(&mut writer, number)?;
        Ok(key)
    }

    /// Writes a row, over the one with the same primary key if there is one. A row that is in the
    /// table byte for byte, and so in the same version, is not written again. The order of the elements in a
    /// field that is a `HashSet` or `HashMap` makes no difference.
    ///
    /// # Errors
    ///
    /// [`Error::UniqueViolation`], [`Error::KeyTooLong`], [`Error::Codec`]: nothing has changed
    /// then. [`Error::MapFull`] and errors of the engine.
    pub fn put(&self, txn: &mut WriteTxn<'_>, row: &R) -> Result<()> {
        span!(TRACE, "put", table = R::TABLE.name);
        let (mut writer, Scratch { old, new, tried }, written) = txn.row_writer(&self.open)?;
        self.open.load_new(row, new, tried)?;
        rows::put(Self::ROWS, &mut writer, old, new, written)
    }

    /// Reads a row, lets `change` change it, and writes it back; `false`: there is no such row.
    ///
    /// # Errors
    ///
    /// As [`put`](Table::put), and [`Error::DuplicateKey`] when the primary key was changed to
    /// that of another row: nothing has changed then.
    pub fn update(
        &self,
        txn: &mut WriteTxn<'_>,
        key: <R::Key as Key>::Arg<'_>,
        change: impl FnOnce(&mut R),
    ) -> Result<bool> {
        span!(TRACE, "update", table = R::TABLE.name);
        let (mut writer, Scratch { old, new, tried }, written) = txn.row_writer(&self.open)?;
        let Some(mut row) = rows::load_by_key::<R>(&writer, key, old)? else { return Ok(false) };
        change(&mut row);
        self.open.load_new(&row, new, tried)?;
        rows::update(Self::ROWS, &mut writer, old, new, written)?;
        Ok(true)
    }

    /// Removes a row; `false`: there is no such row.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] when the row can't be decoded, which [`repair`](Table::repair) is for;
    /// errors of the engine.
    pub fn delete(&self, txn: &mut WriteTxn<'_>, key: <R::Key as Key>::Arg<'_>) -> Result<bool> {
        span!(TRACE, "delete", table = R::TABLE.name);
        let (mut writer, Scratch { old, .. }, written) = txn.row_writer(&self.open)?;
        let mut primary_key = KeyBuf::new();
        R::Key::encode(key, &mut primary_key);
        rows::delete(Self::ROWS, &mut writer, primary_key.as_bytes(), old, written)
    }

    fn ledger<'txn>(&'txn self, txn: &'txn ReadTxn<'_>) -> Ledger<'txn> {
        Ledger::new(&txn.session, &self.open.shared.usage)
    }
}

impl<R> Clone for Table<R> {
    fn clone(&self) -> Self {
        Self { open: Arc::clone(&self.open), row: PhantomData }
    }
}

impl<R> fmt::Debug for Table<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Table").field(&self.open.schema.name).finish()
    }
}

/// Compiles if `T` is the repository of `R`, and not another type that has the name.
///
/// # Panics
///
/// Otherwise, when it is compiled.
pub const fn assert_repository<T, R>(message: &str) {
    assert!(size_of::<T>() == size_of::<Table<R>>(), "{}", message);
}
