//! Reading the lists of a table when it is opened.

use crate::{
    engine::{Engine, Read as _, ReadRecords as _, Records, Space},
    model::{
        error::{Error, Result},
        lists::{Found, LISTS, Opened, choose, decode},
        row_vtable::TableRows,
    },
    placement::Writer,
    usage::trace::damaged_lists,
};

/// Takes the lists that a data file has.
pub(super) fn open(rows: &TableRows, writer: &Writer<'_, '_>, is_shard: bool) -> Result<()> {
    let reader = writer.reader();
    let copy = reader.get(Space::ListCopies, rows.schema.name.as_bytes())?;
    take(rows, reader.record(LISTS)?, copy, is_shard)?;
    if rows.lists.settle()? { Ok(()) } else { Err(contradicted(rows.schema.name)) }
}

/// Takes the lists that a data file has, among the records of its catalog. Reads the second copy of the record if the first one
/// can't be used.
pub(super) fn find(
    engine: &Engine,
    rows: &TableRows,
    records: &Records,
    is_shard: bool,
) -> Result<()> {
    let name = format!("{}.{LISTS}", rows.schema.name);
    let record = records.iter().find(|(own, _)| *own == name);
    let first = record.map(|(_, record)| record.as_slice());
    let is_intact = first.is_some_and(|first| decode(first).is_some());
    let copy = if is_intact { None } else { engine.list_copy(rows.schema.name)? };
    take(rows, first, copy.as_deref(), is_shard)
}

fn take(
    rows: &TableRows,
    first: Option<&[u8]>,
    second: Option<&[u8]>,
    is_shard: bool,
) -> Result<()> {
    let table = rows.schema.name;
    let found = choose(first, second).map_err(|unusable| unusable.error(table))?;
    let Some(Found { catalog, fault, .. }) = found else { return Ok(()) };
    // Engines without files have no second copy, and a file of an earlier release gets one.
    if let Some(fault) = fault.filter(|_| second.is_some()) {
        damaged_lists(table, &fault);
    }
    match rows.lists.open(catalog, is_shard) {
        Opened::Taken => Ok(()),
        Opened::Contradicted => Err(contradicted(table)),
    }
}

#[cold]
fn contradicted(table: &'static str) -> Error {
    Error::SchemaMismatch {
        table,
        difference: "a data file has other lists of the fields of its rows than the store"
            .to_owned(),
        way_out: "load its rows from a dump of that data file",
    }
}
