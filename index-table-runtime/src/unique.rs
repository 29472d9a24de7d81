//! Whether the keys of unique indexes are free: the last thing that can refuse a write.

use crate::{
    engine::{Read, Reader, Writer},
    error::{Error, Result},
    key::KeyBuf,
    maintain::{self, Image},
    scan::{Bounds, DANGLING, Query},
    schema::{IndexSchema, Source},
    upkeep::Upkeep,
    write::RowType,
};

/// Whether the keys that `new` adds to unique indexes are free.
pub(crate) fn check(
    rows: &RowType,
    writer: &Writer<'_, '_>,
    upkeep: Option<&Upkeep>,
    old: Option<&Image>,
    new: &Image,
) -> Result<()> {
    maintain::unique_keys(rows.schema, old, new, |index, key| {
        if upkeep.is_some_and(|upkeep| !upkeep.keeps(index)) {
            return Ok(());
        }
        match holder(rows, writer.reader(), index, key, new)? {
            Some(holder) => Err(violation(rows, index, key, holder, new)),
            None => Ok(()),
        }
    })
}

/// The primary key of another row than `new` that has this key of a unique index.
pub(crate) fn holder<'t>(
    rows: &RowType,
    reader: Reader<'t>,
    index: usize,
    key: &[u8],
    new: &Image,
) -> Result<Option<&'t [u8]>> {
    if rows.schema.index(Source::Index(index)).is_some_and(IndexSchema::is_hashed) {
        return holder_of_values(rows, reader, index, key, new);
    }
    let holder = reader.unique(index, key)?.map(|entry| entry.primary_key);
    // A row doesn't stand in its own way.
    Ok(holder.filter(|holder| *holder != new.primary_key()))
}

#[cold]
pub(crate) fn violation(
    rows: &RowType,
    index: usize,
    key: &[u8],
    holder: &[u8],
    new: &Image,
) -> Error {
    let source = Source::Index(index);
    Error::UniqueViolation {
        table: rows.schema.name,
        index: rows.schema.index_name(source).unwrap_or_default(),
        key: rows.schema.show_hashed_key(source, key, new.hashed(index)),
        holder: rows.schema.show_primary_key(holder),
    }
}

/// The primary key of another row than `new` with this key and the same values of the fields that
/// are hashed in it.
fn holder_of_values<'t>(
    rows: &RowType,
    reader: Reader<'t>,
    index: usize,
    key: &[u8],
    new: &Image,
) -> Result<Option<&'t [u8]>> {
    let source = Source::Index(index);
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
