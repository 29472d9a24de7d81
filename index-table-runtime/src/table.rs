use std::{
    borrow::Borrow,
    fmt,
    marker::PhantomData,
    sync::{Arc, atomic::Ordering},
};

use crate::{
    engine::{Read, Write, Writer},
    entity::{Entity, IndexEntry, Viewed},
    error::{Error, Result},
    get_many::GetMany,
    key::{DecodeError, Key, KeyBuf, Sequence},
    maintain::{self, Change, Image, Sink},
    row,
    scan::{self, Bounds, Distinct, Position, Query, Scan},
    schema::{Comparison, Source, TableRecord},
    sequence,
    stats::Ledger,
    store::{OpenTable, Store},
    trace::span,
    txn::{ReadTxn, Scratch, WriteTxn},
    unique,
    usage::{RowWrite, Tally, Usage},
};

/// Rows of a table that are read back for a test, in each process.
const TRIED_ROWS: u64 = 256;

/// Rows read at a time while an index is built.
const BUILD_BATCH: u64 = 1024;

/// A table: its facts and its indexes. What generated repositories are made of.
pub struct Table<R> {
    open: Arc<OpenTable>,
    row: PhantomData<fn() -> R>,
}

impl<R: Entity> Table<R> {
    /// Creates the table if it is not there, compares it with its declaration, and builds the
    /// indexes that are new or declared in another way, all in one write transaction.
    ///
    /// # Errors
    ///
    /// [`Error::SchemaMismatch`], and what building an index meets; nothing has changed then.
    pub fn open(store: &Store) -> Result<Self> {
        let open = store.inner.open_once(R::TABLE, |engine| {
            span!(DEBUG, "open", table = R::TABLE.name);
            let mut record = Vec::new();
            let tables = engine.open_table(R::TABLE, |writer| {
                record = prepare::<R>(writer)?;
                Ok(())
            })?;
            Ok((tables, record))
        })?;
        Ok(Self { open, row: PhantomData })
    }

    /// The row with this primary key.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] when it can't be decoded.
    pub fn get(&self, txn: &ReadTxn<'_>, key: <R::Key as Key>::Arg<'_>) -> Result<Option<R>> {
        self.fact(txn, key, row::decode)
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
        self.fact(txn, key, row::view::<R>)
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
        decode(bytes).map(Some).map_err(|error| corrupt::<R>(error, primary_key.as_bytes()))
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
        self.fact_by::<E, R>(txn, key, row::decode)
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
        self.fact_by::<E, R::View<'txn>>(txn, key, row::view::<R>)
    }

