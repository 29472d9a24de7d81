//! Reading the lists of a table when it is opened.

use crate::{
    engine::{ReadRecords as _, Records},
    model::{
        error::{Error, Result},
        lists::{LISTS, Opened, decode},
        row_vtable::TableRows,
    },
    placement::Writer,
};

/// Takes the lists that a data file has.
pub(super) fn open(rows: &TableRows, writer: &Writer<'_, '_>, is_shard: bool) -> Result<()> {
    take(rows, writer.reader().record(LISTS)?, is_shard)?;
    if rows.lists.settle()? { Ok(()) } else { Err(contradicted(rows.schema.name)) }
}

/// Takes the lists that a data file has, among the records of its catalog.
pub(super) fn find(rows: &TableRows, records: &Records, is_shard: bool) -> Result<()> {
    let name = format!("{}.{LISTS}", rows.schema.name);
    let record = records.iter().find(|(own, _)| *own == name);
    take(rows, record.map(|(_, record)| record.as_slice()), is_shard)
}

fn take(rows: &TableRows, record: Option<&[u8]>, is_shard: bool) -> Result<()> {
    let Some(record) = record else { return Ok(()) };
    let table = rows.schema.name;
    let Some(catalog) = decode(record) else {
        return Err(Error::Corrupt {
            table,
            index: None,
            key: "of the lists of its rows".to_owned(),
            reason: "the record in the catalog is damaged".to_owned(),
        });
    };
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
