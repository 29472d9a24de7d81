//! Reading and recording the lists of a table when it is opened.

use crate::{
    engine::{ReadRecords as _, Records, WriteRecords as _},
    model::{
        error::{Error, Result},
        lists::{LISTS, Opened, decode},
        row_vtable::TableRows,
    },
    placement::Writer,
};

/// Takes the lists that a data file has. A shard gets the current lists of the store. Returns the version that the file has
/// then.
pub(super) fn open(rows: &TableRows, writer: &mut Writer<'_, '_>, is_shard: bool) -> Result<u64> {
    let record = writer.reader().record(LISTS)?.map(<[u8]>::to_vec);
    let version = take(rows, record.as_deref(), is_shard)?;
    if !is_shard || version == rows.lists.version() {
        return Ok(version);
    }
    let (version, record) = rows.lists.record();
    writer.put_record(LISTS, &record)?;
    Ok(version)
}

/// Takes the lists that a data file has, among the records of its catalog.
pub(super) fn find(rows: &TableRows, records: &Records, is_shard: bool) -> Result<u64> {
    let name = format!("{}.{LISTS}", rows.schema.name);
    let record = records.iter().find(|(own, _)| *own == name);
    take(rows, record.map(|(_, record)| record.as_slice()), is_shard)
}

fn take(rows: &TableRows, record: Option<&[u8]>, is_shard: bool) -> Result<u64> {
    let Some(record) = record else { return Ok(0) };
    let table = rows.schema.name;
    let Some(catalog) = decode(record) else {
        return Err(Error::Corrupt {
            table,
            index: None,
            key: "of the lists of its rows".to_owned(),
            reason: "the record in the catalog is damaged".to_owned(),
        });
    };
    let version = catalog.version();
    match rows.lists.open(catalog, is_shard) {
        Opened::Taken => Ok(version),
        Opened::Contradicted => Err(Error::SchemaMismatch {
            table,
            difference: "a data file has other lists of the fields of its rows than the store"
                .to_owned(),
            way_out: "load its rows from a dump of that data file",
        }),
    }
}