    /// What `decode` makes of the row with this key in the unique index of `E`.
    fn fact_by<'txn, E: IndexEntry<'txn, Row = R>, T>(
        &'txn self,
        txn: &'txn ReadTxn<'_>,
        key: Bounds,
        decode: impl FnOnce(&'txn [u8]) -> Result<T, DecodeError>,
    ) -> Result<Option<T>> {
        if key.is_hashed() {
            return self.scan::<E>(txn, key).one(decode);
        }
        let (reader, key) = (txn.reader(&self.open)?, key.start());
        let Some(bytes) = scan::row_by(reader, R::TABLE, self.ledger(txn), E::SOURCE, key)? else {
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
        Scan::new(txn.reader(&self.open), self.ledger(txn), bounds)
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
        let reader = txn.reader(&self.open);
        Distinct::new(reader, R::TABLE, self.ledger(txn), E::SOURCE, leading)
    }

    /// What the table and its indexes have been used for.
    #[must_use]
    pub fn usage(&self) -> Usage {
        Usage::of(&self.open.usage)
    }

    /// Writes a new row.
    ///
    /// # Errors
    ///
    /// [`Error::DuplicateKey`], [`Error::UniqueViolation`], [`Error::KeyTooLong`],
    /// [`Error::Codec`]: nothing has changed then. [`Error::MapFull`] and errors of the engine.
    pub fn insert(&self, txn: &mut WriteTxn<'_>, row: &R) -> Result<()> {
        span!(TRACE, "insert", table = R::TABLE.name);
        let (mut writer, Scratch { new, tried, .. }, tally) = self.writer(txn)?;
        self.load_new(row, new, tried)?;
        insert::<R>(&mut writer, new, tally)
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
        let (mut writer, Scratch { new, tried, .. }, tally) = self.writer(txn)?;
        let last = sequence::last::<R>(&writer)?;
        let exhausted = || Error::SequenceExhausted { table: R::TABLE.name, last };
        let number = last.checked_add(1).ok_or_else(exhausted)?;
        let key = || R::Key::from_number(number).ok_or_else(exhausted);
        self.load_new(&row(key()?), new, tried)?;
        let key = key()?;
        let mut given = KeyBuf::new();
        if given.push(&key).as_bytes() != new.primary_key() {
            return Err(Error::OtherKey {
                table: R::TABLE.name,
                given: R::TABLE.show_primary_key(given.as_bytes()),
                key: R::TABLE.show_primary_key(new.primary_key()),
            });
        }
        insert::<R>(&mut writer, new, tally)?;
        sequence::keep(&mut writer, number)?;
        Ok(key)
    }

    /// Writes a row, over the one with the same primary key if there is one. A row that is in the
    /// table byte for byte is not written again.
    ///
    /// # Errors
    ///
    /// [`Error::UniqueViolation`], [`Error::KeyTooLong`], [`Error::Codec`]: nothing has changed
    /// then. [`Error::MapFull`] and errors of the engine.
    pub fn put(&self, txn: &mut WriteTxn<'_>, row: &R) -> Result<()> {
        span!(TRACE, "put", table = R::TABLE.name);
        let (mut writer, Scratch { old, new, tried }, tally) = self.writer(txn)?;
        self.load_new(row, new, tried)?;
        let stored = match writer.reader().fact(new.primary_key())? {
            Some(bytes) if bytes == new.row() => return Ok(()),
            Some(bytes) => {
                let stored: R = decode(bytes, new.primary_key())?;
                load_stored(old, &stored, bytes, new.primary_key())?;
                Some(&*old)
            }
            None => None,
        };
        replace::<R>(&mut writer, stored, new, tally)?;
        tally.row(RowWrite::Put);
        Ok(())
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
        let (mut writer, Scratch { old, new, tried }, tally) = self.writer(txn)?;
        let Some(mut row) = load_by_key::<R>(&writer, key, old)? else { return Ok(false) };
        change(&mut row);
        self.load_new(&row, new, tried)?;
        if old.row() == new.row() {
            return Ok(true);
        }
        let moved = old.primary_key() != new.primary_key();
        if moved && writer.reader().fact(new.primary_key())?.is_some() {
            return Err(duplicate::<R>(new));
        }
        replace::<R>(&mut writer, Some(old), new, tally)?;
        tally.row(RowWrite::Update);
        Ok(true)
    }

    /// Removes a row; `false`: there is no such row.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] when the row can't be decoded; errors of the engine.
    pub fn delete(&self, txn: &mut WriteTxn<'_>, key: <R::Key as Key>::Arg<'_>) -> Result<bool> {
        span!(TRACE, "delete", table = R::TABLE.name);
        let (mut writer, Scratch { old, .. }, tally) = self.writer(txn)?;
        if load_by_key::<R>(&writer, key, old)?.is_none() {
            return Ok(false);
        }
        writer.change(Change::DeleteFact { primary_key: old.primary_key() })?;
        maintain::entry_changes(R::TABLE, Some(old), None, &mut tally.counting(&mut writer))?;
        tally.row(RowWrite::Delete);
        Ok(true)
    }

    /// Takes the image of a row that is to be written, and tries whether it can be read back.
    ///
    /// The derive sees the serde attributes of the row's own fields and not those of the types
    /// inside, which may need a format that describes itself just the same. That would be noticed
    /// when the row is read, which is too late. It is mostly a matter of types, so in a release
    /// build the first rows will do; with debug assertions every row is tried.
    fn load_new(&self, row: &R, new: &mut Image, tried: &mut Image) -> Result<()> {
        new.load(row)?;
        if !cfg!(debug_assertions) {
            if self.open.tried.load(Ordering::Relaxed) >= TRIED_ROWS {
                return Ok(());
            }
            self.open.tried.fetch_add(1, Ordering::Relaxed);
        }
        let unreadable = |reason: String| Error::Codec { table: R::TABLE.name, reason };
        let read: R = row::decode(new.row()).map_err(|error| {
            unreadable(format!(
                "it could not be read back from the bytes that serde makes: {error}"
            ))
        })?;
        tried.load_stored(&read, new.row())?;
        if tried.same_keys(new) {
            return Ok(());
        }
        Err(unreadable(
            "it has other keys when it is read back from the bytes that serde makes".into(),
        ))
    }

    fn writer<'t, 's>(
        &'t self,
        txn: &'t mut WriteTxn<'s>,
    ) -> Result<(Writer<'t, 's>, &'t mut Scratch, &'t mut Tally)> {
        txn.writer(&self.open)
    }

    fn ledger<'txn>(&'txn self, txn: &'txn ReadTxn<'_>) -> Ledger<'txn> {
        Ledger::new(&txn.session, &self.open.usage)
    }
}

