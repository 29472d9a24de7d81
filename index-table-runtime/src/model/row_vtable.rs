//! The functions of a row type, for code that is compiled once and not for each row type.

use std::any::{self, TypeId};

use crate::model::{
    entity::Entity,
    error::{Error, Result},
    expiry::Expiry,
    key::{DecodeError, KeyBuf},
    maintain::Image,
    reference::ReferenceSchema,
    revision::Revision,
    row,
    schema::{AggregateSchema, Parts, Source, TableSchema},
    shard::Distribution,
    stream::ChangeStream,
};

type Comparison = fn(&[u8], &[u8]) -> bool;

/// Loads the row with these bytes into an image. The outer error means that they are not such a row.
type Load = fn(&mut Image, &[u8]) -> Result<Result<()>, DecodeError>;

/// Like [`Load`], for a row that is not checked against its former version, with its entries in one index or in all.
type LoadUnchecked = fn(&mut Image, &[u8], Option<usize>) -> Result<Result<()>, DecodeError>;

/// Compares a row of an older version with the converted row.
type CheckConversion = fn(&[u8]) -> Result<(), DecodeError>;

/// Returns the row with these bytes in the current version.
type Renew = fn(&[u8]) -> Result<Vec<u8>, DecodeError>;

/// The type of rows that are not decoded.
struct Unknown;

const UNKNOWN: DecodeError = DecodeError::Value("the struct of the rows is not known");

/// The schema of a row type, and function pointers for the methods of [`Entity`].
pub(crate) struct RowVtable {
    id: TypeId,
    name: fn() -> &'static str,
    pub(crate) schema: &'static TableSchema,
    pub(crate) distribution: Distribution,
    pub(crate) load: Load,
    pub(crate) load_unchecked: LoadUnchecked,
    /// [`row::check_conversion`], if the table has older versions.
    check_conversion: Option<CheckConversion>,
    /// [`row::renew`], if the table has older versions.
    renew: Option<Renew>,
    /// Appends the encodings of the fields that an index hashes, from the row with these bytes.
    pub(crate) hashed: fn(&[u8], usize, &mut KeyBuf) -> Result<(), DecodeError>,
    /// The index for the expiry, if the rows expire.
    pub(crate) expiry: Option<Expiry>,
    pub(crate) aggregates: &'static [AggregateSchema],
    /// The change stream, if the table has one.
    pub(crate) changes: Option<ChangeStream>,
    pub(crate) references: &'static [ReferenceSchema],
    /// The functions for the revision, if the rows have one.
    pub(crate) revision: Option<Revision>,
    /// [`row::is_reordered`], if the rows have sorted collections.
    is_reordered: Option<Comparison>,
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
            hashed: hashed::<R>,
            check_conversion: if R::TABLE.previous.is_some() {
                Some(row::check_conversion::<R>)
            } else {
                None
            },
            renew: row::renewal::<R>(),
            expiry: R::EXPIRY,
            aggregates: R::AGGREGATES,
            changes: R::CHANGES,
            references: R::REFERENCES,
            revision: R::REVISION,
            is_reordered: if R::COLLECTIONS.is_empty() {
                None
            } else {
                Some(row::is_reordered::<R>)
            },
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
            load: |_, _| Err(UNKNOWN),
            load_unchecked: |_, _, _| Err(UNKNOWN),
            hashed: |_, _, _| Err(UNKNOWN),
            check_conversion: None,
            renew: None,
            expiry: None,
            aggregates,
            changes,
            references: &[],
            revision: None,
            is_reordered: None,
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

    /// Whether the type of the rows is known.
    pub(crate) fn has_rows(&self) -> bool {
        self.id != TypeId::of::<Unknown>()
    }

    /// Whether a stored row is equal to the row with the bytes `new`.
    #[inline]
    pub(crate) fn is_same(&self, stored: &[u8], new: &[u8]) -> bool {
        stored == new || self.is_reordered.is_some_and(|is_reordered| is_reordered(stored, new))
    }

    /// Whether a write of `new` in the place of a stored row would have no effect. A write counts in the revision.
    #[inline]
    pub(crate) fn is_unchanged(&self, stored: &[u8], new: &[u8]) -> bool {
        self.revision.is_none() && self.is_same(stored, new)
    }

    /// Whether both have the same row type.
    pub(crate) fn is_same_type(&self, other: &Self) -> bool {
        self.id == other.id
    }

    /// Returns the path of the row type.
    pub(crate) fn type_name(&self) -> &'static str {
        (self.name)()
    }

    /// Checks that the conversion of a row of an older version keeps the values of unchanged fields.
    pub(crate) fn check_conversion(&self, bytes: &[u8]) -> Result<(), DecodeError> {
        self.check_conversion.map_or(Ok(()), |check| check(bytes))
    }

    /// Returns the bytes of a row of any version in the current version.
    pub(crate) fn renew(&self, bytes: &[u8]) -> Result<Vec<u8>, DecodeError> {
        match self.renew {
            Some(renew) => renew(bytes),
            None => row::body(bytes, self.schema.version).map(|_| bytes.to_vec()),
        }
    }

    /// Loads a row that is stored under `primary_key`. Fails if the row has another primary key.
    pub(crate) fn load_stored(
        &self,
        image: &mut Image,
        bytes: &[u8],
        primary_key: &[u8],
    ) -> Result<()> {
        (self.load)(image, bytes).map_err(|error| self.corrupt(error, primary_key))??;
        self.check_primary_key(image, primary_key)
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
        let read = |bytes| self.revision.as_ref().map(|revision| (revision.read)(bytes));
        let found = bytes.and_then(read).transpose();
        match found.map_err(|error| self.corrupt(error, primary_key))? {
            Some(found) if found == expected => Ok(()),
            found => Err(self.conflict(primary_key, expected, found)),
        }
    }

    fn revision_of(&self, revision: &Revision, image: &Image) -> Result<u64> {
        (revision.read)(image.row()).map_err(|error| self.corrupt(error, image.primary_key()))
    }

    fn set_revision(&self, revision: &Revision, image: &mut Image, number: u64) -> Result<()> {
        match (revision.set)(image, number) {
            Ok(Ok(true)) => Ok(()),
            Ok(Ok(false)) => Err(Error::RevisionExhausted {
                table: self.schema.name,
                key: self.schema.show_primary_key(image.primary_key()),
            }),
            Ok(Err(error)) => Err(error),
            Err(error) => Err(self.corrupt(error, image.primary_key())),
        }
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

fn load<R: Entity>(image: &mut Image, bytes: &[u8]) -> Result<Result<()>, DecodeError> {
    match row::decode::<R>(bytes) {
        Ok(row) => Ok(image.load_stored(&row, bytes, None)),
        Err(error) => Err(error),
    }
}

fn load_unchecked<R: Entity>(
    image: &mut Image,
    bytes: &[u8],
    index: Option<usize>,
) -> Result<Result<()>, DecodeError> {
    match row::decode_unchecked::<R>(bytes) {
        Ok(row) => Ok(image.load_stored(&row, bytes, index)),
        Err(error) => Err(error),
    }
}

fn hashed<R: Entity>(bytes: &[u8], index: usize, values: &mut KeyBuf) -> Result<(), DecodeError> {
    match row::decode::<R>(bytes) {
        Ok(row) => {
            row.hashed(index, values);
            Ok(())
        }
        Err(error) => Err(error),
    }
}
