//! What a table and its indexes are, as plain data: written by the derive, read by everything
//! that doesn't know the row type.

mod catalog;
mod state;
#[cfg(test)]
mod tests;
mod versions;

pub(crate) use catalog::{Comparison, IndexRecord, KeyFieldRecord, StrategyRecord, TableRecord};
pub(crate) use state::{Building, LISTED, Retired, StateRecord, is_index};
pub use state::{Duplicate, Duplicates, IndexState};
pub(crate) use versions::{FieldEnds, LocateFields, VersionRecord, version_of};

use std::any::TypeId;

use crate::model::{
    error::Error,
    key::{
        DecodeError, Each, Key, KeyReader, KeyShape, Unescaped, is_readable, show_hashed_key,
        show_key,
    },
};

/// One table as it is declared.
#[derive(Debug)]
pub struct TableSchema {
    /// The name, in the file and in errors.
    pub name: &'static str,
    /// `#[table(version = …)]`.
    pub version: u32,
    /// All fields of the struct in order of declaration.
    pub fields: &'static [FieldSchema],
    /// `#[table(previous = …)]`.
    pub previous: Option<PreviousRow>,
    /// `#[table(changed = […])]`.
    pub changed: &'static [&'static str],
    /// The fields of the primary key.
    pub primary_key: &'static [KeyField],
    /// The indexes in order of declaration.
    pub indexes: &'static [IndexSchema],
}

/// One version of the rows of a table.
#[derive(Debug, PartialEq, Eq)]
pub struct RowSchema {
    /// Its number.
    pub version: u32,
    /// All fields of the struct in order of declaration.
    pub fields: &'static [FieldSchema],
    /// The version before it that the code knows.
    pub previous: Option<PreviousRow>,
    /// The fields that the conversion from that version changes.
    pub changed: &'static [&'static str],
}

/// The version of the rows that others are converted from.
#[derive(Debug, Clone, Copy)]
pub struct PreviousRow {
    pub(crate) schema: &'static RowSchema,
    pub(crate) locate_fields: LocateFields,
    /// The same of the version that they are converted to.
    pub(crate) locate_next: LocateFields,
}

/// One field of the struct.
#[derive(Debug, PartialEq, Eq)]
pub struct FieldSchema {
    /// Its name.
    pub name: &'static str,
    /// Its type as it is written.
    pub declared: &'static str,
    /// Its type. Structs of two versions may have different types of the same name.
    pub(crate) ty: TypeId,
}

impl FieldSchema {
    /// A field of type `T`, which is written as `declared`.
    #[must_use]
    pub const fn new<T: ?Sized + 'static>(name: &'static str, declared: &'static str) -> Self {
        Self { name, declared, ty: TypeId::of::<T>() }
    }
}

/// One field of a primary key or of an index key.
#[derive(Debug)]
pub struct KeyField {
    /// The name of the field or the method.
    pub name: &'static str,
    /// What its encoding looks like.
    pub shape: KeyShape,
    /// Where it comes from.
    pub form: KeyForm,
}

/// How a part of a key comes from the row. The numbers are part of cursors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyForm {
    /// It is a field.
    Field = 0,
    /// It is each element of a field.
    Each = 1,
    /// It is a field, in descending order.
    Desc = 2,
    /// It is what a method returns.
    Computed = 3,
    /// It is a hash of a field.
    Hash = 4,
    /// It is each element of what a method returns.
    EachComputed = 5,
    /// It is a hash of what a method returns.
    HashComputed = 6,
}

impl KeyField {
    /// A plain field.
    #[must_use]
    pub const fn new<T: Key>(name: &'static str) -> Self {
        Self { name, shape: T::SHAPE, form: KeyForm::Field }
    }

    /// `each(field)`.
    #[must_use]
    pub const fn each<C: Each>(name: &'static str) -> Self {
        Self { name, shape: <C::Element as Key>::SHAPE, form: KeyForm::Each }
    }

