//! Versions of rows: the declared versions, and the versions that rows in the file may have.
//!
//! The table's record has the current version. In addition, the catalog has a record for each older version
//! that rows may have. The name of this record is the number of the version, and its value is the list of
//! fields.

use serde::{Deserialize, Serialize};

use super::{FieldSchema, PreviousRow, TableSchema};
use crate::model::error::{Error, Result};

/// The record of an older version. Its value is postcard's encoding of this struct.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct VersionRecord {
    /// The name and the declared type of each field.
    pub(crate) fields: Vec<(String, String)>,
}

impl VersionRecord {
    pub(crate) fn encode(&self, table: &'static str) -> Result<Vec<u8>> {
        postcard::to_stdvec(self).map_err(|error| Error::Codec { table, reason: error.to_string() })
    }

    pub(crate) fn decode(table: &'static str, version: u32, bytes: &[u8]) -> Result<Self> {
        match postcard::take_from_bytes(bytes) {
            Ok((record, [])) => Ok(record),
            _ => Err(Error::SchemaMismatch {
                table,
                difference: format!("the catalog's record of its version {version} can't be read"),
                way_out: "open it with the release of index-table that wrote it, or a later one",
            }),
        }
    }
}

/// Returns the version of a record in the catalog, if it is the record of a version.
pub(crate) fn version_of(part: &str) -> Option<u32> {
    part.starts_with(|first: char| first.is_ascii_digit()).then(|| part.parse().ok()).flatten()
}

impl PartialEq for PreviousRow {
    fn eq(&self, other: &Self) -> bool {
        self.schema == other.schema
    }
}

impl Eq for PreviousRow {}

impl TableSchema {
    /// Returns the older version with this number.
    pub(crate) fn older(&self, version: u32) -> Option<PreviousRow> {
        let mut older = self.previous;
        while let Some(row) = older
            && row.schema.version != version
        {
            older = row.schema.previous;
        }
        older
    }

    /// Whether a field has the same value in a row of an older version and in the converted row: each version
    /// between has the field with the same type, and none lists it as changed.
    pub(crate) fn keeps(&self, version: u32, name: &str) -> bool {
        let find = |fields: &'static [FieldSchema]| fields.iter().find(|field| field.name == name);
        let Some(current) = find(self.fields) else { return false };
        let (mut changed, mut older) = (self.changed, self.previous);
        while let Some(PreviousRow { schema: row, .. }) = older
            && row.version >= version
        {
            if changed.contains(&name) || find(row.fields).is_none_or(|it| it.ty != current.ty) {
                return false;
            }
            if row.version == version {
                return true;
            }
            (changed, older) = (row.changed, row.previous);
        }
        false
    }

    /// Checks that rows of an older version can be read with the declaration.
    ///
    /// # Errors
    ///
    /// [`Error::SchemaMismatch`] if the version is not declared, or is declared with other fields.
    pub(crate) fn check_older(&self, version: u32, fields: &[(String, String)]) -> Result<()> {
        let (table, current) = (self.name, self.version);
        let mismatch =
            |difference, way_out| Err(Error::SchemaMismatch { table, difference, way_out });
        let Some(row) = self.older(version) else {
            return mismatch(
                format!(
                    "it may have rows of version {version}, and the chain of `previous` from version \
                     {current} does not include it"
                ),
                "keep the struct of that version with `#[derive(RowVersion)]` and name it in \
                 `#[table(previous = …)]`, or run `upgrade` with a release that has it",
            );
        };
        match first_difference(fields, &names_and_types(row.schema.fields)) {
            Some(difference) => mismatch(
                format!("in version {version}, {difference}"),
                "declare the struct of that version as it was when the rows were written",
            ),
            None => Ok(()),
        }
    }
}

/// Converts fields to their recorded form.
pub(super) fn names_and_types(fields: &[FieldSchema]) -> Vec<(String, String)> {
    fields.iter().map(|field| (field.name.to_owned(), field.declared.to_owned())).collect()
}

pub(super) fn first_difference(
    file: &[(String, String)],
    code: &[(String, String)],
) -> Option<String> {
    let show = |field: Option<&(String, String)>| {
        field.map_or("missing".to_owned(), |(name, declared)| format!("`{name}: {declared}`"))
    };
    (0..file.len().max(code.len()))
        .map(|position| (position, file.get(position), code.get(position)))
        .find(|(_, file, code)| file != code)
        .map(|(position, file, code)| {
            format!(
                "field {} of its rows is {} in the file and {} in the code",
                position + 1,
                show(file),
                show(code)
            )
        })
}
