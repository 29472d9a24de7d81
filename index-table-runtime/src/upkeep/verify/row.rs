//! The image of a stored row, and the other row that has one of its keys.

use super::{compare, finding::FindingKind, images::Images};
use crate::{
    engine::{Cursor as _, Query, Read},
    model::{
        KeyRange,
        error::{Error, Result},
        key::DecodeError,
        maintain::Image,
        row,
        row_vtable::TableRows,
        schema::{IndexSchema, Source},
    },
    placement::Reader,
};

/// Loads the image of a row, with its entries in one index or in all of them.
///
/// # Errors
///
/// The reason why the row is unreadable.
pub(super) fn load(
    rows: &TableRows,
    image: &mut Image,
    primary_key: &[u8],
    bytes: &[u8],
    index: Option<usize>,
) -> Result<(), (FindingKind, String)> {
    let undecodable = |reason| (FindingKind::UndecodableRow, reason);
    let loaded = rows.load_unchecked(image, bytes, index);
    let loaded = loaded.map_err(|error| match error {
        DecodeError::Unconvertible { .. } => (FindingKind::WrongConversion, error.to_string()),
        error => undecodable(error.to_string()),
    })?;
    loaded.map_err(|error| undecodable(error.to_string()))?;
    if image.primary_key() == primary_key {
        return Ok(());
    }
    let key = rows.schema.show_primary_key(image.primary_key());
    match row::version(bytes) {
        Ok(version) if version != rows.schema.version => Err((
            FindingKind::WrongConversion,
            format!("its conversion from version {version} changes the primary key to {key}"),
        )),
        _ => {
            Err((FindingKind::WrongPrimaryKey, format!("the row has the primary key {key} inside")))
        }
    }
}

/// Returns the primary key of another row that has this key in a unique index. The rows with the key are found
/// by their entries.
pub(super) fn holder(
    rows: &TableRows,
    reader: Reader<'_>,
    image: &Image,
    others: &mut Images,
    index: usize,
    key: &[u8],
) -> Result<Option<Vec<u8>>> {
    let source = Source::Index(index);
    let query = Query::new(source, KeyRange::beginning_with(key));
    let mut entries = reader.cursor(query)?;
    loop {
        match entries.advance().map_err(Error::from) {
            Ok(true) if entries.entry().key == key => {}
            Ok(false) => return Ok(None),
            // Earlier stages have reported the damage.
            Ok(true) | Err(Error::Corrupt { .. }) => continue,
            Err(error) => return Err(error),
        }
        let holder = entries.entry().primary_key;
        if holder == image.primary_key() {
            continue;
        }
        if let Some(fact) = reader.fact(holder)?
            && let Some(other) = others.get(rows, index, holder, fact)
            && compare::is_double(image, other, index, key)
        {
            return Ok(Some(holder.to_vec()));
        }
        if rows.schema.index(source).is_some_and(IndexSchema::has_one_entry_per_key) {
            return Ok(None);
        }
    }
}
