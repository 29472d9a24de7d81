//! Whether the keys of unique indexes are free: the last thing that can refuse a write.

use crate::{
    engine::{Read, Writer},
    error::{Error, Result},
    key::KeyBuf,
    maintain::{self, Image},
    scan::{Bounds, DANGLING, Query},
    schema::{IndexSchema, Source},
    write::RowType,
};

/// Whether the keys that `new` adds to unique indexes are free.
pub(crate) fn check(
    rows: &RowType,
    writer: &Writer<'_, '_>,
    old: Option<&Image>,
    new: &Image,
) -> Result<()> {
    maintain::unique_keys(rows.schema, old, new, |index, key| {
        let source = Source::Index(index);
        let holder = if rows.schema.index(source).is_some_and(IndexSchema::is_hashed) {
            holder_of_values(rows, writer, index, key, new)?
        } else {
            writer.reader().unique(index, key)?.map(|entry| entry.primary_key)
        };
        match holder {
            // A row doesn't stand in its own way.
            Some(holder) if holder != new.primary_key() => Err(Error::UniqueViolation {
                table: rows.schema.name,
                index: rows.schema.index_name(source).unwrap_or_default(),
                key: rows.schema.show_hashed_key(source, key, new.hashed(index)),
                holder: rows.schema.show_primary_key(holder),
            }),
            _ => Ok(()),
        }
    })
}

/// The primary key of another row than `new` with this key and the same values of the fields that
/// are hashed in it.
fn holder_of_values<'t>(
    rows: &RowType,
    writer: &'t Writer<'_, '_>,
    index: usize,
    key: &[u8],
    new: &Image,
) -> Result<Option<&'t [u8]>> {
    let (reader, source) = (writer.reader(), Source::Index(index));
    let mut values = KeyBuf::new();
    for entry in reader.scan(Query::new(source, Bounds::beginning_with(key)))? {
        let primary_key = entry?.primary_key;
        if primary_key == new.primary_key() {
            continue;
        }
        let fact =
            reader.fact(primary_key)?.ok_or_else(|| rows.schema.corrupt(source, key, DANGLING))?;
        values.clear();
        let read = (rows.hashed)(fact, index, &mut values);
        read.map_err(|error| rows.corrupt(error, primary_key))?;
        if values.as_bytes() == new.hashed(index) {
            return Ok(Some(primary_key));
        }
    }
    Ok(None)
}
