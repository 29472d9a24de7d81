//! The functions of a row type, for code that is compiled once and not for each row type.

use std::{
    any::{self, TypeId},
    ops::Deref,
    sync::Arc,
};

use crate::model::{
    entity::Entity,
    error::{Error, Result},
    expiry::Expiry,
    key::{DecodeError, KeyBuf},
    lists::Lists,
    maintain::Image,
    reference::ReferenceSchema,
    revision::Revision,
    row,
    schema::{AggregateSchema, Parts, Source, Strategy, TableSchema},
    shard::Distribution,
    stream::ChangeStream,
};

type Comparison = fn(&Lists, &[u8], &[u8]) -> bool;

/// Loads the row with these bytes into an image. The outer error means that they are not such a row.
type Load = fn(&Lists, &mut Image, &[u8]) -> Result<Result<()>, DecodeError>;

/// Like [`Load`], for a row that is not checked against its former version, with its entries in one index or in all.
type LoadUnchecked =
    fn(&Lists, &mut Image, &[u8], Option<usize>) -> Result<Result<()>, DecodeError>;

/// Like [`Load`], for the row as it would be written now. The bytes are appended to the buffer.
type LoadRenewed = fn(&Lists, &mut Image, &[u8], &mut Vec<u8>) -> Result<Result<()>, DecodeError>;

/// Reads the row with these bytes, and drops it.
type Read = fn(&Lists, &[u8]) -> Result<(), DecodeError>;

/// Compares a row of an older version with the converted row.
type CheckConversion = fn(&Lists, &[u8]) -> Result<(), DecodeError>;

/// Returns the row with these bytes in the current version, with the current lists.
type Renew = fn(&Lists, &[u8]) -> Result<Vec<u8>, DecodeError>;

/// Appends the encodings of the fields that an index hashes, from the row with these bytes.
type Hash = fn(&Lists, &[u8], usize, &mut KeyBuf) -> Result<(), DecodeError>;

/// The type of rows that are not decoded.
struct Unknown;

const UNKNOWN: DecodeError = DecodeError::Value("the struct of the rows is not known");

/// The schema of a row type, and function pointers for the methods of [`Entity`].
pub(crate) struct RowVtable {
    id: TypeId,
    name: fn() -> &'static str,
    pub(crate) schema: &'static TableSchema,
    pub(crate) distribution: Distribution,
    load: Load,
    load_unchecked: LoadUnchecked,
    read: Read,
    /// [`row::check_conversion`], if the table has older versions.
    check_conversion: Option<CheckConversion>,
    renew: Renew,
    load_renewed: LoadRenewed,
    hashed: Hash,
    /// The index for the expiry, if the rows expire.
    pub(crate) expiry: Option<Expiry>,
    pub(crate) aggregates: &'static [AggregateSchema],
    /// The change stream, if the table has one.
    pub(crate) changes: Option<ChangeStream>,
    pub(crate) references: &'static [ReferenceSchema],
    /// The functions for the revision, if the rows have one.
    pub(crate) revision: Option<Revision>,
    is_same: Comparison,
}

/// The functions of a row type, and the lists of its table in one store.
#[derive(Clone)]
pub(crate) struct TableRows {
    vtable: &'static RowVtable,
    pub(crate) lists: Arc<Lists>,
}

impl Deref for TableRows {
    type Target = RowVtable;

    #[inline]
    fn deref(&self) -> &RowVtable {
        self.vtable
    }
}

impl RowVtable {
    pub(crate) const fn of<R: Entity>() -> Self {
        Self {
            id: TypeId::of::<R>(),
            name: any::type_name::<R>,
            schema: R::TABLE,
            distribution: R::DISTRIBUTION,
            load: load::<R>,
            load_unchecked: load_unchecked::<R>,
            read: |lists, bytes| row::decode_unchecked::<R>(lists, bytes).map(drop),
            hashed: hashed::<R>,
            check_conversion: if R::TABLE.previous.is_some() {
                Some(row::check_conversion::<R>)
            } else {
                None
            },
            renew: row::renew::<R>,
            load_renewed: load_renewed::<R>,
            expiry: R::EXPIRY,
            aggregates: R::AGGREGATES,
            changes: R::CHANGES,
            references: R::REFERENCES,
            revision: R::REVISION,
            is_same: row::is_same::<R>,
        }
    }

