//! Reading rows and index entries part by part.

use std::fmt;

use serde::Deserialize;

use crate::model::{
    entry::ShortEntry,
    key::{DecodeError, Key, KeyReader, Unescaped, ascii, skip_hash},
    row::{self, Body},
    schema::{Source, Strategy, TableSchema},
};

/// The contents of an entry's data in a scan.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Form {
    /// The row, in the fact table.
    Fact,
    /// The row in an entry of a full index, with the same bytes as the fact.
    FullEntry,
    /// The included fields, or nothing.
    Entry,
}

impl Form {
    pub(crate) fn of(schema: &TableSchema, source: Source) -> Self {
        match schema.index(source).map(|index| index.strategy) {
            None => Self::Fact,
            Some(Strategy::Full) => Self::FullEntry,
            Some(Strategy::Normalized | Strategy::Partial(_)) => Self::Entry,
        }
    }

    /// Whether the entries carry their rows.
    pub(crate) const fn carries_row(self) -> bool {
        matches!(self, Self::Fact | Self::FullEntry)
    }
}

/// Reads the parts of one index entry: key fields, primary key fields and data, each in order.
#[derive(Debug, Clone, Copy)]
pub struct EntryReader<'txn> {
    key: KeyReader<'txn>,
    primary_key: KeyReader<'txn>,
    data: &'txn [u8],
}

impl<'txn> EntryReader<'txn> {
    /// Returns the data of the entry.
    #[inline]
    pub(super) const fn data(&self) -> &'txn [u8] {
        self.data
    }

    #[inline]
    pub(crate) fn new(
        entry: ShortEntry<'txn>,
        form: Form,
        body: Body,
        unescaped: &'txn Unescaped,
    ) -> Result<Self, DecodeError> {
        let data = match form {
            Form::FullEntry => body.current(entry.data, unescaped)?,
            Form::Fact | Form::Entry => entry.data,
        };
        Ok(Self {
            key: KeyReader::new(entry.key, unescaped),
            primary_key: KeyReader::of_primary_key(entry.primary_key, unescaped),
            data,
        })
    }

    /// Reads the next field of the index key.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if the bytes are not such a field.
    #[inline]
    pub fn key<T: Key>(&mut self) -> Result<T::Ref<'txn>, DecodeError> {
        T::decode(&mut self.key)
    }

    /// Skips the next field of the index key.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if the bytes are not such a field.
    pub fn skip_key<T: Key>(&mut self) -> Result<(), DecodeError> {
        T::SHAPE.skip(&mut self.key)
    }

    /// Skips the next field of the index key, which is hashed.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] when the bytes end too early.
    pub fn skip_hash(&mut self) -> Result<(), DecodeError> {
        skip_hash(&mut self.key)
    }

    /// Reads the next field of the primary key.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if the bytes are not such a field.
    #[inline]
    pub fn primary_key<T: Key>(&mut self) -> Result<T::Ref<'txn>, DecodeError> {
        T::decode(&mut self.primary_key)
    }

    /// Skips the next field of the primary key.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if the bytes are not such a field.
    pub fn skip_primary_key<T: Key>(&mut self) -> Result<(), DecodeError> {
        T::SHAPE.skip(&mut self.primary_key)
    }

    /// Reads the next included field of a partial index.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if the bytes are not such a field.
    #[inline]
    pub fn included<T: Deserialize<'txn>>(&mut self) -> Result<T, DecodeError> {
        let (value, rest) = row::take(self.data)?;
        self.data = rest;
        Ok(value)
    }

    /// Reads the next field of the row in a full index.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if the bytes are not such a field.
    #[inline]
    pub fn field<T: Deserialize<'txn>>(&mut self) -> Result<T, DecodeError> {
        self.included()
    }

    /// Reads the next included field, or field of the row, as text. Equal to
    /// [`included`](EntryReader::included) for a `&str`, and faster if the text is short and ASCII.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if the bytes are not text.
    #[inline]
    pub fn text(&mut self) -> Result<&'txn str, DecodeError> {
        if let Some((&len, rest)) = self.data.split_first()
            && len < 0x80
            && let Some((text, rest)) = rest.split_at_checked(usize::from(len))
            && let Some(text) = ascii(text)
        {
            self.data = rest;
            return Ok(text);
        }
        self.included()
    }
}

/// Reads the fields of one row, in stored order.
pub struct RowReader<'txn> {
    pub(crate) from: row::Deserializer<'txn>,
}

impl<'txn> RowReader<'txn> {
    /// Reads the next field.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if the bytes are not such a field.
    #[inline]
    pub fn field<T: Deserialize<'txn>>(&mut self) -> Result<T, DecodeError> {
        self.field_with(|from| T::deserialize(from))
    }

    /// Reads the next field with the function of serde's `deserialize_with`.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] when `read` fails.
    #[inline]
    pub fn field_with<T>(
        &mut self,
        read: impl FnOnce(&mut row::Deserializer<'txn>) -> postcard::Result<T>,
    ) -> Result<T, DecodeError> {
        read(&mut self.from).map_err(DecodeError::Row)
    }
}

impl fmt::Debug for RowReader<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RowReader").finish_non_exhaustive()
    }
}
