//! Reading the lists of a table when it is opened.

use crate::{
    engine::{Engine, Read as _, ReadRecords as _, Records, Space},
    model::{
        error::{Error, Result},
        lists::{Found, LISTS, Opened, choose},
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

/// Takes the lists that a data file has, among the records of its catalog.
pub(super) fn find(
    engine: &Engine,
    rows: &TableRows,
    records: &Records,
    is_shard: bool,
) -> Result<()> {
    let name = format!("{}.{LISTS}", rows.schema.name);
    let record = records.iter().find(|(own, _)| *own == name);
    let copy = engine.list_copy(rows.schema.name)?;
    take(rows, record.map(|(_, record)| record.as_slice()), copy.as_deref(), is_shard)
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
    // Engines without files have no second copy, and a file of an earlier release gets one. A reader reads the second copy after
    // the first one, so it can find lists that were recorded meanwhile.
    if let Some(fault) = fault.filter(|fault| second.is_some() && !fault.is_earlier()) {
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
