//! The checks of references, before a row changes.

use crate::{
    engine::{Read as _, ReadRecords as _, Reader, Space, Writer},
    model::{
        error::{Error, Result},
        maintain::Image,
        row_vtable::RowVtable,
        schema::{IndexState, StateRecord},
    },
};

/// Checks that the rows exist to which `new` refers. References that `old` has too are not checked.
///
/// # Errors
///
/// [`Error::MissingReference`]
#[inline]
pub(crate) fn check(
    rows: &RowVtable,
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
fn check_all(rows: &RowVtable, reader: Reader<'_>, old: Option<&Image>, new: &Image) -> Result<()> {
    for (at, key) in of_row(rows, new) {
        let position = rows.first_reference() + at;
        if old.is_some_and(|old| old.group(position).0 == key) {
            continue;
        }
        if let Some(error) = missing(rows, reader, at, key, new.primary_key())? {
            return Err(error);
        }
    }
    Ok(())
}

/// Returns the primary keys of the rows to which a row refers, with the positions of the references.
fn of_row<'i>(rows: &RowVtable, image: &'i Image) -> impl Iterator<Item = (usize, &'i [u8])> {
    let first = rows.first_reference();
    let keys = (0..rows.references.len()).map(move |at| (at, image.group(first + at).0));
    // An absent reference has no key.
    keys.filter(|(_, key)| !key.is_empty())
}

/// Returns the error if there is no row with the primary key `key` in the table of the reference.
fn missing(
    rows: &RowVtable,
    reader: Reader<'_>,
    at: usize,
    key: &[u8],
    primary_key: &[u8],
) -> Result<Option<Error>> {
    if reader.get(Space::Referred(at), key)?.is_some() {
        return Ok(None);
    }
    let reference = rows.references.get(at);
    let reference = reference.ok_or_else(|| Error::internal("there is no such reference"))?;
    Ok(Some(Error::MissingReference {
        table: rows.schema.name,
        key: rows.schema.show_primary_key(primary_key),
        reference: reference.name,
        to: reference.to.name,
        referred: reference.to.show_primary_key(key),
    }))
}

/// Returns the errors for the rows that are missing, and to which a stored row refers.
pub(crate) fn orphaned(rows: &RowVtable, reader: Reader<'_>, image: &Image) -> Result<Vec<Error>> {
    let found = of_row(rows, image)
        .map(|(at, key)| missing(rows, reader, at, key, image.primary_key()).transpose());
    found.flatten().collect()
}

/// Checks that no row refers to the row with this primary key, which is about to be deleted.
///
/// # Errors
///
/// [`Error::Referenced`], and [`Error::IndexNotReadable`] while the index of a reference is not built.
#[inline]
pub(crate) fn restrict(
    rows: &RowVtable,
    writer: &Writer<'_, '_>,
    primary_key: &[u8],
) -> Result<()> {
    let reader = writer.reader();
    if reader.referrer(0).is_none() {
        return Ok(());
    }
    restrict_all(rows, reader, primary_key)
}

#[inline(never)]
fn restrict_all(rows: &RowVtable, reader: Reader<'_>, primary_key: &[u8]) -> Result<()> {
    for (at, by) in (0..).map_while(|at| Some((at, reader.referrer(at)?))) {
        // A reference that is no longer declared has no record.
        if reader.record(&by.part())?.is_none() {
            continue;
        }
        if let Some(state) = reader.get(Space::CatalogOf(by.table), by.index.as_bytes())? {
            let unreadable = || StateRecord::unreadable(by.table, by.index);
            let state = StateRecord::decode(state).ok_or_else(unreadable)?;
            // A violated index has the entries of all rows.
            if !matches!(state, StateRecord::Violated(_)) {
                let (table, index) = (by.table, by.index);
                let state = IndexState::of(state);
                return Err(Error::IndexNotReadable { table, index, state });
            }
        }
        let prefix = by.prefix(primary_key);
        let found = reader.at_or_above(Space::Referring(at), &prefix)?;
        if found.is_some_and(|(key, _)| key.starts_with(&prefix)) {
            return Err(Error::Referenced {
                table: rows.schema.name,
                key: rows.schema.show_primary_key(primary_key),
                by: by.table,
                reference: by.reference,
            });
        }
    }
    Ok(())
}
