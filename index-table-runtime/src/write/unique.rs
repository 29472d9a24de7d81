//! Checks that the keys of unique indexes are free.

use crate::model::KeyRange;
use crate::{
    engine::{Cursor as _, Query, Read, Write as _},
    model::{
        entry::ShortKey,
        error::Result,
        key::{KeyBuf, MAX_KEY_LEN},
        maintain::{self, Change, Image, Sink},
        row_vtable::TableRows,
        schema::{IndexSchema, Source, TableSchema},
    },
    placement::{Reader, Writer},
    query::DANGLING,
    write::maintenance::MaintenancePlan,
};

/// Whether [`claim`] can decide that the keys of a new row are free. Hashed keys are compared with the rows.
pub(crate) fn can_claim(schema: &TableSchema) -> bool {
    !schema.indexes.iter().any(|declared| declared.unique && declared.is_hashed())
}

/// Writes the entries of a new row in the indexes whose keys have at most one entry. If a key is taken, returns false,
/// and nothing has changed.
///
/// One search of the tree both checks a key and finds the position of its entry.
pub(crate) fn claim(
    schema: &TableSchema,
    writer: &mut Writer<'_, '_>,
    new: &Image,
) -> Result<bool> {
    let mut claimed = 0;
    for (index, declared) in claimable(schema) {
        let (primary_key, data) = (new.primary_key(), new.data(index, declared));
        for key in new.keys(index) {
            if !writer.insert_entry(index, key, primary_key, data)? {
                return release(schema, writer, new, claimed).map(|()| false);
            }
            claimed += 1;
        }
    }
    Ok(true)
}

/// Removes the first `claimed` entries that [`claim`] has written.
pub(crate) fn release(
    schema: &TableSchema,
    writer: &mut Writer<'_, '_>,
    new: &Image,
    claimed: usize,
) -> Result<()> {
    let primary_key = new.primary_key();
    let keys =
        claimable(schema).flat_map(|(index, _)| new.keys(index).map(move |key| (index, key)));
    keys.take(claimed)
        .try_for_each(|(index, key)| writer.change(Change::DeleteEntry { index, key, primary_key }))
}

/// Returns the indexes whose keys have at most one entry.
fn claimable(schema: &TableSchema) -> impl Iterator<Item = (usize, &IndexSchema)> {
    schema.indexes.iter().enumerate().filter(|(_, declared)| declared.has_one_entry_per_key())
}

/// A sink that passes on all changes except the claimed entries.
pub(crate) struct Unclaimed<'a, S> {
    pub(crate) schema: &'a TableSchema,
    pub(crate) sink: &'a mut S,
}

impl<S: Sink> Sink for Unclaimed<'_, S> {
    fn change(&mut self, change: Change<'_>) -> Result<()> {
        if let Change::PutEntry { index, .. } = change
            && self.schema.indexes.get(index).is_some_and(IndexSchema::has_one_entry_per_key)
        {
            return Ok(());
        }
        self.sink.change(change)
    }
}

/// Checks that the keys that `new` adds to unique indexes are free.
pub(crate) fn check(
    rows: &TableRows,
    writer: &Writer<'_, '_>,
    plan: Option<&MaintenancePlan>,
    old: Option<&Image>,
    new: &Image,
) -> Result<()> {
    maintain::unique_keys(rows.schema, old, new, |index, key| {
        if let Some(plan) = plan.filter(|plan| !plan.enforces(index)) {
            return plan.refuse_emptied(rows.schema, index);
        }
        let (primary_key, hashed) = (new.primary_key(), new.hashed(index));
        match holder(rows, writer.reader(), index, key, primary_key, hashed)? {
            Some(holder) => Err(rows.taken(index, key, hashed, &holder)),
            None => Ok(()),
        }
    })?;
    let Some(plan) = plan else { return Ok(()) };
    if let Some(old) = old {
        check_passed(rows, writer.reader(), plan, old, new)?;
    }
    check_shared(rows.schema, writer.reader(), plan, old, new)
}

/// Checks the length of the keys that `new` shares with other rows in unique indexes. All entries of a key except
/// the first are stored under key ‖ primary key, which must not be too long.
///
/// # Errors
///
/// [`Error::KeyTooLong`](crate::Error::KeyTooLong)
pub(crate) fn check_shared(
    schema: &TableSchema,
    reader: Reader<'_>,
    plan: &MaintenancePlan,
    old: Option<&Image>,
    new: &Image,
) -> Result<()> {
    let own = [Some(new.primary_key()), old.map(Image::primary_key)];
    for index in plan.shared() {
        let source = Source::Index(index);
        for key in new.keys(index) {
            let room = MAX_KEY_LEN.saturating_sub(key.len());
            if schema.fixed_primary_key().is_some_and(|len| len <= room) {
                continue;
            }
            let mut entries = reader.cursor(Query::new(source, KeyRange::beginning_with(key)))?;
            while entries.advance()? {
                let other = entries.entry().primary_key;
                if !own.contains(&Some(other)) {
                    let further = other.max(new.primary_key());
                    if further.len() > room {
                        let (row, len) = (Some(new.primary_key()), key.len() + further.len());
                        return Err(schema.too_long(source, key, row, len));
                    }
                    break;
                }
            }
        }
    }
    Ok(())
}

/// Checks a row whose new primary key is before the positions of builds. The row may already share a key with another
/// row.
fn check_passed(
    rows: &TableRows,
    reader: Reader<'_>,
    plan: &MaintenancePlan,
    old: &Image,
    new: &Image,
) -> Result<()> {
    for index in plan.passed(old.primary_key(), new.primary_key()) {
        let hashed = new.hashed(index);
        for key in new.keys(index) {
            if let Some(holder) = holder(rows, reader, index, key, old.primary_key(), hashed)? {
                return Err(rows.taken(index, key, hashed, &holder));
            }
        }
    }
    Ok(())
}

/// Returns the primary key of a row other than `own` that has this key in a unique index, and the same values in
/// its hashed fields.
#[inline]
pub(crate) fn holder(
    rows: &TableRows,
    reader: Reader<'_>,
    index: usize,
    key: &[u8],
    own: &[u8],
    hashed: &[u8],
) -> Result<Option<Vec<u8>>> {
    if rows.schema.index(Source::Index(index)).is_some_and(IndexSchema::is_hashed) {
        return holder_of_values(rows, reader, index, key, own, hashed);
    }
    let holder = reader.unique(index, key)?.map(|entry| entry.primary_key);
    // A row does not conflict with itself.
    Ok(holder.filter(|holder| !holder.is(own)).map(ShortKey::to_vec))
}

/// Returns the primary key of a row other than `own` with this key and the same values in the hashed fields.
fn holder_of_values(
    rows: &TableRows,
    reader: Reader<'_>,
    index: usize,
    key: &[u8],
    own: &[u8],
    hashed: &[u8],
) -> Result<Option<Vec<u8>>> {
    let source = Source::Index(index);
    let mut values = KeyBuf::new();
    let mut entries = reader.cursor(Query::new(source, KeyRange::beginning_with(key)))?;
    while entries.advance()? {
        let primary_key = entries.entry().primary_key;
        if primary_key == own {
            continue;
        }
        let fact =
            reader.fact(primary_key)?.ok_or_else(|| rows.schema.corrupt(source, key, DANGLING))?;
        values.clear();
        let read = rows.hashed(fact, index, &mut values);
        read.map_err(|error| rows.corrupt(error, primary_key))?;
        if values.as_bytes() == hashed {
            return Ok(Some(primary_key.to_vec()));
        }
    }
    Ok(None)
}
