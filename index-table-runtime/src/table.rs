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
    schema::{Comparison, Source, TableRecord, TableSchema},
    sequence,
    stats::Ledger,
    store::{OpenTable, Store},
    trace::span,
    txn::{ReadTxn, Scratch, WriteTxn},
    unique,
    usage::{RowWrite, Tally, Usage},
    verify::{Repair, Verify},
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
    /// What is compiled once asks these of the row.
    const ROWS: &'static RowType =
        &RowType { schema: R::TABLE, load: load::<R>, hashed: hashed::<R> };

    /// Creates the table if it is not there, compares it with its declaration, and builds the
    /// indexes that are new or declared in another way, all in one write transaction.
    ///
    /// # Errors
    ///
    /// [`Error::SchemaMismatch`], and what building an index meets; nothing has changed then.
    pub fn open(store: &Store) -> Result<Self> {
        Ok(Self { open: open(store, Self::ROWS)?, row: PhantomData })
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

    /// Compares the table's indexes with its rows.
    pub fn verify<'txn>(&'txn self, txn: &'txn ReadTxn<'_>) -> Verify<'txn, R> {
        Verify::new(txn.reader(&self.open))
    }

    /// Makes the table's indexes what its rows say.
    pub fn repair<'txn, 's>(&'txn self, txn: &'txn mut WriteTxn<'s>) -> Repair<'txn, 's, R> {
        Repair::new(self.writer(txn).map(|(writer, ..)| writer))
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
        insert(Self::ROWS, &mut writer, new, tally)
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
        insert(Self::ROWS, &mut writer, new, tally)?;
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
        put(Self::ROWS, &mut writer, old, new, tally)
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
        update(Self::ROWS, &mut writer, old, new, tally)?;
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
        let (mut writer, Scratch { old, .. }, tally) = self.writer(txn)?;
        let mut primary_key = KeyBuf::new();
        R::Key::encode(key, &mut primary_key);
        delete(Self::ROWS, &mut writer, primary_key.as_bytes(), old, tally)
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
        try_back(Self::ROWS, new, tried)
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

/// A type of row, for what is compiled once and not for each: the schema, and functions in the
/// place of the trait's.
pub(crate) struct RowType {
    pub(crate) schema: &'static TableSchema,
    /// Takes the image of the row with these bytes. The outer error: they are no such row.
    load: fn(&mut Image, &[u8]) -> Result<Result<()>, DecodeError>,
    /// Appends the encodings of the fields that an index has as hashes, of the row with these bytes.
    pub(crate) hashed: fn(&[u8], usize, &mut KeyBuf) -> Result<(), DecodeError>,
}

fn load<R: Entity>(image: &mut Image, bytes: &[u8]) -> Result<Result<()>, DecodeError> {
    row::decode(bytes).map(|row: R| image.load_stored(&row, bytes))
}

fn hashed<R: Entity>(bytes: &[u8], index: usize, values: &mut KeyBuf) -> Result<(), DecodeError> {
    row::decode(bytes).map(|row: R| row.hashed(index, values))
}

impl RowType {
    /// Takes the image of a row that is stored under `primary_key`, which has to be its own.
    fn load_stored(&self, image: &mut Image, bytes: &[u8], primary_key: &[u8]) -> Result<()> {
        (self.load)(image, bytes).map_err(|error| self.corrupt(error, primary_key))??;
        self.check_primary_key(image, primary_key)
    }

    fn check_primary_key(&self, image: &Image, primary_key: &[u8]) -> Result<()> {
        if image.primary_key() == primary_key {
            return Ok(());
        }
        let error = DecodeError::Value("the row has another primary key inside");
        Err(self.corrupt(error, primary_key))
    }

    /// What a row that can't be decoded is reported as.
    #[cold]
    pub(crate) fn corrupt(&self, error: DecodeError, primary_key: &[u8]) -> Error {
        error.at(self.schema.name, None, self.schema.show_primary_key(primary_key))
    }

    #[cold]
    fn duplicate(&self, new: &Image) -> Error {
        let key = self.schema.show_primary_key(new.primary_key());
        Error::DuplicateKey { table: self.schema.name, key }
    }
}

fn open(store: &Store, rows: &RowType) -> Result<Arc<OpenTable>> {
    store.inner.open_once(rows.schema, |engine| {
        span!(DEBUG, "open", table = rows.schema.name);
        let mut record = Vec::new();
        let tables = engine.open_table(rows.schema, |writer| {
            record = prepare(rows, writer)?;
            Ok(())
        })?;
        Ok((tables, record))
    })
}

/// Whether a row comes back from its bytes with the same keys.
fn try_back(rows: &RowType, new: &Image, tried: &mut Image) -> Result<()> {
    let unreadable = |reason: String| Error::Codec { table: rows.schema.name, reason };
    (rows.load)(tried, new.row()).map_err(|error| {
        unreadable(format!("it could not be read back from the bytes that serde makes: {error}"))
    })??;
    if tried.same_keys(new) {
        return Ok(());
    }
    Err(unreadable("it has other keys when it is read back from the bytes that serde makes".into()))
}

/// Writes `new` over the row with its primary key, if there is one.
fn put(
    rows: &RowType,
    writer: &mut Writer<'_, '_>,
    old: &mut Image,
    new: &Image,
    tally: &mut Tally,
) -> Result<()> {
    let stored = match writer.reader().fact(new.primary_key())? {
        Some(bytes) if bytes == new.row() => return Ok(()),
        Some(bytes) => {
            rows.load_stored(old, bytes, new.primary_key())?;
            Some(&*old)
        }
        None => None,
    };
    replace(rows, writer, stored, new, tally)?;
    tally.row(RowWrite::Put);
    Ok(())
}

/// Writes `new` in the place of the row that it was made of.
fn update(
    rows: &RowType,
    writer: &mut Writer<'_, '_>,
    old: &Image,
    new: &Image,
    tally: &mut Tally,
) -> Result<()> {
    if old.row() == new.row() {
        return Ok(());
    }
    let moved = old.primary_key() != new.primary_key();
    if moved && writer.reader().fact(new.primary_key())?.is_some() {
        return Err(rows.duplicate(new));
    }
    replace(rows, writer, Some(old), new, tally)?;
    tally.row(RowWrite::Update);
    Ok(())
}

fn delete(
    rows: &RowType,
    writer: &mut Writer<'_, '_>,
    primary_key: &[u8],
    old: &mut Image,
    tally: &mut Tally,
) -> Result<bool> {
    let Some(bytes) = writer.reader().fact(primary_key)? else { return Ok(false) };
    rows.load_stored(old, bytes, primary_key)?;
    writer.change(Change::DeleteFact { primary_key })?;
    maintain::entry_changes(rows.schema, Some(old), None, &mut tally.counting(writer))?;
    tally.row(RowWrite::Delete);
    Ok(true)
}

/// Writes `new`, after all that can be refused has been checked.
fn insert(
    rows: &RowType,
    writer: &mut Writer<'_, '_>,
    new: &Image,
    tally: &mut Tally,
) -> Result<()> {
    if let Err(error) = unique::check(rows, writer, None, new) {
        // A row that is there already is the plainer reason.
        let taken = writer.reader().fact(new.primary_key())?.is_some();
        return Err(if taken { rows.duplicate(new) } else { error });
    }
    if !writer.insert_fact(new.primary_key(), new.row())? {
        return Err(rows.duplicate(new));
    }
    maintain::entry_changes(rows.schema, None, Some(new), &mut tally.counting(writer))?;
    tally.row(RowWrite::Insert);
    Ok(())
}

/// Writes `new` in the place of `old`, after all that can be refused has been checked.
fn replace(
    rows: &RowType,
    writer: &mut Writer<'_, '_>,
    old: Option<&Image>,
    new: &Image,
    tally: &mut Tally,
) -> Result<()> {
    if let Some(old) = old
        && old.same_key_bytes(new)
    {
        writer.change(Change::PutFact { primary_key: new.primary_key(), row: new.row() })?;
        return maintain::data_changes(rows.schema, old, new, &mut tally.counting(writer));
    }
    unique::check(rows, writer, old, new)?;
    if let Some(old) = old
        && old.primary_key() != new.primary_key()
    {
        writer.change(Change::DeleteFact { primary_key: old.primary_key() })?;
    }
    writer.change(Change::PutFact { primary_key: new.primary_key(), row: new.row() })?;
    maintain::entry_changes(rows.schema, old, Some(new), &mut tally.counting(writer))
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
    let (rows, primary_key) = (Table::<R>::ROWS, primary_key.as_bytes());
    let row: R = row::decode(bytes).map_err(|error| rows.corrupt(error, primary_key))?;
    image.load_stored(&row, bytes)?;
    rows.check_primary_key(image, primary_key)?;
    Ok(Some(row))
}

/// Compares the table in the file with its declaration, and builds what has to be built.
///
/// Returns the table's record.
fn prepare(rows: &RowType, writer: &mut Writer<'_, '_>) -> Result<Vec<u8>> {
    let table = rows.schema.name;
    let declared = TableRecord::of(rows.schema, |index| writer.layout(index));
    let record = declared.encode(table)?;
    let build = if let Some(stored) = writer.record()? {
        match TableRecord::decode(table, &stored)?.compare(&declared, table)? {
            Comparison::Same => return Ok(stored),
            Comparison::Build(indexes) => indexes,
        }
    } else {
        refuse_foreign_rows(rows.schema, writer)?;
        (0..rows.schema.indexes.len()).collect()
    };
    for &index in &build {
        writer.clear(index)?;
    }
    build_indexes(rows, writer, &build)?;
    writer.put_record(&record)?;
    Ok(record)
}

/// A table that the catalog doesn't have should be empty.
fn refuse_foreign_rows(schema: &TableSchema, writer: &Writer<'_, '_>) -> Result<()> {
    let rows = Query::new(Source::Facts, Bounds::new());
    if writer.reader().count(rows)?.found == 0 {
        return Ok(());
    }
    Err(Error::SchemaMismatch {
        table: schema.name,
        difference: "its database has entries that index-table did not write".to_owned(),
        way_out: "declare another `#[table(name = …)]`",
    })
}

/// Adds every row's entries to these indexes, which are empty.
fn build_indexes(rows: &RowType, writer: &mut Writer<'_, '_>, indexes: &[usize]) -> Result<()> {
    if indexes.is_empty() {
        return Ok(());
    }
    span!(DEBUG, "build", table = rows.schema.name, indexes = indexes.len());
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
            rows.load_stored(&mut image, bytes, primary_key)?;
            image.check_lengths(rows.schema)?;
            unique::check(rows, writer, None, &image)?;
            for &index in indexes {
                if let Some(declared) = rows.schema.indexes.get(index) {
                    maintain::add_entries(declared, index, &image, writer)?;
                }
            }
        }
        let Some((primary_key, _)) = batch.pop() else { return Ok(()) };
        position = Some(Position { key: Vec::new(), primary_key });
    }
}