    /// `desc(field)`.
    #[must_use]
    pub const fn desc<T: Key>(name: &'static str) -> Self {
        Self { name, shape: KeyShape::Desc(&T::SHAPE), form: KeyForm::Desc }
    }

    /// `computed(method: T)`.
    #[must_use]
    pub const fn computed<T: Key>(name: &'static str) -> Self {
        Self { name, shape: T::SHAPE, form: KeyForm::Computed }
    }

    /// `hash(field)`.
    #[must_use]
    pub const fn hash<T: Key>(name: &'static str) -> Self {
        Self { name, shape: KeyShape::Hash(&T::SHAPE), form: KeyForm::Hash }
    }

    /// `each(computed(method: C))`.
    #[must_use]
    pub const fn each_computed<C: Each>(name: &'static str) -> Self {
        Self { name, shape: <C::Element as Key>::SHAPE, form: KeyForm::EachComputed }
    }

    /// `hash(computed(method: T))`.
    #[must_use]
    pub const fn hash_computed<T: Key>(name: &'static str) -> Self {
        Self { name, shape: KeyShape::Hash(&T::SHAPE), form: KeyForm::HashComputed }
    }

    fn is_hash(&self) -> bool {
        matches!(self.form, KeyForm::Hash | KeyForm::HashComputed)
    }

    fn is_computed(&self) -> bool {
        matches!(self.form, KeyForm::Computed | KeyForm::EachComputed | KeyForm::HashComputed)
    }
}

/// One index as it is declared.
#[derive(Debug)]
pub struct IndexSchema {
    /// The name, in the file and in errors.
    pub name: &'static str,
    /// The fields of its key.
    pub key: &'static [KeyField],
    /// What an entry carries beside its key and the primary key.
    pub strategy: Strategy,
    /// Whether a key belongs to one row at most.
    pub unique: bool,
    /// Whether it follows the rows in its own time. Never with `unique`.
    pub eventual: bool,
    /// Which rows have entries: those for which all of these hold.
    pub conditions: &'static [Condition],
    /// What the derive found against it, and was not told to allow. Not in the file.
    pub findings: &'static [&'static str],
}

/// What a row has to be like to have entries in an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    /// No part of the key is `None`.
    Sparse,
    /// The method of this name holds.
    Filter(&'static str),
}

/// What an index entry carries beside its key and the primary key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strategy {
    /// Nothing: the row is looked up by its primary key.
    Normalized,
    /// The fields of these names.
    Partial(&'static [&'static str]),
    /// The whole row, in the fact's bytes.
    Full,
}

/// Where a query reads: the fact table, or one of the indexes by its position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The fact table.
    Facts,
    /// The index at this position.
    Index(usize),
}

