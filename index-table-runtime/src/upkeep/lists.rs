//! Reading the lists of a table when it is opened.

use crate::{
    engine::{Engine, Read as _, ReadRecords as _, Records, Space, WriteRecords as _},
    model::{
        error::{Error, Result},
        lists::{Found, LISTS, Opened, RELEASES, Releases, choose},
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
    let first = record.map(|(_, record)| record.as_slice());
    let copy = match engine.list_copy(rows.schema.name) {
        // A damaged page is no error if the first copy is intact.
        Err(_) if matches!(choose(first, None), Ok(Some(_))) => None,
        copy => copy?,
    };
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

/// Records that this release of the program has opened the table for writing, with the number of its lists, unless it is recorded.
/// A file that lacks the release gets the smallest number of the files that are open. With an unreadable record, all lists count as
/// later ones, until an upgrade drops unknown fields.
pub(super) fn note_release(rows: &TableRows, writer: &mut Writer<'_, '_>) -> Result<()> {
    let names = rows.names();
    let Some(releases) = Releases::read(writer.reader().record(RELEASES)?) else {
        rows.note_since(0);
        return Ok(());
    };
    if let Some(since) = releases.since(names) {
        rows.note_since(since);
        return Ok(());
    }
    let since = rows.note_since(rows.lists.recorded_len());
    put(writer, releases, names, since)
}

/// Records that this release of the program is later than the first `since` lists: no row has a field of them that it does not
/// know.
pub(super) fn renew_release(
    rows: &TableRows,
    writer: &mut Writer<'_, '_>,
    since: usize,
) -> Result<()> {
    let Some(sharded) = writer.several() else {
        let releases = Releases::read(writer.reader().record(RELEASES)?).unwrap_or_default();
        return put(writer, releases, rows.names(), since);
    };
    for shard in sharded.parts() {
        sharded.part(shard, &mut |writer| renew_release(rows, writer, since))?;
    }
    Ok(())
}

fn put(
    writer: &mut Writer<'_, '_>,
    mut releases: Releases,
    names: u64,
    since: usize,
) -> Result<()> {
    releases.set(names, since);
    writer.put_record(RELEASES, &releases.encode())
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
