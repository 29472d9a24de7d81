//! The duplicates in a unique index that has the entries of all rows.

use crate::{
    engine::{Cursor as _, Query, Read as _, Reader},
    model::{
        KeyRange,
        entry::RawEntry,
        error::Result,
        key::KeyBuf,
        row_vtable::RowVtable,
        schema::{Duplicate, Duplicates, IndexSchema, Source},
    },
};

/// The rows with the same key.
#[derive(Default)]
struct Group {
    key: Vec<u8>,
    /// The first row with each value of the hashed fields. The values of the first row are read when there is
    /// a second row.
    first: Vec<(Vec<u8>, Option<KeyBuf>)>,
}

/// Reads the index and lists its duplicates.
///
/// Cost: a step for each entry; with hashed fields, a look-up of each row that shares its hash.
pub(super) fn list(rows: &RowVtable, reader: Reader<'_>, index: usize) -> Result<Duplicates> {
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
        let own = values(primary_key)?;
        let mut holder = None;
        for (first, known) in &mut group.first {
            let known = match known {
                Some(known) => known,
                None => known.insert(values(first)?),
            };
            if known.as_bytes() == own.as_bytes() {
                holder = Some(first);
                break;
            }
        }
        match holder {
            None => group.first.push((primary_key.to_vec(), Some(own))),
            Some(holder) => duplicates.add(1, || Duplicate {
                key: rows.schema.show_hashed_key(source, key, own.as_bytes()),
                holder: rows.schema.show_primary_key(holder),
                row: rows.schema.show_primary_key(primary_key),
            }),
        }
    }
    Ok(duplicates)
}

/// The values of the fields of a row that an index has as hashes.
fn hashed(
    rows: &RowVtable,
    reader: Reader<'_>,
    index: usize,
    primary_key: &[u8],
) -> Result<KeyBuf> {
    let mut values = KeyBuf::new();
    // An entry without a row, in a damaged file, has the values of no row.
    if let Some(fact) = reader.fact(primary_key)? {
        let read = (rows.hashed)(fact, index, &mut values);
        read.map_err(|error| rows.corrupt(error, primary_key))?;
    }
    Ok(values)
}
