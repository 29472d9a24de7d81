//! Whether the rows in a data file can be read with a declaration that has changed.
//!
//! A row has the names of its fields, so the struct can get, lose and rename fields without a version of the table. Fields that
//! the struct can't do without, such as one without a default that rows lack, are found when the table is opened, before anything
//! is written, and so are conversions from older versions that always fail: then no row with one list can be read, nor any
//! with an earlier list. If rows with an earlier list can be read, a later
//! release has written the others. They, damaged rows and pages, and rows with a variant that the type doesn't know are errors
//! of their own when they are read.

use std::{
    collections::{BTreeMap, BTreeSet},
    iter, ptr,
};

use index_table_rows::Reason;

use crate::{
    engine::{Cursor as _, Engine, Query, Read as _, Records},
    locks::{Mutex, OfProcess},
    model::{
        KeyRange,
        error::{Error, Result},
        key::DecodeError,
        row,
        row_vtable::TableRows,
        schema::{Parts, Source, TableRecord, TableSchema, VersionRecord, version_of},
    },
    placement::Reader,
    store::Store,
};

/// The number of rows that are read from each end of a table. All rows of a table with at most twice as many are read.
const ROWS: u64 = 2_048;

/// The maximum size of the rows that are read from each end, in bytes.
const BYTES: usize = 16 << 20;

const WAY_OUT: &str = "give a field that rows lack `#[serde(default)]`, and one with another name or a variant with another name \
                       `#[serde(alias = …)]`; if the meaning has changed, give the struct the next `version`, and the struct \
                       that the file has as its `previous`";

/// Reads a row with this primary key. Returns false for damaged bytes, and the error for a row that its type can't read.
pub(super) type Read<'f> = dyn Fn(&[u8], &[u8]) -> Result<bool> + 'f;

/// The schemas of the facts of tables. They are never dropped, so each is made once.
static FACTS: OfProcess<Mutex<BTreeMap<(usize, &str), &'static TableSchema>>> =
    OfProcess::new(Mutex::default);

/// Returns the schema of a table without its indexes, by its name or a former one.
pub(super) fn facts(schema: &'static TableSchema, name: &'static str) -> &'static TableSchema {
    let mut known = FACTS.lock();
    let TableSchema { was, version, fields, previous, changed, primary_key, .. } = *schema;
    known.entry((ptr::from_ref(schema).addr(), name)).or_insert_with(|| {
        let records = TableSchema::of_records(name, primary_key);
        Box::leak(Box::new(TableSchema { was, version, fields, previous, changed, ..records }))
    })
}

/// Reads rows of a table that is about to be opened, in a transaction of its own: in LMDB, a damaged page ends the transaction that
/// reads it.
///
/// # Errors
///
/// As for [`check`].
pub(super) fn check_stored(store: &Store, engine: &Engine, rows: &TableRows) -> Result<()> {
    let schema = rows.schema;
    let mut names = iter::once(&schema.name).chain(schema.was);
    names.try_for_each(|name| check_named(store, engine, rows, name))
}

/// Reads rows of a table that may have this former name.
///
/// # Errors
///
/// As for [`check`].
pub(super) fn check_named(
    store: &Store,
    engine: &Engine,
    rows: &TableRows,
    name: &'static str,
) -> Result<()> {
    // Without a slot for another reader, unreadable rows are errors of their own.
    let Ok(records) = engine.all_records() else { return Ok(()) };
    if !rows.has_rows() || is_declared(rows.schema, name, &records) {
        return Ok(());
    }
    let parts = Parts { aggregates: &[], has_changes: false, references: &[] };
    let Some(tables) = engine.find_table(facts(rows.schema, name), parts)? else { return Ok(()) };
    let Ok(txn) = engine.read() else { return Ok(()) };
    let Some(reader) = txn.reader(&tables) else { return Ok(()) };
    let of_former =
        if name == rows.schema.name { None } else { Some(store.rows_of_former(rows, name)?) };
    let rows = of_former.as_ref().unwrap_or(rows);
    let read = |primary_key: &[u8], row: &[u8]| match rows.read(row) {
        Ok(()) => Ok(true),
        Err(error) if is_damage(&error) => Ok(false),
        Err(error) => Err(unreadable(rows, primary_key, error)),
    };
    check(&read, Reader::One(reader))
}