impl<R> Clone for Table<R> {
    fn clone(&self) -> Self {
        Self { open: Arc::clone(&self.open), row: PhantomData }
    }
}

impl<R> fmt::Debug for Table<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Table").field(&self.open.name).finish()
    }
}

/// Writes `new`, after all that can be refused has been checked.
fn insert<R: Entity>(writer: &mut Writer<'_, '_>, new: &Image, tally: &mut Tally) -> Result<()> {
    if let Err(error) = unique::check::<R>(writer, None, new) {
        // A row that is there already is the plainer reason.
        let taken = writer.reader().fact(new.primary_key())?.is_some();
        return Err(if taken { duplicate::<R>(new) } else { error });
    }
    if !writer.insert_fact(new.primary_key(), new.row())? {
        return Err(duplicate::<R>(new));
    }
    maintain::entry_changes(R::TABLE, None, Some(new), &mut tally.counting(writer))?;
    tally.row(RowWrite::Insert);
    Ok(())
}

/// Writes `new` in the place of `old`, after all that can be refused has been checked.
fn replace<R: Entity>(
    writer: &mut Writer<'_, '_>,
    old: Option<&Image>,
    new: &Image,
    tally: &mut Tally,
) -> Result<()> {
    if let Some(old) = old
        && old.same_key_bytes(new)
    {
        writer.change(Change::PutFact { primary_key: new.primary_key(), row: new.row() })?;
        return maintain::data_changes(R::TABLE, old, new, &mut tally.counting(writer));
    }
    unique::check::<R>(writer, old, new)?;
    if let Some(old) = old
        && old.primary_key() != new.primary_key()
    {
        writer.change(Change::DeleteFact { primary_key: old.primary_key() })?;
    }
    writer.change(Change::PutFact { primary_key: new.primary_key(), row: new.row() })?;
    maintain::entry_changes(R::TABLE, old, Some(new), &mut tally.counting(writer))
}

/// Reads the row with this primary key, and takes its image.
fn load_by_key<R: Entity>(
    writer: &Writer<'_, '_>,
    key: <R::Key as Key>::Arg<'_>,
    image: &mut Image,
) -> Result<Option<R>> {
    let mut primary_key = KeyBuf::new();
    R::Key::encode(key, &mut primary_key);
    let Some(bytes) = writer.reader().fact(primary_key.as_bytes())? else { return Ok(None) };
    let row = decode(bytes, primary_key.as_bytes())?;
    load_stored(image, &row, bytes, primary_key.as_bytes())?;
    Ok(Some(row))
}

