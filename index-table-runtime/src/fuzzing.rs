//! The entry points of the fuzz targets. Not part of the API: they change with any release.

#![allow(missing_docs, reason = "the targets are its documentation")]

use crate::model::{
    entity::{Entity, Viewed},
    key::{Key, KeyBuf, KeyReader, KeyShape, Unescaped},
    lists::Lists,
    row,
    schema::{StateRecord, TableRecord, VersionRecord},
};

/// The value at the start of some bytes, with its encodings.
pub struct Encoded<'b, T> {
    pub value: T,
    /// The bytes that were decoded.
    pub bytes: &'b [u8],
    /// The bytes from the encoder.
    pub again: Vec<u8>,
    /// The length that its shape computes.
    pub skipped: Option<usize>,
    /// Decodes a borrowed value from its bytes, and again from the encoder's bytes.
    pub shown: String,
    pub shown_again: String,
}

impl<'b, T: Key> Encoded<'b, T> {
    /// Decodes a value. Returns `None` if the bytes are not the encoding of a value.
    #[must_use]
    pub fn read(from: &'b [u8]) -> Option<Self> {
        let unescaped = Unescaped::default();
        let mut reader = KeyReader::new(from, &unescaped);
        let shown = T::decode(&mut reader).ok().map(|value| format!("{value:?}"));
        let mut reader = KeyReader::new(from, &unescaped);
        let value = T::decode_owned(&mut reader).ok();
        assert_eq!(value.is_some(), shown.is_some());
        let (value, shown) = (value?, shown?);
        let bytes = from.get(..from.len() - reader.rest().len())?;
        let mut again = KeyBuf::new();
        T::encode(value.arg(), &mut again);
        let again = again.as_bytes().to_vec();
        let mut reread = KeyReader::new(&again, &unescaped);
        let shown_again =
            T::decode(&mut reread).map(|value| format!("{value:?}")).unwrap_or_default();
        let skipped = skip(&T::SHAPE, from);
        Some(Self { value, bytes, again, skipped, shown, shown_again })
    }
}

fn skip(shape: &KeyShape, from: &[u8]) -> Option<usize> {
    let unescaped = Unescaped::default();
    let mut reader = KeyReader::new(from, &unescaped);
    shape.skip(&mut reader).ok()?;
    Some(from.len() - reader.rest().len())
}

/// The lists of a table.
#[derive(Default)]
pub struct Rows {
    lists: Lists,
}

impl Rows {
    /// Reads the bytes of a catalog. Returns `None` if they are damaged.
    #[must_use]
    pub fn with_catalog(catalog: &[u8]) -> Option<Self> {
        let lists = Lists::default();
        lists.take(index_table_rows::Catalog::from_bytes(catalog).ok()?);
        Some(Self { lists })
    }

    /// Returns the bytes of the catalog.
    #[must_use]
    pub fn catalog(&self) -> Vec<u8> {
        self.lists.catalog().to_bytes()
    }

    /// Decodes a row.
    #[must_use]
    pub fn row<R: Entity>(&self, bytes: &[u8]) -> Option<R> {
        row::decode(&self.lists, bytes).ok()
    }

    /// Returns a row in the exact form, without its type.
    #[cfg(feature = "json")]
    #[must_use]
    pub fn json(&self, bytes: &[u8]) -> Option<String> {
        let mut json = String::new();
        self.lists.append_json(row::any_body(bytes).ok()?, &mut json).ok()?;
        Some(json)
    }

    /// Whether a row can be read to its end without its type.
    #[cfg(feature = "json")]
    #[must_use]
    pub fn is_readable(&self, bytes: &[u8]) -> bool {
        row::any_body(bytes).is_ok_and(|body| self.lists.untyped(body).is_ok())
    }

    /// Decodes the view of a row, and returns the result of `look` for it.
    pub fn with_view<R: Viewed, T>(
        &self,
        bytes: &[u8],
        look: impl FnOnce(R::View<'_>) -> T,
    ) -> Option<T> {
        let kept = Unescaped::default();
        row::view::<R>(&self.lists, bytes, &kept).ok().map(look)
    }

    /// Encodes a row. Returns `None` if that fails.
    #[must_use]
    pub fn bytes<R: Entity>(&self, row: &R) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        row::encode(&self.lists, row, &mut bytes).ok()?;
        Some(bytes)
    }
}

/// Reads the bytes as each kind of record of the catalog, and compares them with a table's own.
pub fn records<R: Entity>(bytes: &[u8]) {
    let schema = R::TABLE;
    let declared = TableRecord::of(schema, |_| "blocks");
    let table = schema.name;
    let state = StateRecord::decode(bytes);
    if let Some(state) = &state {
        assert!(state.encode(table).is_ok());
    }
    drop(VersionRecord::decode(table, 1, bytes));
    if let Ok(record) = TableRecord::decode(table, bytes) {
        let again = record.encode(table).and_then(|bytes| TableRecord::decode(table, &bytes));
        assert_eq!(again.ok().as_ref(), Some(&record));
        drop(record.compare(&declared, schema));
        drop(record.renamed_indexes(&declared));
        drop(declared.compare(&record, schema));
    }
}

/// Writes a journal by a script in the bytes, damages it, and reads it.
///
/// # Panics
///
/// If a record is read that was not written, if records are read in another order, or if a durable record is missing
/// without an error.
pub fn journal(bytes: &[u8]) {
    crate::engine::lmdb::journal::fuzzing::journal(bytes);
}

/// Reads the bytes as a block of primary keys, and changes it.
///
/// # Panics
///
/// If the block has other primary keys, before or after the change.
pub fn block(bytes: &[u8]) {
    crate::engine::lmdb::fuzz_block(bytes);
}
