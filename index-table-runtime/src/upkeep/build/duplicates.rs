//! The search for duplicates in a unique index that has the entries of all rows.

use crate::{
    engine::{Cursor as _, Query, Read as _},
    model::{
        KeyRange,
        entry::RawEntry,
        error::Result,
        index_state::{Duplicate, Duplicates},
        key::KeyBuf,
        row_vtable::TableRows,
        schema::{IndexSchema, Source},
    },
    placement::Reader,
};

/// The rows with the same key.
#[derive(Default)]
struct Group {
    key: Vec<u8>,
    /// For each value of the hashed fields, the first row with it. The values of the very first row are read
    /// only if the key has a second row.
    first: Vec<(Vec<u8>, Option<KeyBuf>)>,
}

/// Reads the index and lists its duplicates.
///
/// Cost: each entry is read; in an index with hashed fields, each row that shares its key is looked up.
pub(super) fn list(rows: &TableRows, reader: Reader<'_>, index: usize) -> Result<Duplicates> {
    let source = Source::Index(index);
    let is_hashed = rows.schema.index(source).is_some_and(IndexSchema::is_hashed);
    let values = |primary_key: &[u8]| {
        if is_hashed { hashed(rows, reader, index, primary_key) } else { Ok(KeyBuf::new()) }
    };
    let (mut duplicates, mut group) = (Duplicates::default(), Group::default());
    let mut entries = reader.cursor(Query::new(source, KeyRange::ALL))?;
    while entries.advance()? {
        let RawEntry { key, primary_key, .. } = entries.entry();
        if group.first.is_empty() || group.key != key {
            group.key.clear();
            group.key.extend_from_slice(key);
            group.first.clear();
            group.first.push((primary_key.to_vec(), None));
            continue;
        }
        let row_values = values(primary_key)?;
        let mut holder = None;
        for (first, known) in &mut group.first {
            let known = match known {
                Some(known) => known,
                None => known.insert(values(first)?),
            };
            if known.as_bytes() == row_values.as_bytes() {
                holder = Some(first);
                break;
            }
        }
        match holder {
            None => group.first.push((primary_key.to_vec(), Some(row_values))),
            Some(holder) => duplicates.add(1, || Duplicate {
                key: rows.schema.show_hashed_key(source, key, row_values.as_bytes()),
                holder: rows.schema.show_primary_key(holder),
                row: rows.schema.show_primary_key(primary_key),
            }),
        }
    }
    Ok(duplicates)
}

/// Returns the values of the fields of a row that an index contains as hashes.
fn hashed(
    rows: &TableRows,
    reader: Reader<'_>,
    index: usize,
    primary_key: &[u8],
) -> Result<KeyBuf> {
    let mut values = KeyBuf::new();
    // In a damaged file, an entry may have no row. Its values are empty.
    if let Some(fact) = reader.fact(primary_key)? {
        let read = rows.hashed(fact, index, &mut values);
        read.map_err(|error| rows.corrupt(error, primary_key))?;
    }
    Ok(values)
}
