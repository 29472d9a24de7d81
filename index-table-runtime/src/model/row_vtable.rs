//! The functions of a row type, for code that is compiled once and not for each row type.

use std::{
    any::{self, TypeId},
    collections::BTreeMap,
    ops::Deref,
    sync::Arc,
};

use index_table_rows::Unknown;

use crate::locks::{Mutex, OfProcess};
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
    schema::{AggregateSchema, Parts, Release, Source, Strategy, TableSchema},
    shard::Distribution,
    stream::ChangeStream,
};

type Comparison = fn(&Lists, &[u8], &[u8]) -> bool;

/// Loads the row with these bytes into an image. The outer error means that they are not such a row.
type Load = fn(&'static TableSchema, &Lists, &mut Image, &[u8]) -> Result<Result<()>, DecodeError>;

/// Like [`Load`], for a row that is not checked against its former version, with its entries in one index or in all.
type LoadUnchecked = fn(
    &'static TableSchema,
    &Lists,
    &mut Image,
    &[u8],
    Option<usize>,
) -> Result<Result<()>, DecodeError>;

/// Like [`Load`], for the row as it would be written now. The bytes are appended to the buffer.
type LoadRenewed = fn(&Lists, &mut Image, &[u8], &mut Vec<u8>) -> Result<Result<()>, DecodeError>;

/// Reads the row with these bytes, and drops it.
type Read = fn(&Lists, &[u8]) -> Result<(), DecodeError>;

/// Compares a row of an older version with the converted row.
type CheckConversion = fn(&Lists, &[u8]) -> Result<(), DecodeError>;

/// Returns the row with these bytes in the current version, with the current lists.
type Renew = fn(&Lists, &[u8]) -> Result<Vec<u8>, DecodeError>;

/// Returns the fields that the type leaves unread, of the lists from this number on.
type UnknownFields = fn(&Lists, &[u8], usize) -> Result<Unknown, DecodeError>;

/// Appends the encodings of the fields that an index hashes, from the row with these bytes.
type Hash = fn(&'static TableSchema, &Lists, &[u8], usize, &mut KeyBuf) -> Result<(), DecodeError>;

/// The type of rows that are not decoded.
struct Undeclared;

const UNKNOWN: DecodeError = DecodeError::Value("the struct of the rows is not known");

/// The schema of a row type, and function pointers for the methods of [`Entity`].
pub(crate) struct RowVtable {
    id: TypeId,
    name: fn() -> &'static str,
    pub(crate) schema: &'static TableSchema,
    /// The release of the program.
    pub(crate) release: Release,
    pub(crate) distribution: Distribution,
    load: Load,
    load_unchecked: LoadUnchecked,
    read: Read,
    /// [`row::check_conversion`], if the table has older versions.
    check_conversion: Option<CheckConversion>,
    renew: Renew,
    load_renewed: LoadRenewed,
    unknown: UnknownFields,
    /// Whether a row keeps the fields of its own that its type does not know.
    keeps_unknown: bool,
    names: fn() -> u64,
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
            release: R::RELEASE,
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
            unknown: row::unknown::<R>,
            keeps_unknown: R::KEEPS_UNKNOWN,
            names: row::names::<R>,
            expiry: R::EXPIRY,
            aggregates: R::AGGREGATES,
            changes: R::CHANGES,
            references: R::REFERENCES,
            revision: R::REVISION,
            is_same: row::is_same::<R>,
        }
    }

    /// Returns the functions for a table whose type of rows is not known. Its rows can't be decoded. With the feature `json`, their
    /// images are those of the recorded schema.
    pub(crate) const fn without_rows(
        schema: &'static TableSchema,
        aggregates: &'static [AggregateSchema],
        changes: Option<ChangeStream>,
        distribution: Distribution,
    ) -> Self {
        Self {
            id: TypeId::of::<Undeclared>(),
            name: any::type_name::<Undeclared>,
            schema,
            release: Release::UNKNOWN,
            distribution,
            #[cfg(not(feature = "json"))]
            load: |_, _, _, _| Err(UNKNOWN),
            #[cfg(feature = "json")]
            load: |schema, lists, image, bytes| image.load_recorded(schema, lists, bytes, None),
            #[cfg(not(feature = "json"))]
            load_unchecked: |_, _, _, _, _| Err(UNKNOWN),
            #[cfg(feature = "json")]
            load_unchecked: |schema, lists, image, bytes, index| {
                image.load_recorded(schema, lists, bytes, index)
            },
            read: |_, _| Err(UNKNOWN),
            #[cfg(not(feature = "json"))]
            hashed: |_, _, _, _, _| Err(UNKNOWN),
            #[cfg(feature = "json")]
            hashed: crate::model::maintain::recorded_hashes,
            check_conversion: None,
            renew: |_, _| Err(UNKNOWN),
            load_renewed: |_, _, _, _| Err(UNKNOWN),
            unknown: |_, _, _| Err(UNKNOWN),
            keeps_unknown: false,
            names: || 0,
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

    /// Whether a row keeps the fields of its own that its type does not know.
    pub(crate) const fn keeps_unknown(&self) -> bool {
        self.keeps_unknown
    }

    /// Whether the type of the rows is known.
    pub(crate) fn has_rows(&self) -> bool {
        self.id != TypeId::of::<Undeclared>()
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
        (self.vtable.load)(self.schema, &self.lists, image, bytes)
    }

    /// Like [`load`](TableRows::load), for a row that is not checked against its former version, with its entries in one index or
    /// in all.
    pub(crate) fn load_unchecked(
        &self,
        image: &mut Image,
        bytes: &[u8],
        index: Option<usize>,
    ) -> Result<Result<()>, DecodeError> {
        (self.vtable.load_unchecked)(self.schema, &self.lists, image, bytes, index)
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
        (self.vtable.hashed)(self.schema, &self.lists, bytes, index, values)
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

    /// Returns a hash of the names that the type reads, at every depth. It is computed once in each process.
    pub(crate) fn names(&self) -> u64 {
        static NAMES: OfProcess<Mutex<BTreeMap<TypeId, u64>>> = OfProcess::new(Mutex::default);
        let known = NAMES.lock().get(&self.id).copied();
        known.unwrap_or_else(|| {
            // Not while locked: it runs code of the program.
            let names = (self.vtable.names)();
            NAMES.lock().insert(self.id, names);
            names
        })
    }

    /// Notes the number of lists when the type was first used to write the table, as a data file has it. Returns the smallest
    /// number of all data files.
    pub(crate) fn note_since(&self, since: usize) -> usize {
        self.lists.note_since(self.id, since)
    }

    /// Returns the smallest noted number of lists.
    pub(crate) fn since(&self) -> Option<usize> {
        self.lists.since(self.id)
    }

    /// Sets the number of lists, when no row has a field that the type does not know.
    pub(crate) fn set_since(&self, since: usize) {
        self.lists.set_since(self.id, since);
    }

    /// Fails if a later release has written a field of the stored row that the type does not know. The field would be lost when the
    /// row is written.
    pub(crate) fn check_fields(&self, stored: &Image) -> Result<()> {
        if !stored.has_unread() {
            return Ok(());
        }
        let unknown = self.unknown_of(stored.row(), stored.primary_key())?;
        self.refuse(&unknown, stored.primary_key(), false)
    }

    /// Adds the fields of the stored row that a later release has written, and that the type does not know, to the new row.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownField`] for a table without `keep_unknown`, and if such a field is inside of a known one.
    #[inline]
    pub(crate) fn keep_fields(&self, stored: &Image, new: &mut Image) -> Result<()> {
        if stored.has_unread() { self.carry_fields(stored, new) } else { Ok(()) }
    }

    #[cold]
    fn carry_fields(&self, stored: &Image, new: &mut Image) -> Result<()> {
        if let Some(both) = self.carried(stored.row(), new.row(), stored.primary_key())? {
            new.set_row(&both);
        }
        Ok(())
    }

    /// Returns the new row with the unknown fields of the stored row; `None` if it has none.
    fn carried(&self, stored: &[u8], new: &[u8], primary_key: &[u8]) -> Result<Option<Vec<u8>>> {
        let unknown = self.unknown_of(stored, primary_key)?;
        self.refuse(&unknown, primary_key, self.keeps_unknown)?;
        if unknown.fields.is_empty() {
            return Ok(None);
        }
        let both = row::carry(&self.lists, self.schema.version, [stored, new], &unknown.fields);
        both.map(Some).map_err(|error| self.corrupt(error, primary_key))
    }

    fn refuse(&self, unknown: &Unknown, primary_key: &[u8], keeps_own: bool) -> Result<()> {
        let own = unknown.fields.first().filter(|_| !keeps_own);
        let Some(field) = unknown.inside.first().or(own) else { return Ok(()) };
        let key = self.schema.show_primary_key(primary_key);
        Err(Error::UnknownField { table: self.schema.name, key, field: field.clone() })
    }

    fn unknown_of(&self, bytes: &[u8], primary_key: &[u8]) -> Result<Unknown> {
        self.unknown(bytes).map_err(|error| self.corrupt(error, primary_key))
    }

    /// Returns the fields of a row that a later release has written, and that the type does not know, so that they would be lost when
    /// the row is written.
    fn unknown(&self, bytes: &[u8]) -> Result<Unknown, DecodeError> {
        let since = self.since().filter(|_| row::body(bytes, self.schema.version).is_ok());
        let Some(since) = since else { return Ok(Unknown::default()) };
        let unknown = |bytes: &[u8]| (self.vtable.unknown)(&self.lists, bytes, since);
        let mut lost = unknown(bytes)?;
        if lost != Unknown::default() {
            // The type may write fields that it does not read.
            let written = unknown(&self.renew(bytes)?)?;
            lost.fields.retain(|field| !written.fields.contains(field));
            lost.inside.retain(|field| !written.inside.contains(field));
        }
        Ok(lost)
    }

    /// Returns the row that is stored under `primary_key` as it is written now: with its unknown fields, unless they are dropped.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownField`], as for [`keep_fields`](TableRows::keep_fields).
    pub(crate) fn renew_stored(
        &self,
        bytes: &[u8],
        primary_key: &[u8],
        drops_unknown: bool,
    ) -> Result<Vec<u8>> {
        let renewed = self.renew(bytes).map_err(|error| self.corrupt(error, primary_key))?;
        if drops_unknown || renewed == bytes {
            return Ok(renewed);
        }
        Ok(self.carried(bytes, &renewed, primary_key)?.unwrap_or(renewed))
    }

    /// Loads the row that is stored under `primary_key` with the current lists, and returns whether its bytes are others. They
    /// replace the content of `renewed`. The fields of a later release stay in the row; a row with such a field inside of a known one
    /// gets the fields that it lacks, and otherwise stays as it is. So does a row of an older version whose conversion has the same
    /// result each time. Fails if the row has another primary key.
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
        if renewed == bytes {
            self.check_primary_key(image, primary_key)?;
            return Ok(false);
        }
        let kept = match self.unknown(bytes) {
            Ok(unknown) if unknown == Unknown::default() => None,
            Ok(unknown) if unknown.inside.is_empty() => {
                let rows = [bytes, &*renewed];
                let kept = row::carry(&self.lists, self.schema.version, rows, &unknown.fields);
                Some(kept.map_err(|error| self.corrupt(error, primary_key))?)
            }
            Ok(_) => Some(self.completed(bytes, renewed).unwrap_or_else(|_| bytes.to_vec())),
            // What it would lose is not known.
            Err(_) => Some(bytes.to_vec()),
        };
        if let Some(kept) = kept {
            *renewed = kept;
            self.load(image, renewed).map_err(|error| self.corrupt(error, primary_key))??;
        }
        self.check_primary_key(image, primary_key)?;
        Ok(renewed != bytes)
    }

    /// Returns the stored row with those fields of the same row, as its type writes it, that it lacks.
    fn completed(&self, bytes: &[u8], renewed: &[u8]) -> Result<Vec<u8>, DecodeError> {
        let version = self.schema.version;
        let own = self.lists.fields(row::body(bytes, version)?)?;
        let written: Vec<_> = self.lists.fields(row::body(renewed, version)?)?.names().collect();
        let unread = (self.vtable.unknown)(&self.lists, bytes, 0)?.fields;
        // A field that is read by an alias is not lacking.
        let is_alias = |name: &str| !written.contains(&name) && !unread.iter().any(|it| it == name);
        if own.names().any(is_alias) {
            return Ok(bytes.to_vec());
        }
        let is_lacking = |name: &&&str| !own.names().any(|own| own == **name);
        let lacking: Vec<_> =
            written.iter().filter(is_lacking).map(|&name| name.to_owned()).collect();
        if lacking.is_empty() {
            return Ok(bytes.to_vec());
        }
        row::carry(&self.lists, version, [renewed, bytes], &lacking)
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
    _: &'static TableSchema,
    lists: &Lists,
    image: &mut Image,
    bytes: &[u8],
) -> Result<Result<()>, DecodeError> {
    let mut has_unread = false;
    match row::decode_whole::<R>(lists, bytes, &mut has_unread) {
        Ok(row) => {
            let loaded = image.load_stored(lists, &row, bytes, None);
            image.set_unread(has_unread);
            Ok(loaded)
        }
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
    if row::body(bytes, R::TABLE.version).is_ok() || !row::reads_alike(lists, bytes, &row)? {
        row::encode(lists, &row, renewed)?;
    } else {
        // A conversion with the same result each time.
        renewed.extend_from_slice(bytes);
    }
    if renewed == bytes {
        return Ok(image.load_stored(lists, &row, bytes, None));
    }
    // Its entries are those of the row as it reads back.
    load::<R>(R::TABLE, lists, image, renewed)
}

fn load_unchecked<R: Entity>(
    _: &'static TableSchema,
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
    _: &'static TableSchema,
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
