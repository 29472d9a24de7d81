//! The older row versions of a table that the catalog records.

use crate::{
    engine::{ReadRecords as _, WriteRecords as _},
    model::{
        error::Result,
        schema::{TableRecord, TableSchema, VersionRecord, version_of},
    },
    placement::{Reader, Writer},
};

/// Returns the older versions that rows may have.
pub(crate) fn recorded(reader: Reader<'_>) -> Result<Vec<u32>> {
    let parts = reader.recorded_parts()?;
    Ok(parts.iter().filter_map(|part| version_of(part)).collect())
}

/// Checks that the declaration reads all recorded versions.
pub(crate) fn check(schema: &TableSchema, reader: Reader<'_>) -> Result<()> {
    for version in recorded(reader)? {
        if let Some(bytes) = reader.record(&version.to_string())? {
            VersionRecord::decode(schema.name, version, bytes)?;
        }
        schema.check_older(version)?;
    }
    Ok(())
}

/// Records the version in the file as an older version if the declaration has a later one.
pub(crate) fn keep(
    table: &'static str,
    file: &TableRecord,
    declared: &TableRecord,
    writer: &mut Writer<'_, '_>,
) -> Result<()> {
    let Some((version, record)) = file.outdated_by(declared) else { return Ok(()) };
    writer.put_record(&version.to_string(), &record.encode(table)?)
}

/// Records that there are no rows of older versions.
pub(crate) fn forget(writer: &mut Writer<'_, '_>) -> Result<()> {
    for version in recorded(writer.reader())? {
        writer.remove_record(&version.to_string())?;
    }
    Ok(())
}
