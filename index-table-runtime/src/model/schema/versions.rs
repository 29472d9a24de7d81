//! Versions of rows: the declared versions, and the versions that rows in the file may have.
//!
//! The table's record has the current version. In addition, the catalog has a record for each older version
//! that rows may have. The name of this record is the number of the version, and its value is the list of
//! fields.

use serde::{Deserialize, Serialize};

use super::{Comparison, FieldSchema, PreviousRow, RowSchema, TableRecord, TableSchema};
use crate::model::error::{Error, Result};

/// The record of an older version. Its value is postcard's encoding of this struct.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct VersionRecord {
    /// The name in rows and the declared type of each field.
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

impl TableRecord {
    /// Compares the record in a file with the declaration, with the records `older` of the older versions that rows may have. Returns
    /// those that are declared otherwise, too.
    ///
    /// # Errors
    ///
    /// [`Error::SchemaMismatch`] if the rows in the file can't be read with the declaration.
    pub(crate) fn compare_all(
        &self,
        declared: &Self,
        schema: &TableSchema,
        older: &[(u32, Vec<u8>)],
    ) -> Result<(Comparison, Vec<(u32, VersionRecord)>)> {
        let (comparison, mut changed) = (self.compare(declared, schema)?, Vec::new());
        for (version, bytes) in older {
            let record = VersionRecord::decode(schema.name, *version, bytes)?;
            schema.check_older(*version)?;
            if schema.older(*version).is_some_and(|it| record != VersionRecord::of(it.schema)) {
                changed.push((*version, record));
            }
        }
        Ok((comparison.with(declared.changed_by(&changed, schema)), changed))
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

    /// Returns the field of an older version with the same value as a field in the converted row: each version between has the
    /// field with the same type, and none lists it as changed.
    pub(crate) fn kept(&self, version: u32, field: &FieldSchema) -> Option<&'static FieldSchema> {
        let (mut changed, mut older) = (self.changed, self.previous);
        while let Some(PreviousRow { schema: row, .. }) = older
            && row.version >= version
        {
            let is_same = |it: &&FieldSchema| it.name == field.name && it.ty == field.ty;
            let kept = row.fields.iter().find(is_same)?;
            if changed.contains(&field.name) {
                return None;
            }
            if row.version == version {
                return Some(kept);
            }
            (changed, older) = (row.changed, row.previous);
        }
        None
    }

    /// Whether a field with this name in rows keeps its value from rows of an older version, which were written with `recorded`
    /// fields.
    pub(crate) fn keeps(&self, version: u32, name: &str, recorded: &[(String, String)]) -> bool {
        let field = self.fields.iter().find(|field| field.stored == name);
        let kept = field.and_then(|field| self.kept(version, field));
        kept.is_some_and(|kept| {
            recorded.iter().any(|(name, ty)| name == kept.stored && ty == kept.declared)
        })
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
    fields.iter().map(|field| (field.stored.to_owned(), field.declared.to_owned())).collect()
}
