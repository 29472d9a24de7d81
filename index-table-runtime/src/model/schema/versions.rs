//! Versions of rows: the declared versions, and the versions that rows in the file may have.
//!
//! The table's record has the current version. In addition, the catalog has a record for each older version
//! that rows may have. The name of this record is the number of the version, and its value is the list of
//! fields.

use serde::{Deserialize, Serialize};

use super::{FieldSchema, PreviousRow, RowSchema, TableSchema};
use crate::model::error::{Error, Result};

/// The record of an older version. Its value is postcard's encoding of this struct.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct VersionRecord {
    /// The name and the declared type of each field.
    pub(crate) fields: Vec<(String, String)>,
}

impl VersionRecord {
    /// Returns the record of a version of the declaration.
    pub(crate) fn of(schema: &RowSchema) -> Self {
        Self { fields: names_and_types(schema.fields) }
    }

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

    /// Checks that the declaration has an older version.
    ///
    /// # Errors
    ///
    /// [`Error::SchemaMismatch`]
    pub(crate) fn check_older(&self, version: u32) -> Result<()> {
        if self.older(version).is_some() {
            return Ok(());
        }
        Err(Error::SchemaMismatch {
            table: self.name,
            difference: format!(
                "it may have rows of version {version}, and the chain of `previous` from version {} \
                 does not include it",
                self.version
            ),
            way_out: "keep the struct of that version with `#[derive(RowVersion)]` and name it in \
                      `#[table(previous = …)]`, or run `upgrade` with a release that has it",
        })
    }
}

/// Converts fields to their recorded form.
pub(super) fn names_and_types(fields: &[FieldSchema]) -> Vec<(String, String)> {
    fields.iter().map(|field| (field.name.to_owned(), field.declared.to_owned())).collect()
}