impl TableSchema {
    pub(crate) fn index(&self, source: Source) -> Option<&'static IndexSchema> {
        match source {
            Source::Facts => None,
            Source::Index(position) => self.indexes.get(position),
        }
    }

    /// Whether an index follows the rows in its own time, so that the table has a queue.
    pub(crate) fn has_eventual(&self) -> bool {
        self.indexes.iter().any(|index| index.eventual)
    }

    /// Whether this index does.
    pub(crate) fn is_eventual(&self, index: usize) -> bool {
        self.indexes.get(index).is_some_and(|index| index.eventual)
    }

    /// The name of the index, for errors.
    pub(crate) fn index_name(&self, source: Source) -> Option<&'static str> {
        self.index(source).map(|index| index.name)
    }

    /// The length of a primary key, where it is the same for every row.
    pub(crate) fn fixed_primary_key(&self) -> Option<usize> {
        self.primary_key.iter().map(|field| field.shape.fixed_len()).sum()
    }

    /// Where the primary key ends in `bytes`, which may go on behind it.
    pub(crate) fn primary_key_len(&self, bytes: &[u8]) -> Result<usize, DecodeError> {
        match self.fixed_primary_key() {
            Some(len) => Ok(len),
            None => key_len(self.primary_key, bytes),
        }
    }

    /// A primary key as errors show it.
    pub(crate) fn show_primary_key(&self, key: &[u8]) -> String {
        show_key(shapes(self.primary_key), key)
    }

    /// What an entry of `source` with this key, or the fact with this primary key, is reported as
    /// when it can't be read.
    #[cold]
    pub(crate) fn corrupt(&self, source: Source, key: &[u8], error: DecodeError) -> Error {
        error.at(self.name, self.index_name(source), self.show_key(source, key))
    }

    /// What a key of `source` is refused with that takes so many bytes, encoded.
    #[cold]
    pub(crate) fn too_long(&self, source: Source, key: &[u8], len: usize) -> Error {
        let (table, index) = (self.name, self.index_name(source));
        Error::KeyTooLong { table, index, key: self.show_key(source, key), len }
    }

    /// A key of `source` as errors show it.
    pub(crate) fn show_key(&self, source: Source, key: &[u8]) -> String {
        self.show_hashed_key(source, key, &[])
    }

    /// Whether these are keys that an entry of `source` can have.
    pub(crate) fn can_read(&self, source: Source, key: &[u8], primary_key: &[u8]) -> bool {
        let fields: &[KeyField] = self.index(source).map_or(&[], |index| index.key);
        is_readable(shapes(fields), key) && is_readable(shapes(self.primary_key), primary_key)
    }

    /// A key of `source` as errors show it, with the values of its hashed fields.
    pub(crate) fn show_hashed_key(&self, source: Source, key: &[u8], hashed: &[u8]) -> String {
        let fields = self.index(source).map_or(self.primary_key, |index| index.key);
        show_hashed_key(shapes(fields), key, hashed)
    }
}

impl IndexSchema {
    /// Where the index key ends in `bytes`, which may go on behind it.
    pub(crate) fn key_len(&self, bytes: &[u8]) -> Result<usize, DecodeError> {
        key_len(self.key, bytes)
    }

    /// Whether fields of the key are hashed, so that rows with different values may share a key.
    pub(crate) fn is_hashed(&self) -> bool {
        self.key.iter().any(KeyField::is_hash)
    }

    /// Whether a row may have several entries.
    pub(crate) fn has_each(&self) -> bool {
        self.key.iter().any(|field| matches!(field.form, KeyForm::Each | KeyForm::EachComputed))
    }

    /// Whether a key has one entry at most. Those of a unique index with a hashed field may have
    /// more, for values that share a hash.
    pub(crate) fn has_one_entry_per_key(&self) -> bool {
        self.unique && !self.is_hashed()
    }

    /// Whether an entry has the value of a field in its key, or beside it in a field of its own.
    pub(crate) fn has_field(&self, name: &str) -> bool {
        let mut key = self.key.iter().filter(|field| !field.is_computed());
        let included = match self.strategy {
            Strategy::Partial(included) => included,
            Strategy::Normalized | Strategy::Full => &[],
        };
        key.any(|field| field.name == name) || included.contains(&name)
    }

    /// Whether an entry carries, in fields of its own, all values that its key has as hashes.
    pub(crate) fn carries_hashed(&self) -> bool {
        let mut hashed = self.key.iter().filter(|field| field.is_hash());
        match self.strategy {
            Strategy::Normalized => false,
            Strategy::Partial(included) => {
                hashed.all(|field| !field.is_computed() && included.contains(&field.name))
            }
            Strategy::Full => hashed.all(|field| !field.is_computed()),
        }
    }
}

fn key_len(fields: &[KeyField], bytes: &[u8]) -> Result<usize, DecodeError> {
    let unescaped = Unescaped::default();
    let mut reader = KeyReader::new(bytes, &unescaped);
    shapes(fields).try_for_each(|shape| shape.skip(&mut reader))?;
    Ok(bytes.len() - reader.rest().len())
}

fn shapes(fields: &[KeyField]) -> impl ExactSizeIterator<Item = &KeyShape> {
    fields.iter().map(|field| &field.shape)
}