    /// Returns the functions for a table whose type of rows is not known. Its rows can't be decoded.
    pub(crate) const fn without_rows(
        schema: &'static TableSchema,
        aggregates: &'static [AggregateSchema],
        changes: Option<ChangeStream>,
        distribution: Distribution,
    ) -> Self {
        Self {
            id: TypeId::of::<Unknown>(),
            name: any::type_name::<Unknown>,
            schema,
            distribution,
            load: |_, _, _| Err(UNKNOWN),
            load_unchecked: |_, _, _, _| Err(UNKNOWN),
            read: |_, _| Err(UNKNOWN),
            hashed: |_, _, _, _| Err(UNKNOWN),
            check_conversion: None,
            renew: |_, _| Err(UNKNOWN),
            load_renewed: |_, _, _, _| Err(UNKNOWN),
            expiry: None,
            aggregates,
            changes,
            references: &[],
            revision: None,
            is_same: |_, _, _| false,
        }
    }

    /// Returns the parts of the table with databases of their own, and its references.
    pub(crate) const fn parts(&self) -> Parts {
        let has_changes = self.changes.is_some();
        Parts { aggregates: self.aggregates, has_changes, references: self.references }
    }

    /// Returns the position of the first reference in an image, after the indexes and the aggregates.
    pub(crate) const fn first_reference(&self) -> usize {
        self.schema.indexes.len() + self.aggregates.len()
    }

    /// Whether a shard can write its rows again by itself: no other shard has a copy of them, or data of their entries.
    pub(crate) fn renews_in_shard(&self) -> bool {
        let has_data = |index: &usize| {
            let index = self.schema.indexes.get(*index);
            index.is_some_and(|index| index.strategy != Strategy::Normalized)
        };
        !matches!(self.distribution, Distribution::Reference)
            && !self.distribution.global().iter().any(has_data)
    }

    /// Whether the type of the rows is known.
    pub(crate) fn has_rows(&self) -> bool {
        self.id != TypeId::of::<Unknown>()
    }

    /// Whether both have the same row type.
    pub(crate) fn is_same_type(&self, other: &Self) -> bool {
        self.id == other.id
    }

    /// Returns the path of the row type.
    pub(crate) fn type_name(&self) -> &'static str {
        (self.name)()
    }

    pub(crate) fn check_primary_key(&self, image: &Image, primary_key: &[u8]) -> Result<()> {
        if image.primary_key() == primary_key {
            return Ok(());
        }
        Err(self.other_primary_key(image, primary_key))
    }

    #[cold]
    fn other_primary_key(&self, image: &Image, primary_key: &[u8]) -> Error {
        match row::version(image.row()) {
            Ok(version) if version != self.schema.version => {
                let becomes = self.schema.show_primary_key(image.primary_key());
                let reason = format!("its conversion changes the primary key to {becomes}");
                self.conversion(version, primary_key, reason)
            }
            _ => {
                let error = DecodeError::Value("the row contains another primary key");
                self.corrupt(error, primary_key)
            }
        }
    }

    #[cold]
    pub(crate) fn conversion(&self, version: u32, primary_key: &[u8], reason: String) -> Error {
        let key = self.schema.show_primary_key(primary_key);
        Error::Conversion { table: self.schema.name, key, version, reason }
    }

    /// Returns the error for a row that can't be decoded.
    #[cold]
    pub(crate) fn corrupt(&self, error: DecodeError, primary_key: &[u8]) -> Error {
        self.schema.corrupt(Source::Facts, primary_key, error)
    }

    #[cold]
    fn conflict(&self, primary_key: &[u8], expected: u64, found: Option<u64>) -> Error {
        let key = self.schema.show_primary_key(primary_key);
        Error::Conflict { table: self.schema.name, key, expected, found }
    }

    /// Returns the error for a second row with this primary key.
    #[cold]
    pub(crate) fn duplicate(&self, primary_key: &[u8]) -> Error {
        let key = self.schema.show_primary_key(primary_key);
        Error::DuplicateKey { table: self.schema.name, key }
    }

    /// Returns the error for a row with the same key in a unique index as the row `holder`. `hashed` has the
    /// values of the hashed fields.
    #[cold]
    pub(crate) fn taken(&self, index: usize, key: &[u8], hashed: &[u8], holder: &[u8]) -> Error {
        let source = Source::Index(index);
        Error::UniqueViolation {
            table: self.schema.name,
            index: self.schema.index_name(source).unwrap_or_default(),
            key: self.schema.show_hashed_key(source, key, hashed),
            holder: self.schema.show_primary_key(holder),
        }
    }
}

