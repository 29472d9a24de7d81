//! What the record of a table relies on: each client that writes the table maintains all of it.
//!
//! Clients of several releases of a program can have a table open at the same time, each with its own declaration. The record in
//! the catalog decides what each of them does, whatever it declares itself:
//!
//! | index, aggregate | client that declares it | client that doesn't |
//! |---|---|---|
//! | in the record | maintains and reads it | may not write the table |
//! | not in the record | neither maintains nor reads it | |
//!
//! References and the change stream are of the same kind, but a client that declares them may not write without them.

use super::{IndexRecord, TableRecord, catalog::all_fit};
use crate::model::{key::hash, reference::MARK};

/// What prevents a client from writing a table.
#[derive(Debug, PartialEq)]
pub(crate) enum Unmaintained<'r> {
    /// The record has this part, which the client does not declare.
    Other(&'r IndexRecord),
    /// The client declares this reference or change stream, which the record lacks.
    Gone(&'r IndexRecord),
}

impl TableRecord {
    /// Whether rows of `own`, the declaration of a client, have the version and the primary key of this record.
    pub(crate) fn is_of_rows_of(&self, own: &Self) -> bool {
        let (file, own_key) = (&self.primary_key, &own.primary_key);
        self.version == own.version && (all_fit(file, own_key) || all_fit(own_key, file))
    }

    /// Returns the positions of the indexes and aggregates of `own`, the declaration of a client, that this record lacks.
    pub(crate) fn lacking(&self, own: &Self) -> Vec<usize> {
        let has_state = |index: &IndexRecord| index.is_index() || index.is_aggregate();
        let declared = own.indexes.iter().enumerate().filter(|(_, index)| has_state(index));
        let lacking = declared.filter(|(position, _)| !self.has_index_of(own, *position));
        lacking.map(|(position, _)| position).collect()
    }

    /// Returns the record without the indexes and aggregates at these positions.
    pub(crate) fn omitting(&self, positions: &[usize]) -> Self {
        let indexes = self.indexes.iter().enumerate();
        let kept = indexes.filter(|(position, _)| !positions.contains(position));
        Self {
            format: self.format,
            version: self.version,
            fields: self.fields.clone(),
            primary_key: self.primary_key.clone(),
            indexes: kept.map(|(_, index)| index.clone()).collect(),
            changes: self.changes,
        }
    }

    /// Returns what prevents a client with the declaration `own` from writing the table.
    pub(crate) fn unmaintained_by<'r>(&'r self, own: &'r Self) -> Option<Unmaintained<'r>> {
        let is_maintained = |index: &&IndexRecord| {
            own.indexes.iter().any(|declared| {
                index.fits(declared)
                    && index.options == declared.options
                    && self.has_same_fields(declared, own)
            })
        };
        if let Some(other) = self.indexes.iter().find(|index| !is_maintained(index)) {
            return Some(Unmaintained::Other(other));
        }
        self.gone(own).map(Unmaintained::Gone)
    }

    /// Returns the reference or change stream of `own`, the declaration of a client, that this record lacks.
    pub(crate) fn gone<'r>(&self, own: &'r Self) -> Option<&'r IndexRecord> {
        let has = |declared: &IndexRecord| self.indexes.iter().any(|it| it.fits(declared));
        let is_gone = |declared: &&IndexRecord| {
            !declared.is_index() && !declared.is_aggregate() && !has(declared)
        };
        own.indexes.iter().find(is_gone)
    }
}

impl TableRecord {
    /// Returns a hash of the declaration of each index and aggregate, with the types of the fields on which its entries depend.
    pub(crate) fn hashes(&self) -> Vec<u64> {
        let has_state = |index: &&IndexRecord| index.is_index() || index.is_aggregate();
        self.indexes.iter().filter(has_state).map(|index| self.hash_of(index)).collect()
    }

    fn hash_of(&self, index: &IndexRecord) -> u64 {
        let mut fields: Vec<_> =
            self.fields.iter().filter(|(name, _)| index.depends_on(name)).collect();
        fields.sort_unstable();
        let encoded = postcard::to_stdvec(&(self.version, index, fields)).unwrap_or_default();
        hash(&encoded).first_chunk().map_or(0, |first| u64::from_be_bytes(*first))
    }
}

impl IndexRecord {
    /// Returns the kind and the name, for errors.
    pub(crate) fn described(&self) -> String {
        if self.is_reference() {
            format!("reference `{}`", self.name.trim_start_matches(MARK))
        } else if self.is_aggregate() {
            format!("aggregate `{}`", self.name)
        } else if self.is_index() {
            format!("index `{}`", self.name)
        } else {
            "change stream".to_owned()
        }
    }
}
