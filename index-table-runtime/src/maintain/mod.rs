//! Index maintenance: from an old and a new row to the changes of each index. Pure, no engine.
//!
//! A row is turned into its [`Image`]: primary key, bytes and index entries. Two images of the
//! same row are compared index by index, and only the difference becomes a [`Change`].

mod image;
#[cfg(test)]
mod tests;

pub use image::EntryBuffer;
pub(crate) use image::Image;

use std::cmp::Ordering;

use crate::{error::Result, schema::TableSchema};

/// One thing to do to one database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change<'a> {
    /// Write a fact, over an older one or not.
    PutFact { primary_key: &'a [u8], row: &'a [u8] },
    /// Remove a fact.
    DeleteFact { primary_key: &'a [u8] },
    /// Write an entry, over the one with the same key and primary key, or, in a unique index,
    /// over the one with the same key.
    PutEntry { index: usize, key: &'a [u8], primary_key: &'a [u8], data: &'a [u8] },
    /// Remove an entry.
    DeleteEntry { index: usize, key: &'a [u8], primary_key: &'a [u8] },
}

/// Where changes go: an engine's transaction, a queue, a test's list.
pub(crate) trait Sink {
    /// Takes one change.
    fn change(&mut self, change: Change<'_>) -> Result<()>;
}

/// What happens to one key of one index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step<'a> {
    /// Only the old row has it.
    Remove(&'a [u8]),
    /// Only the new row has it.
    Add(&'a [u8]),
    /// Both have it; the entry may differ in its data or its primary key.
    Keep(&'a [u8]),
}

/// Compares the keys of two images in one index. Both lists are sorted and have no duplicates.
fn compare<'a>(
    index: usize,
    old: Option<&'a Image>,
    new: Option<&'a Image>,
    mut step: impl FnMut(Step<'a>) -> Result<()>,
) -> Result<()> {
    let mut old = old.into_iter().flat_map(|image| image.keys(index)).peekable();
    let mut new = new.into_iter().flat_map(|image| image.keys(index)).peekable();
    loop {
        let order = match (old.peek(), new.peek()) {
            (Some(old), Some(new)) => old.cmp(new),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => return Ok(()),
        };
        let next = match order {
            Ordering::Less => old.next().map(Step::Remove),
            Ordering::Greater => new.next().map(Step::Add),
            Ordering::Equal => old.next().and(new.next()).map(Step::Keep),
        };
        next.map_or(Ok(()), &mut step)?;
    }
}

/// Calls `check` with each key that a write adds to a unique index, as (index, key). A key in which
/// a field is hashed is another one with another value of it.
pub(crate) fn unique_keys<'a>(
    schema: &TableSchema,
    old: Option<&'a Image>,
    new: &'a Image,
    mut check: impl FnMut(usize, &'a [u8]) -> Result<()>,
) -> Result<()> {
    for (index, declared) in schema.indexes.iter().enumerate() {
        if declared.unique {
            let other = old.is_some_and(|old| old.hashed(index) != new.hashed(index));
            compare(index, old, Some(new), |step| match step {
                Step::Add(key) => check(index, key),
                Step::Keep(key) if other => check(index, key),
                Step::Remove(_) | Step::Keep(_) => Ok(()),
            })?;
        }
    }
    Ok(())
}

/// Sends the changes of all index entries from `old` to `new` to the sink; entries that stay as
/// they are give none.
pub(crate) fn entry_changes(
    schema: &TableSchema,
    old: Option<&Image>,
    new: Option<&Image>,
    sink: &mut impl Sink,
) -> Result<()> {
    (0..schema.indexes.len()).try_for_each(|index| index_changes(schema, index, old, new, sink))
}

/// [`entry_changes`] of one index.
pub(crate) fn index_changes(
    schema: &TableSchema,
    index: usize,
    old: Option<&Image>,
    new: Option<&Image>,
    sink: &mut impl Sink,
) -> Result<()> {
    let Some(declared) = schema.indexes.get(index) else { return Ok(()) };
    let delete = |image: &Image, key, sink: &mut _| {
        Sink::change(sink, Change::DeleteEntry { index, key, primary_key: image.primary_key() })
    };
    let put = |image: &Image, key, sink: &mut _| {
        let (primary_key, data) = (image.primary_key(), image.data(index, declared));
        Sink::change(sink, Change::PutEntry { index, key, primary_key, data })
    };
    compare(index, old, new, |step| match (step, old, new) {
        (Step::Remove(key), Some(old), _) => delete(old, key, sink),
        (Step::Add(key), _, Some(new)) => put(new, key, sink),
        (Step::Keep(key), Some(old), Some(new)) => {
            let moved = old.primary_key() != new.primary_key();
            if moved && !declared.has_one_entry_per_key() {
                delete(old, key, sink)?;
            }
            if moved || old.data(index, declared) != new.data(index, declared) {
                put(new, key, sink)?;
            }
            Ok(())
        }
        _ => Ok(()),
    })
}