/// Whether a table has the declared fields, also in its older versions.
pub(super) fn is_declared(schema: &TableSchema, name: &str, records: &Records) -> bool {
    records.iter().all(|(of, record)| {
        let Some(part) = of.strip_prefix(name) else { return true };
        match part.strip_prefix('.') {
            None if part.is_empty() => {
                TableRecord::read(record).is_ok_and(|it| it.has_rows_of(schema))
            }
            None => true,
            Some(part) => {
                let Some(version) = version_of(part) else { return true };
                let older = schema.older(version).map(|older| VersionRecord::of(older.schema));
                VersionRecord::decode(schema.name, version, record).ok() == older
            }
        }
    })
}

/// Reads rows from both ends of a table.
///
/// # Errors
///
/// [`Error::SchemaMismatch`] if its type can't read any row of a list, and [`Error::Conversion`] if none can be converted.
pub(super) fn check(read: &Read<'_>, reader: Reader<'_>) -> Result<()> {
    let mut found = Found::default();
    // A damaged page is the error of the rows in it.
    if let Ok(Some(last)) = check_end(read, reader, false, None, &mut found) {
        let _ = check_end(read, reader, true, Some(&last), &mut found);
    }
    let Found { readable, unreadable } = found;
    let is_first = |list: &(u32, u32)| readable.range((list.0, 0)..=*list).next().is_none();
    match unreadable.into_iter().find(|(list, _)| is_first(list)) {
        None => Ok(()),
        Some((_, error)) => Err(error),
    }
}

/// The lists of the rows that were read, with the versions of the rows.
#[derive(Default)]
struct Found {
    readable: BTreeSet<(u32, u32)>,
    /// The error of the first row of each list that the struct can't read.
    unreadable: BTreeMap<(u32, u32), Error>,
}

impl Found {
    fn add(&mut self, read: &Read<'_>, primary_key: &[u8], row: &[u8]) {
        let Ok(list) = row::list(row) else { return };
        match read(primary_key, row) {
            Ok(true) => drop(self.readable.insert(list)),
            Ok(false) => {}
            Err(error) => drop(self.unreadable.entry(list).or_insert(error)),
        }
    }
}

/// Reads rows from one end of a table, in ascending or descending order, up to the primary key `until`. Returns the primary key of
/// the last of them if there are more rows.
fn check_end(
    read: &Read<'_>,
    reader: Reader<'_>,
    reverse: bool,
    until: Option<&[u8]>,
    found: &mut Found,
) -> Result<Option<Vec<u8>>> {
    let mut facts = reader.cursor(Query { reverse, ..Query::new(Source::Facts, KeyRange::ALL) })?;
    let (mut count, mut bytes) = (0, 0);
    while facts.advance()? {
        let fact = facts.entry();
        if until == Some(fact.primary_key) {
            return Ok(None);
        }
        found.add(read, fact.primary_key, fact.data);
        (count, bytes) = (count + 1, bytes + fact.data.len());
        if count == ROWS || bytes >= BYTES {
            return Ok(Some(fact.primary_key.to_vec()));
        }
    }
    Ok(None)
}

/// Whether the bytes are damaged, as opposed to a row that its type can't read.
fn is_damage(error: &DecodeError) -> bool {
    match error {
        DecodeError::Fields(error) => !matches!(error.reason(), Reason::Serde(_)),
        DecodeError::Missing(_) | DecodeError::Unconvertible { .. } => false,
        _ => true,
    }
}

#[cold]
fn unreadable(rows: &TableRows, primary_key: &[u8], error: DecodeError) -> Error {
    if matches!(error, DecodeError::Unconvertible { .. }) {
        return rows.schema.corrupt(Source::Facts, primary_key, error);
    }
    unreadable_row(rows.schema, primary_key, &error.to_string())
}

/// Returns the error for a row that the declaration can't read.
#[cold]
pub(super) fn unreadable_row(schema: &TableSchema, primary_key: &[u8], reason: &str) -> Error {
    let key = schema.show_primary_key(primary_key);
    Error::SchemaMismatch {
        table: schema.name,
        difference: format!("the row with primary key {key} can't be read: {reason}"),
        way_out: WAY_OUT,
    }
}