impl TableRows {
    pub(crate) const fn new(vtable: &'static RowVtable, lists: Arc<Lists>) -> Self {
        Self { vtable, lists }
    }

    /// Returns the functions with the lists of another table.
    pub(crate) const fn with_lists(&self, lists: Arc<Lists>) -> Self {
        Self::new(self.vtable, lists)
    }

    /// Loads the row with these bytes into an image.
    ///
    /// # Errors
    ///
    /// The outer error means that they are not such a row.
    pub(crate) fn load(&self, image: &mut Image, bytes: &[u8]) -> Result<Result<()>, DecodeError> {
        (self.vtable.load)(&self.lists, image, bytes)
    }

    /// Like [`load`](TableRows::load), for a row that is not checked against its former version, with its entries in one index or
    /// in all.
    pub(crate) fn load_unchecked(
        &self,
        image: &mut Image,
        bytes: &[u8],
        index: Option<usize>,
    ) -> Result<Result<()>, DecodeError> {
        (self.vtable.load_unchecked)(&self.lists, image, bytes, index)
    }

    /// Reads the row with these bytes, without checking its conversion.
    pub(crate) fn read(&self, bytes: &[u8]) -> Result<(), DecodeError> {
        (self.vtable.read)(&self.lists, bytes)
    }

    /// Appends the encodings of the fields that an index hashes, from the row with these bytes.
    pub(crate) fn hashed(
        &self,
        bytes: &[u8],
        index: usize,
        values: &mut KeyBuf,
    ) -> Result<(), DecodeError> {
        (self.vtable.hashed)(&self.lists, bytes, index, values)
    }

    /// Whether a stored row is equal to the row with the bytes `new`.
    #[inline]
    pub(crate) fn is_same(&self, stored: &[u8], new: &[u8]) -> bool {
        // Rows of the same list that differ have other values, unless structs and enums inside of them have changed.
        stored == new
            || !row::has_same_list(self.schema.version, stored, new)
                && (self.vtable.is_same)(&self.lists, stored, new)
    }

    /// Whether a write of `new` in the place of a stored row would have no effect. A write counts in the revision.
    #[inline]
    pub(crate) fn is_unchanged(&self, stored: &[u8], new: &[u8]) -> bool {
        self.revision.is_none() && self.is_same(stored, new)
    }

    /// Checks that the conversion of a row of an older version keeps the values of unchanged fields.
    pub(crate) fn check_conversion(&self, bytes: &[u8]) -> Result<(), DecodeError> {
        self.vtable.check_conversion.map_or(Ok(()), |check| check(&self.lists, bytes))
    }

    /// Returns the bytes of a row of any version and list in the current version, with the current lists.
    pub(crate) fn renew(&self, bytes: &[u8]) -> Result<Vec<u8>, DecodeError> {
        (self.vtable.renew)(&self.lists, bytes)
    }

    /// Loads the row that is stored under `primary_key` with the current lists, and returns whether its bytes are others. They
    /// replace the content of `renewed`. A row of an older version stays as it is. Fails if the row has another primary key.
    pub(crate) fn load_renewed(
        &self,
        image: &mut Image,
        bytes: &[u8],
        primary_key: &[u8],
        renewed: &mut Vec<u8>,
    ) -> Result<bool> {
        renewed.clear();
        (self.vtable.load_renewed)(&self.lists, image, bytes, renewed)
            .map_err(|error| self.corrupt(error, primary_key))??;
        self.check_primary_key(image, primary_key)?;
        Ok(renewed != bytes)
    }

    /// Loads a row that is stored under `primary_key`. Fails if the row has another primary key.
    pub(crate) fn load_stored(
        &self,
        image: &mut Image,
        bytes: &[u8],
        primary_key: &[u8],
    ) -> Result<()> {
        self.load(image, bytes).map_err(|error| self.corrupt(error, primary_key))??;
        self.check_primary_key(image, primary_key)
    }

    /// Sets the revision of a row that is about to be written. `old` is the row that it replaces.
    ///
    /// # Errors
    ///
    /// [`Error::Conflict`] if the row has another revision than the row that it replaces.
    #[inline]
    pub(crate) fn revise(&self, old: Option<&Image>, new: &mut Image) -> Result<()> {
        match &self.revision {
            Some(revision) => self.set_next(revision, old, new),
            None => Ok(()),
        }
    }

