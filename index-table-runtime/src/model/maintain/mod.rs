//! Index maintenance: computes the changes of each index from the old and the new row. This code is pure.
//!
//! A row is loaded into an [`Image`]: primary key, bytes and index entries. Two images of the same row are
//! compared index by index, and each difference is a [`Change`].

mod image;
#[cfg(test)]
mod tests;

pub use image::EntryBuffer;
pub(crate) use image::Image;
use image::Keys;
#[cfg(feature = "json")]
pub(crate) use image::recorded_hashes;

use std::cmp::Ordering;

use crate::model::{
    error::Result,
    schema::{IndexSchema, Strategy, TableSchema},
};

/// One change of one database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change<'a> {
    /// Write a fact, which replaces an existing fact.
    PutFact { primary_key: &'a [u8], row: &'a [u8] },
    /// Remove a fact.
    DeleteFact { primary_key: &'a [u8] },
    /// Write an entry. It replaces an entry with the same key and primary key, or, in a unique index, an
    /// entry with the same key.
    PutEntry { index: usize, key: &'a [u8], primary_key: &'a [u8], data: &'a [u8] },
    /// Remove an entry.
    DeleteEntry { index: usize, key: &'a [u8], primary_key: &'a [u8] },
}

/// The destination of changes: an engine's transaction, a queue, or the list of a test.
pub(crate) trait Sink {
    /// Applies one change.
    fn change(&mut self, change: Change<'_>) -> Result<()>;
}

/// The change of one key of one index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeyChange<'a> {
    /// Only the old row has the key.
    Remove(&'a [u8]),
    /// Only the new row has the key.
    Add(&'a [u8]),
    /// Both rows have the key. The entry may differ in its data or its primary key.
    Keep(&'a [u8]),
}

/// Compares the keys of two images in one index. Both lists are sorted and have no duplicates.
struct Steps<'a> {
    old: Keys<'a>,
    new: Keys<'a>,
}

impl<'a> Iterator for Steps<'a> {
    type Item = KeyChange<'a>;

    #[inline]
    fn next(&mut self) -> Option<KeyChange<'a>> {
        let order = match (self.old.first(), self.new.first()) {
            (Some(old), Some(new)) => old.cmp(new),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => return None,
        };
        match order {
            Ordering::Less => self.old.next().map(KeyChange::Remove),
            Ordering::Greater => self.new.next().map(KeyChange::Add),
            Ordering::Equal => self.old.next().and(self.new.next()).map(KeyChange::Keep),
        }
    }
}

/// Calls `check` with each key that a write adds to a unique index, as (index, key). Equal keys with
/// different values of a hashed field count as different keys.
pub(crate) fn unique_keys<'a>(
    schema: &TableSchema,
    old: Option<&'a Image>,
    new: &'a Image,
    mut check: impl FnMut(usize, &'a [u8]) -> Result<()>,
) -> Result<()> {
    for (index, declared) in schema.indexes.iter().enumerate() {
        if !declared.unique {
            continue;
        }
        // Different values with the same hash have to be checked as well.
        let rehashed = old.is_some_and(|old| old.hashed(index) != new.hashed(index));
        let (old, new) = (old.map_or(Keys::NONE, |old| old.keys(index)), new.keys(index));
        if !rehashed && old == new {
            continue;
        }
        for step in (Steps { old, new }) {
            match step {
                KeyChange::Add(key) => check(index, key)?,
                KeyChange::Keep(key) if rehashed => check(index, key)?,
                KeyChange::Keep(_) | KeyChange::Remove(_) => {}
            }
        }
    }
    Ok(())
}

/// Sends the changes of all index entries from `old` to `new` to the sink. Unchanged entries are not sent.
pub(crate) fn entry_changes(
    schema: &TableSchema,
    old: Option<&Image>,
    new: Option<&Image>,
    sink: &mut impl Sink,
) -> Result<()> {
    let mut indexes = schema.indexes.iter().enumerate();
    match (old, new) {
        (Some(old), Some(new)) => {
            let moved = old.primary_key() != new.primary_key();
            indexes.try_for_each(|(index, declared)| {
                replace_entries(declared, index, old, new, moved, sink)
            })
        }
        (None, Some(new)) => {
            indexes.try_for_each(|(index, declared)| add_entries(declared, index, new, sink))
        }
        (Some(old), None) => indexes.try_for_each(|(index, _)| remove_entries(index, old, sink)),
        (None, None) => Ok(()),
    }
}

/// Like [`entry_changes`], for one index.
pub(crate) fn changes_of_index(
    schema: &TableSchema,
    index: usize,
    old: Option<&Image>,
    new: Option<&Image>,
    sink: &mut impl Sink,
) -> Result<()> {
    let Some(declared) = schema.indexes.get(index) else { return Ok(()) };
    match (old, new) {
        (Some(old), Some(new)) => {
            let moved = old.primary_key() != new.primary_key();
            replace_entries(declared, index, old, new, moved, sink)
        }
        (None, Some(new)) => add_entries(declared, index, new, sink),
        (Some(old), None) => remove_entries(index, old, sink),
        (None, None) => Ok(()),
    }
}

/// Like [`entry_changes`], for two images with the [same bytes in their keys](Image::same_key_bytes). This is
/// the most frequent kind of update.
pub(crate) fn data_changes(
    schema: &TableSchema,
    old: &Image,
    new: &Image,
    sink: &mut impl Sink,
) -> Result<()> {
    for (index, declared) in schema.indexes.iter().enumerate() {
        // Most indexes carry no data.
        if matches!(declared.strategy, Strategy::Normalized) {
            continue;
        }
        let data = new.data(index, declared);
        if old.is_renewed() || old.data(index, declared) != data {
            put_entries(index, new, data, sink)?;
        }
    }
    Ok(())
}

/// Sends the entries of a row in one index to the sink.
pub(crate) fn add_entries(
    declared: &IndexSchema,
    index: usize,
    new: &Image,
    sink: &mut impl Sink,
) -> Result<()> {
    put_entries(index, new, new.data(index, declared), sink)
}

#[expect(clippy::inline_always, reason = "it would be one more call for each index")]
#[inline(always)]
fn put_entries(index: usize, new: &Image, data: &[u8], sink: &mut impl Sink) -> Result<()> {
    let primary_key = new.primary_key();
    for key in new.keys(index) {
        sink.change(Change::PutEntry { index, key, primary_key, data })?;
    }
    Ok(())
}

/// Sends the removals of entries that only `old` has to the sink.
pub(crate) fn removed_entries(
    schema: &TableSchema,
    old: &Image,
    new: &Image,
    sink: &mut impl Sink,
) -> Result<()> {
    let primary_key = old.primary_key();
    for index in 0..schema.indexes.len() {
        for step in (Steps { old: old.keys(index), new: new.keys(index) }) {
            if let KeyChange::Remove(key) = step {
                sink.change(Change::DeleteEntry { index, key, primary_key })?;
            }
        }
    }
    Ok(())
}

fn remove_entries(index: usize, old: &Image, sink: &mut impl Sink) -> Result<()> {
    let primary_key = old.primary_key();
    for key in old.keys(index) {
        sink.change(Change::DeleteEntry { index, key, primary_key })?;
    }
    Ok(())
}

/// Like [`entry_changes`], for one index and an existing row. `moved` means that its primary key has changed.
fn replace_entries(
    declared: &IndexSchema,
    index: usize,
    old: &Image,
    new: &Image,
    moved: bool,
    sink: &mut impl Sink,
) -> Result<()> {
    let (before, after) = (old.keys(index), new.keys(index));
    let (primary_key, data) = (new.primary_key(), new.data(index, declared));
    let delete = |key| Change::DeleteEntry { index, key, primary_key: old.primary_key() };
    let put = |key| Change::PutEntry { index, key, primary_key, data };
    // The most frequent case.
    if let (Some(before), Some(after)) = (before.only(), after.only()) {
        match before.cmp(after) {
            Ordering::Less => {
                sink.change(delete(before))?;
                return sink.change(put(after));
            }
            Ordering::Greater => {
                sink.change(put(after))?;
                return sink.change(delete(before));
            }
            Ordering::Equal => {}
        }
    }
    let changed = moved || old.is_renewed() || old.data(index, declared) != data;
    for step in (Steps { old: before, new: after }) {
        match step {
            KeyChange::Remove(key) => sink.change(delete(key))?,
            KeyChange::Add(key) => sink.change(put(key))?,
            KeyChange::Keep(key) => {
                // The only entry of a key has the primary key in its value.
                if moved && !declared.has_one_entry_per_key() {
                    sink.change(delete(key))?;
                }
                if changed {
                    sink.change(put(key))?;
                }
            }
        }
    }
    Ok(())
}
