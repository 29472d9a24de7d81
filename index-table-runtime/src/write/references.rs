//! The checks of references, before a row changes.

use crate::{
    engine::{Cursor as _, Query, Read as _, ReadRecords as _, Space},
    model::{
        KeyRange,
        error::{Error, Result},
        index_state::IndexState,
        maintain::Image,
        reference::{ReferenceSchema, Referrer},
        row_vtable::TableRows,
        schema::{Source, StateRecord},
    },
    placement::{Reader, Writer},
};

/// Checks that the rows to which `new` refers exist. References that `old` has as well are not checked.
///
/// # Errors
///
/// [`Error::MissingReference`]
#[inline]
pub(crate) fn check(
    rows: &TableRows,
    writer: &Writer<'_, '_>,
    old: Option<&Image>,
    new: &Image,
) -> Result<()> {
    if rows.references.is_empty() {
        return Ok(());
    }
    check_all(rows, writer.reader(), old, new)
}

#[inline(never)]
fn check_all(rows: &TableRows, reader: Reader<'_>, old: Option<&Image>, new: &Image) -> Result<()> {
    let own = reader.of_row(new.primary_key())?;
    for (at, key) in of_row(rows, new) {
        let position = rows.first_reference() + at;
        let is_own = is_own(rows, at);
        if is_own && key == new.primary_key() {
            continue;
        }
        if old.is_some_and(|old| {
            old.group(position).0 == key && !(is_own && key == old.primary_key())
        }) {
            continue;
        }
        // A row whose primary key changes is no longer found by its former primary key.
        let is_former = is_own && old.is_some_and(|old| key == old.primary_key());
        if is_former || !exists(rows, (reader, own), at, key)? {
            return Err(missing(rows, at, key, new.primary_key())?);
        }
    }
    Ok(())
}

/// Whether the row to which the reference at this position refers exists. `own` is the reader of the shard of the referring
/// row.
fn exists(
    rows: &TableRows,
    (reader, own): (Reader<'_>, Reader<'_>),
    at: usize,
    key: &[u8],
) -> Result<bool> {
    if is_to_main_row(rows, at)
        && let Some(exists) = reader.has_main_row(key)?
    {
        return Ok(exists);
    }
    Ok(own.get(Space::Referred(at), key)?.is_some())
}

/// Whether the reference at this position is that of a part to its main row.
fn is_to_main_row(rows: &TableRows, at: usize) -> bool {
    rows.references.get(at).is_some_and(ReferenceSchema::is_to_main_row)
}

/// Whether the reference at this position is to a row of the same table.
fn is_own(rows: &TableRows, at: usize) -> bool {
    rows.references.get(at).is_some_and(|reference| reference.to.name == rows.schema.name)
}

/// Returns the primary keys of the rows to which a row refers, with the positions of the references.
fn of_row<'i>(rows: &TableRows, image: &'i Image) -> impl Iterator<Item = (usize, &'i [u8])> {
    let first = rows.first_reference();
    let keys = (0..rows.references.len()).map(move |at| (at, image.group(first + at).0));
    // An absent reference has no key.
    keys.filter(|(_, key)| !key.is_empty())
}

/// Returns the error for a reference to a row that doesn't exist.
#[cold]
fn missing(rows: &TableRows, at: usize, key: &[u8], primary_key: &[u8]) -> Result<Error> {
    let reference = rows.references.get(at);
    let reference = reference.ok_or_else(|| Error::internal("there is no such reference"))?;
    Ok(Error::MissingReference {
        table: rows.schema.name,
        key: rows.schema.show_primary_key(primary_key),
        reference: reference.name,
        to: reference.to.name,
        referred: reference.to.show_primary_key(key),
    })
}

/// Returns an error for each missing row to which a stored row refers in its shard. With `skip_main_row`, the main row of a part
/// may be in another shard, and is not looked up.
pub(crate) fn orphaned(
    rows: &TableRows,
    reader: Reader<'_>,
    image: &Image,
    skip_main_row: bool,
) -> Result<Vec<Error>> {
    let mut errors = Vec::new();
    let own = reader.of_row(image.primary_key())?;
    for (at, key) in
        of_row(rows, image).filter(|(at, _)| !(skip_main_row && is_to_main_row(rows, *at)))
    {
        if own.get(Space::Referred(at), key)?.is_none() {
            errors.push(missing(rows, at, key, image.primary_key())?);
        }
    }
    Ok(errors)
}

/// Returns the error for a part without a main row, if the main rows are in other shards.
pub(crate) fn without_main_row(
    rows: &TableRows,
    reader: Reader<'_>,
    image: &Image,
) -> Result<Option<Error>> {
    let Some(at) = rows.references.iter().position(ReferenceSchema::is_to_main_row) else {
        return Ok(None);
    };
    let key = image.primary_key();
    match reader.has_main_row(key) {
        // No shard has the keys of the main row.
        Ok(Some(false)) | Err(Error::NoShard { .. }) => missing(rows, at, key, key).map(Some),
        found => found.map(|_| None),
    }
}

/// Checks the references of a loaded row to rows of the same table, which must be stored.
///
/// # Errors
///
/// [`Error::MissingReference`]
pub(crate) fn check_own(rows: &TableRows, reader: Reader<'_>, image: &Image) -> Result<()> {
    let reader = reader.of_row(image.primary_key())?;
    for (at, key) in of_row(rows, image).filter(|(at, _)| is_own(rows, *at)) {
        if reader.get(Space::Referred(at), key)?.is_none() {
            return Err(missing(rows, at, key, image.primary_key())?);
        }
    }
    Ok(())
}