    /// Sets the revision of a new row to 1.
    #[inline]
    pub(crate) fn begin_revision(&self, new: &mut Image) -> Result<()> {
        match &self.revision {
            Some(revision) => self.set_revision(revision, new, 1),
            None => Ok(()),
        }
    }

    /// Sets the revision of a loaded row to 1 if it is 0.
    pub(crate) fn begin_missing_revision(&self, new: &mut Image) -> Result<()> {
        match &self.revision {
            Some(revision) if self.revision_of(revision, new)? == 0 => {
                self.set_revision(revision, new, 1)
            }
            _ => Ok(()),
        }
    }

    fn set_next(&self, revision: &Revision, old: Option<&Image>, new: &mut Image) -> Result<()> {
        let found = old.map(|old| self.revision_of(revision, old)).transpose()?;
        let expected = self.revision_of(revision, new)?;
        if expected != found.unwrap_or(0) {
            return Err(self.conflict(new.primary_key(), expected, found));
        }
        self.set_revision(revision, new, expected.saturating_add(1))
    }

    /// Checks that the row with these bytes has the expected revision.
    ///
    /// # Errors
    ///
    /// [`Error::Conflict`]
    pub(crate) fn check_revision(
        &self,
        primary_key: &[u8],
        expected: u64,
        bytes: Option<&[u8]>,
    ) -> Result<()> {
        let read =
            |bytes| self.revision.as_ref().map(|revision| (revision.read)(&self.lists, bytes));
        let found = bytes.and_then(read).transpose();
        match found.map_err(|error| self.corrupt(error, primary_key))? {
            Some(found) if found == expected => Ok(()),
            found => Err(self.conflict(primary_key, expected, found)),
        }
    }

    fn revision_of(&self, revision: &Revision, image: &Image) -> Result<u64> {
        (revision.read)(&self.lists, image.row())
            .map_err(|error| self.corrupt(error, image.primary_key()))
    }

    fn set_revision(&self, revision: &Revision, image: &mut Image, number: u64) -> Result<()> {
        match (revision.set)(&self.lists, image, number) {
            Ok(Ok(true)) => Ok(()),
            Ok(Ok(false)) => Err(Error::RevisionExhausted {
                table: self.schema.name,
                key: self.schema.show_primary_key(image.primary_key()),
            }),
            Ok(Err(error)) => Err(error),
            Err(error) => Err(self.corrupt(error, image.primary_key())),
        }
    }
}

fn load<R: Entity>(
    lists: &Lists,
    image: &mut Image,
    bytes: &[u8],
) -> Result<Result<()>, DecodeError> {
    match row::decode::<R>(lists, bytes) {
        Ok(row) => Ok(image.load_stored(lists, &row, bytes, None)),
        Err(error) => Err(error),
    }
}

fn load_renewed<R: Entity>(
    lists: &Lists,
    image: &mut Image,
    bytes: &[u8],
    renewed: &mut Vec<u8>,
) -> Result<Result<()>, DecodeError> {
    let row = row::decode::<R>(lists, bytes)?;
    // A conversion has the same result each time.
    let is_current = row::body(bytes, R::TABLE.version).is_ok();
    if is_current {
        row::encode(lists, &row, renewed)?;
    } else {
        renewed.extend_from_slice(bytes);
    }
    if renewed == bytes {
        return Ok(image.load_stored(lists, &row, bytes, None));
    }
    // Its entries are those of the row as it reads back.
    load::<R>(lists, image, renewed)
}

fn load_unchecked<R: Entity>(
    lists: &Lists,
    image: &mut Image,
    bytes: &[u8],
    index: Option<usize>,
) -> Result<Result<()>, DecodeError> {
    match row::decode_unchecked::<R>(lists, bytes) {
        Ok(row) => Ok(image.load_stored(lists, &row, bytes, index)),
        Err(error) => Err(error),
    }
}

fn hashed<R: Entity>(
    lists: &Lists,
    bytes: &[u8],
    index: usize,
    values: &mut KeyBuf,
) -> Result<(), DecodeError> {
    match row::decode::<R>(lists, bytes) {
        Ok(row) => {
            row.hashed(index, values);
            Ok(())
        }
        Err(error) => Err(error),
    }
}
