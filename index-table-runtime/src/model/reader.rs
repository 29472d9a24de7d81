//! Reading rows and index entries part by part.

use std::fmt;

use index_table_rows::Fields;
use serde::Deserialize;

use crate::model::{
    entity::Entity,
    entry::ShortEntry,
    key::{DecodeError, Key, KeyReader, Unescaped, skip_hash},
    lists::Lists,
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
    /// The included fields.
    PartialEntry,
    /// Nothing.
    Entry,
}

impl Form {
    pub(crate) fn of(schema: &TableSchema, source: Source) -> Self {
        match schema.index(source).map(|index| index.strategy) {
            None => Self::Fact,
            Some(Strategy::Full) => Self::FullEntry,
            Some(Strategy::Partial(_)) => Self::PartialEntry,
            Some(Strategy::Normalized) => Self::Entry,
        }
    }

    /// Whether the entries carry their rows.
    pub(crate) const fn carries_row(self) -> bool {
        matches!(self, Self::Fact | Self::FullEntry)
    }
}

/// Reads the parts of one index entry: key fields, primary key fields and data, each in order.
pub struct EntryReader<'txn> {
    key: KeyReader<'txn>,
    primary_key: KeyReader<'txn>,
    data: &'txn [u8],
    lists: &'txn Lists,
    /// The fields in an entry of a full or partial index.
    fields: Option<Fields<'txn, 'txn>>,
}

/// How rows in entries are read.
#[derive(Clone, Copy)]
pub(crate) struct EntryContext<'txn> {
    pub(crate) lists: &'txn Lists,
    pub(crate) unescaped: &'txn Unescaped,
    pub(crate) body: Body,
}

impl<'txn> EntryReader<'txn> {
    /// Reads an entry. If its row lacks a field of the type, the row is read as a whole, which has the field's default.
    #[inline]
    pub(crate) fn read<T>(
        entry: ShortEntry<'txn>,
        form: Form,
        context: EntryContext<'txn>,
        mut decode: impl FnMut(Self) -> Result<T, DecodeError>,
    ) -> Result<T, DecodeError> {
        match decode(Self::new(entry, form, context)?) {
            Err(DecodeError::Missing(_)) if matches!(form, Form::FullEntry) => {
                Self::read_renewed(entry, context, &mut decode)
            }
            outcome => outcome,
        }
    }

    #[cold]
    #[inline(never)]
    fn read_renewed<T>(
        entry: ShortEntry<'txn>,
        context: EntryContext<'txn>,
        decode: &mut impl FnMut(Self) -> Result<T, DecodeError>,
    ) -> Result<T, DecodeError> {
        let EntryContext { lists, unescaped, body } = context;
        let fields = Some(body.renewed(lists, entry.data, unescaped)?);
        decode(Self { fields, ..Self::new(entry, Form::Entry, context)? })
    }

    #[inline]
    pub(crate) fn new(
        entry: ShortEntry<'txn>,
        form: Form,
        EntryContext { lists, unescaped, body }: EntryContext<'txn>,
    ) -> Result<Self, DecodeError> {
        let fields = match form {
            Form::FullEntry => Some(body.fields(lists, entry.data, unescaped)?),
            Form::PartialEntry => Some(lists.part(entry.data)?),
            Form::Fact | Form::Entry => None,
        };
        Ok(Self {
            key: KeyReader::new(entry.key, unescaped),
            primary_key: KeyReader::of_primary_key(entry.primary_key, unescaped),
            data: entry.data,
            lists,
            fields,
        })
    }

    /// Reads the row, in an entry of the fact table.
    pub(super) fn fact<R: Entity>(self) -> Result<R, DecodeError> {
        row::decode(self.lists, self.data)
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

    /// Reads a field of the row in a full index, or the next included field. `names` are its name in the row and its aliases.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if the bytes are not such a field.
    #[inline]
    pub fn field<T: Deserialize<'txn>>(
        &mut self,
        names: &[&'static str],
    ) -> Result<T, DecodeError> {
        match &mut self.fields {
            Some(fields) => of(fields.field(names), names),
            None => Err(DecodeError::Short),
        }
    }

    /// Reads a field like [`field`](EntryReader::field), as a text. It takes less time if the text is short and ASCII.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if the bytes are not text.
    #[inline]
    pub fn text(&mut self, names: &[&'static str]) -> Result<&'txn str, DecodeError> {
        match &mut self.fields {
            Some(fields) => of(fields.text(names), names),
            None => Err(DecodeError::Short),
        }
    }

    /// Reads a field like [`field`](EntryReader::field), which is the default if the row lacks it.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if the bytes are not such a field.
    pub fn field_or_default<T: Deserialize<'txn> + Default>(
        &mut self,
        names: &[&'static str],
    ) -> Result<T, DecodeError> {
        or_default(self.field(names))
    }
}

impl fmt::Debug for EntryReader<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EntryReader").field("data", &self.data).finish_non_exhaustive()
    }
}

/// Reads the fields of one row.
pub struct RowReader<'txn> {
    pub(crate) fields: Fields<'txn, 'txn>,
}

impl<'txn> RowReader<'txn> {
    /// Reads a field. `names` are its name in the row and its aliases.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if the bytes are not such a field.
    #[inline]
    pub fn field<T: Deserialize<'txn>>(
        &mut self,
        names: &[&'static str],
    ) -> Result<T, DecodeError> {
        of(self.fields.field(names), names)
    }

    /// Reads a field like [`field`](RowReader::field), which is the default if the row lacks it.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if the bytes are not such a field.
    pub fn field_or_default<T: Deserialize<'txn> + Default>(
        &mut self,
        names: &[&'static str],
    ) -> Result<T, DecodeError> {
        or_default(self.field(names))
    }

    /// Reads a field with the function of serde's `deserialize_with`.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] when `read` fails.
    #[inline]
    pub fn field_with<T>(
        &mut self,
        names: &[&'static str],
        read: impl FnMut(
            &mut index_table_rows::Reader<'txn, 'txn>,
        ) -> Result<T, index_table_rows::Error>,
    ) -> Result<T, DecodeError> {
        of(self.fields.field_with(names, read), names)
    }
}

/// Returns the value of the field with these names.
#[inline]
fn of<T>(
    field: Result<Option<T>, index_table_rows::Error>,
    names: &[&'static str],
) -> Result<T, DecodeError> {
    match field {
        Ok(Some(value)) => Ok(value),
        Ok(None) => Err(missing(names)),
        Err(error) => Err(DecodeError::Fields(error)),
    }
}

fn or_default<T: Default>(field: Result<T, DecodeError>) -> Result<T, DecodeError> {
    match field {
        Err(DecodeError::Missing(_)) => Ok(T::default()),
        field => field,
    }
}

#[cold]
fn missing(names: &[&'static str]) -> DecodeError {
    DecodeError::Missing(names.first().unwrap_or(&""))
}

impl fmt::Debug for RowReader<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RowReader").finish_non_exhaustive()
    }
}