/// Checks the references of a row of a load, except references to the same table: these rows may be in the load as
/// well.
///
/// # Errors
///
/// [`Error::MissingReference`]
pub(crate) fn check_others(rows: &TableRows, reader: Reader<'_>, image: &Image) -> Result<()> {
    let own = reader.of_row(image.primary_key())?;
    for (at, key) in of_row(rows, image).filter(|(at, _)| !is_own(rows, *at)) {
        if !exists(rows, (reader, own), at, key)? {
            return Err(missing(rows, at, key, image.primary_key())?);
        }
    }
    Ok(())
}

/// Whether the table refers to itself.
pub(crate) fn has_own(rows: &TableRows) -> bool {
    (0..rows.references.len()).any(|at| is_own(rows, at))
}

/// The rows that refer to a row that is about to be deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Referring {
    /// No rows.
    Nothing,
    /// Rows that are deleted with it.
    Cascade,
}

/// Checks that no row refers to the row with this primary key, except rows that are deleted with it.
///
/// # Errors
///
/// [`Error::Referenced`], and [`Error::IndexNotReadable`] while the index of a reference is not built.
#[inline]
pub(crate) fn check_delete(reader: Reader<'_>, primary_key: &[u8]) -> Result<Referring> {
    let referring = match reader.of_row(primary_key)?.referrer(0) {
        None => Referring::Nothing,
        Some(_) => check_referrers(reader, primary_key)?,
    };
    match referring {
        Referring::Nothing if reader.placed_part(primary_key)?.is_some() => Ok(Referring::Cascade),
        referring => Ok(referring),
    }
}

#[inline(never)]
fn check_referrers(reader: Reader<'_>, primary_key: &[u8]) -> Result<Referring> {
    let mut referring = Referring::Nothing;
    for reader in reader.in_shards_of(primary_key)? {
        for by in referrers(reader) {
            let (at, by) = by?;
            if !has_rows(reader, at, by, primary_key)? {
                continue;
            }
            if by.cascade.is_none() {
                return Err(referenced(reader, by, primary_key));
            }
            referring = Referring::Cascade;
        }
    }
    Ok(referring)
}

/// Checks that no row refers to the row with this primary key, which is about to change.
///
/// # Errors
///
/// The errors of [`check_delete`]. References with `cascade` are errors as well.
pub(crate) fn check_rename(reader: Reader<'_>, primary_key: &[u8]) -> Result<()> {
    for reader in reader.in_shards_of(primary_key)? {
        for by in referrers(reader) {
            let (at, by) = by?;
            if has_rows(reader, at, by, primary_key)? {
                return Err(referenced(reader, by, primary_key));
            }
        }
    }
    match reader.placed_part(primary_key)? {
        Some(by) => Err(referenced(reader, &by, primary_key)),
        None => Ok(()),
    }
}

/// Returns the declared references to the table, with their positions. The reader is that of one shard.
pub(crate) fn referrers(reader: Reader<'_>) -> impl Iterator<Item = Result<(usize, &Referrer)>> {
    let all = (0..).map_while(move |at| Some((at, reader.referrer(at)?)));
    all.filter_map(move |(at, by)| match reader.record(&by.part()) {
        // A reference that is no longer declared has no record, or a different record.
        Ok(record) => {
            record.is_some_and(|record| by.is_recorded_as(record)).then_some(Ok((at, by)))
        }
        Err(error) => Some(Err(error)),
    })
}

/// Whether rows refer to the row with this primary key, by this reference.
///
/// # Errors
///
/// The errors of [`check_delete`].
pub(crate) fn has_rows_of(reader: Reader<'_>, by: &Referrer, primary_key: &[u8]) -> Result<bool> {
    for found in referrers(reader) {
        let (at, found) = found?;
        if found == by {
            return has_rows(reader, at, by, primary_key);
        }
    }
    Ok(false)
}

/// Whether rows refer to the row with this primary key. A reference of the row to itself does not count.
fn has_rows(reader: Reader<'_>, at: usize, by: &Referrer, primary_key: &[u8]) -> Result<bool> {
    let state = reader.get(Space::CatalogOf(by.table), by.index.as_bytes())?;
    if let Some(state) = state.filter(|_| !by.index.is_empty()) {
        let unreadable = || StateRecord::unreadable(by.table, by.index);
        let state = StateRecord::decode(state).ok_or_else(unreadable)?;
        // A violated index has the entries of all rows.
        if !matches!(state, StateRecord::Violated(_)) {
            let (table, index) = (by.table, by.index);
            let state = IndexState::from(state);
            return Err(Error::IndexNotReadable { table, index, state });
        }
    }
    let (schema, prefix) = (reader.table(), by.prefix(primary_key));
    if by.table == schema.name {
        let index = schema.indexes.iter().position(|index| index.name == by.index);
        let index = index.ok_or_else(|| Error::internal("a reference without its index"))?;
        let bounds = KeyRange::beginning_with(&prefix);
        let query = Query { limit: Some(2), ..Query::new(Source::Index(index), bounds) };
        let mut rows = reader.cursor(query)?;
        while rows.advance()? {
            if rows.entry().primary_key != primary_key {
                return Ok(true);
            }
        }
        return Ok(false);
    }
    let found = reader.at_or_above(Space::Referring(at), &prefix)?;
    Ok(found.is_some_and(|(key, _)| key.starts_with(&prefix)))
}

#[cold]
fn referenced(reader: Reader<'_>, by: &Referrer, primary_key: &[u8]) -> Error {
    let schema = reader.table();
    Error::Referenced {
        table: schema.name,
        key: schema.show_primary_key(primary_key),
        by: by.table,
        reference: by.reference,
    }
}