/// Takes the image of a row that is stored under `primary_key`, which has to be its own.
fn load_stored<R: Entity>(
    image: &mut Image,
    row: &R,
    bytes: &[u8],
    primary_key: &[u8],
) -> Result<()> {
    image.load_stored(row, bytes)?;
    if image.primary_key() == primary_key {
        return Ok(());
    }
    let key = R::TABLE.show_primary_key(primary_key);
    Err(DecodeError::Value("the row has another primary key inside").at(R::TABLE.name, None, key))
}

pub(crate) fn decode<R: Entity>(bytes: &[u8], primary_key: &[u8]) -> Result<R> {
    row::decode(bytes).map_err(|error| corrupt::<R>(error, primary_key))
}

/// What a row that can't be decoded is reported as.
#[cold]
fn corrupt<R: Entity>(error: DecodeError, primary_key: &[u8]) -> Error {
    error.at(R::TABLE.name, None, R::TABLE.show_primary_key(primary_key))
}

#[cold]
fn duplicate<R: Entity>(new: &Image) -> Error {
    let key = R::TABLE.show_primary_key(new.primary_key());
    Error::DuplicateKey { table: R::TABLE.name, key }
}

/// Compares the table in the file with its declaration, and builds what has to be built.
///
/// Returns the table's record.
fn prepare<R: Entity>(writer: &mut Writer<'_, '_>) -> Result<Vec<u8>> {
    let table = R::TABLE.name;
    let declared = TableRecord::of(R::TABLE, |index| writer.layout(index));
    let record = declared.encode(table)?;
    let build = if let Some(stored) = writer.record()? {
        match TableRecord::decode(table, &stored)?.compare(&declared, table)? {
            Comparison::Same => return Ok(stored),
            Comparison::Build(indexes) => indexes,
        }
    } else {
        refuse_foreign_rows::<R>(writer)?;
        (0..R::TABLE.indexes.len()).collect()
    };
    for &index in &build {
        writer.clear(index)?;
    }
    build_indexes::<R>(writer, &build)?;
    writer.put_record(&record)?;
    Ok(record)
}

/// A table that the catalog doesn't have should be empty.
fn refuse_foreign_rows<R: Entity>(writer: &Writer<'_, '_>) -> Result<()> {
    let rows = Query::new(Source::Facts, Bounds::new());
    if writer.reader().count(rows)?.found == 0 {
        return Ok(());
    }
    Err(Error::SchemaMismatch {
        table: R::TABLE.name,
        difference: "its database has entries that index-table did not write".to_owned(),
        way_out: "declare another `#[table(name = …)]`",
    })
}

/// Adds every row's entries to these indexes, which are empty.
fn build_indexes<R: Entity>(writer: &mut Writer<'_, '_>, indexes: &[usize]) -> Result<()> {
    if indexes.is_empty() {
        return Ok(());
    }
    span!(DEBUG, "build", table = R::TABLE.name, indexes = indexes.len());
    let mut position = None;
    loop {
        // A batch at a time: what is borrowed from a page doesn't outlive a write.
        let mut batch: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        let facts = Query::new(Source::Facts, Bounds::new());
        let query = Query { limit: Some(BUILD_BATCH), position: position.take(), ..facts };
        for fact in writer.reader().scan(query)?.take(BUILD_BATCH as usize) {
            let fact = fact?;
            batch.push((fact.primary_key.to_vec(), fact.data.to_vec()));
        }
        let mut image = Image::default();
        for (primary_key, bytes) in &batch {
            let row: R = decode(bytes, primary_key)?;
            load_stored(&mut image, &row, bytes, primary_key)?;
            image.check_lengths(R::TABLE)?;
            unique::check::<R>(writer, None, &image)?;
            for &index in indexes {
                if let Some(declared) = R::TABLE.indexes.get(index) {
                    maintain::add_entries(declared, index, &image, writer)?;
                }
            }
        }
        let Some((primary_key, _)) = batch.pop() else { return Ok(()) };
        position = Some(Position { key: Vec::new(), primary_key });
    }
}
