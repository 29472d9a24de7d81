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

/// Returns the records of the older versions.
pub(crate) fn records(reader: Reader<'_>) -> Result<Vec<(u32, Vec<u8>)>> {
    let mut records = Vec::new();
    for version in recorded(reader)? {
        if let Some(bytes) = reader.record(&version.to_string())? {
            records.push((version, bytes.to_vec()));
        }
    }
    Ok(records)
}

/// Records the version in the file as an older version if the declaration has a later one, and what the declaration has in the
/// `changed` versions.
pub(crate) fn keep(
    schema: &TableSchema,
    (file, declared): (&TableRecord, &TableRecord),
    changed: &[(u32, VersionRecord)],
    writer: &mut Writer<'_, '_>,
) -> Result<()> {
    let outdated = file.outdated_by(declared).map(|(version, _)| version);
    for version in changed.iter().map(|(version, _)| *version).chain(outdated) {
        let Some(older) = schema.older(version) else { continue };
        let record = VersionRecord::of(older.schema).encode(schema.name)?;
        writer.put_record(&version.to_string(), &record)?;
    }
    Ok(())
}

/// Records that there are no rows of older versions.
pub(crate) fn forget(writer: &mut Writer<'_, '_>) -> Result<()> {
    for version in recorded(writer.reader())? {
        writer.remove_record(&version.to_string())?;
    }
    Ok(())
}
