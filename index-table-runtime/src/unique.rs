//! Whether the keys of unique indexes are free: the last thing that can refuse a write.

use crate::{
    engine::{Read, Reader, Writer},
    error::Result,
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
        let (primary_key, hashed) = (new.primary_key(), new.hashed(index));
        match holder(rows, writer.reader(), index, key, primary_key, hashed)? {
            Some(holder) => Err(rows.taken(index, key, hashed, holder)),
            None => Ok(()),
        }
    })
}

/// The primary key of another row than `own` that has this key of a unique index, and the same values
/// of the fields that are hashed in it.
#[inline]
pub(crate) fn holder<'t>(
    rows: &RowType,
    reader: Reader<'t>,
    index: usize,
    key: &[u8],
    own: &[u8],
    hashed: &[u8],
) -> Result<Option<&'t [u8]>> {
    if rows.schema.index(Source::Index(index)).is_some_and(IndexSchema::is_hashed) {
        return holder_of_values(rows, reader, index, key, own, hashed);
    }
    let holder = reader.unique(index, key)?.map(|entry| entry.primary_key);
    // A row doesn't stand in its own way.
    Ok(holder.filter(|holder| *holder != own))
}

/// The primary key of another row than `own` with this key and the same values of the fields that
/// are hashed in it.
fn holder_of_values<'t>(
    rows: &RowType,
    reader: Reader<'t>,
    index: usize,
    key: &[u8],
    own: &[u8],
    hashed: &[u8],
) -> Result<Option<&'t [u8]>> {
    let source = Source::Index(index);
    let mut values = KeyBuf::new();
    for entry in reader.scan(Query::new(source, Bounds::beginning_with(key)))? {
        let primary_key = entry?.primary_key;
        if primary_key == own {
            continue;
        }
        let fact =
            reader.fact(primary_key)?.ok_or_else(|| rows.schema.corrupt(source, key, DANGLING))?;
        values.clear();
        let read = (rows.hashed)(fact, index, &mut values);
        read.map_err(|error| rows.corrupt(error, primary_key))?;
        if values.as_bytes() == hashed {
            return Ok(Some(primary_key));
        }
    }
    Ok(None)
}
