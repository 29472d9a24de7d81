//! Several entries under one key of an index in a layout with one entry for each key. They exist while such an index is
//! built, and while rows violate it.
//!
//! The entry with the least primary key is stored under the key alone, like the only entry of a key. Each
//! further entry is stored under key ‖ primary key, with the same value as an only entry. Keys are
//! self-delimiting, so the entries of the index are still in the order of (key, primary key). An index
//! without further entries has the normal layout.

use std::cmp::Ordering;

use heed::RwTxn;

use super::{
    error::Failure,
    journal::recorder::Recorder,
    layout::Layout,
    read::Parts,
    short::short,
    tables::{Index, Tables},
};
use crate::model::{
    entry::{RawEntry, ShortKey},
    error::Result,
    key::MAX_KEY_LEN,
    schema::{Source, TableSchema},
};

/// Writes an entry, and keeps the entries of other rows with its key.
pub(super) fn put(
    (txn, recorder): (&mut RwTxn<'_>, &mut Recorder),
    tables: &Tables<'_>,
    index: usize,
    entry: RawEntry<'_>,
) -> Result<(), Failure> {
    let Some(Index { database, layout, .. }) = tables.indexes.get(index) else { return Ok(()) };
    let RawEntry { key, primary_key, data } = entry;
    let value = match layout {
        Layout::ShortUnique { .. } => short(primary_key).to_vec(),
        _ => [primary_key, data].concat(),
    };
    let (mut at, mut moved) = (key.to_vec(), None);
    if let Some(first) = database.get(txn, key)? {
        let holder = holder(tables.schema, index, key, first)?;
        match holder.compare(ShortKey::whole(primary_key)) {
            Ordering::Less => at = further_key(tables.schema, index, key, primary_key)?,
            Ordering::Equal => {}
            Ordering::Greater => {
                let further = further_key(tables.schema, index, key, &holder.to_vec())?;
                moved = Some((further, first.to_vec()));
            }
        }
    }
    database.put(txn, recorder, &at, &value)?;
    if let Some((further, first)) = moved {
        database.put(txn, recorder, &further, &first)?;
    }
    Ok(())
}

/// Removes an entry. If it was the first of its key, the next entry takes its position.
pub(super) fn remove(
    (txn, recorder): (&mut RwTxn<'_>, &mut Recorder),
    tables: &Tables<'_>,
    index: usize,
    key: &[u8],
    primary_key: &[u8],
) -> Result<(), Failure> {
    let Some(Index { database, .. }) = tables.indexes.get(index) else { return Ok(()) };
    let Some(first) = database.get(txn, key)? else { return Ok(()) };
    if !holder(tables.schema, index, key, first)?.is(primary_key) {
        let further = [key, primary_key].concat();
        if further.len() <= MAX_KEY_LEN {
            database.delete(txn, recorder, &further)?;
        }
        return Ok(());
    }
    let parts = Parts::of(tables.schema, Source::Index(index));
    let is_further = |(at, value): &(&[u8], &[u8])| {
        at.strip_prefix(key).zip(parts.first(value)).is_some_and(|(end, (next, _))| next.is(end))
    };
    let next = database.get_greater_than(txn, key)?.filter(is_further);
    let next = next.map(|(at, value)| (at.to_vec(), value.to_vec()));
    match next {
        Some((further, value)) => {
            database.delete(txn, recorder, &further)?;
            database.put(txn, recorder, key, &value)?;
        }
        None => {
            database.delete(txn, recorder, key)?;
        }
    }
    Ok(())
}

/// Returns the primary key of the entry with this value.
fn holder<'v>(
    schema: &'static TableSchema,
    index: usize,
    key: &[u8],
    value: &'v [u8],
) -> Result<ShortKey<'v>> {
    let source = Source::Index(index);
    let parts = Parts::of(schema, source);
    match parts.first(value) {
        Some((primary_key, _)) => Ok(primary_key),
        None => Err(parts.damaged(source, key, value)),
    }
}

/// Returns the LMDB key of a further entry.
fn further_key(
    schema: &TableSchema,
    index: usize,
    key: &[u8],
    primary_key: &[u8],
) -> Result<Vec<u8>> {
    let further = [key, primary_key].concat();
    if further.len() > MAX_KEY_LEN {
        return Err(schema.too_long(Source::Index(index), key, Some(primary_key), further.len()));
    }
    Ok(further)
}
