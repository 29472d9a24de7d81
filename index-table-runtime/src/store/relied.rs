//! The records of a table in the catalog that this process knows.
//!
//! A process compares the record when it writes or reads the table, because a client with another release of the program may have
//! replaced it. [`crate::model::schema::relied`] has what follows from a record.

use std::sync::atomic::{AtomicBool, Ordering};

use super::OpenTable;
use crate::{
    engine::ReadRecords as _,
    locks::Mutex,
    model::{
        error::{Error, Result},
        reference::Referrer,
        schema::{ADDED, Added, KeptDeclaration, StateRecord, TableRecord, Unmaintained},
    },
    placement::Reader,
};

/// The maximum number of known records. An older one is compared again when it is met.
const MOST: usize = 16;

/// A record, compared with the declaration of this process.
#[derive(Debug)]
pub(super) struct Known {
    record: Vec<u8>,
    /// The positions of the declared indexes and aggregates that it lacks.
    lacking: Vec<usize>,
    /// Whether this process maintains everything in it.
    is_maintained: bool,
}

/// The known records of a table, besides that of the time of opening.
#[derive(Debug, Default)]
pub(super) struct KnownRecords {
    /// Whether there are any, so that a table without them takes no lock.
    any: AtomicBool,
    records: Mutex<Vec<Known>>,
}

impl KnownRecords {
    /// Adds a record of the same declaration as that of the time of opening.
    pub(super) fn add(&self, record: Vec<u8>) {
        self.push(Known { record, lacking: Vec::new(), is_maintained: true });
    }

    fn push(&self, known: Known) {
        let mut records = self.records.lock();
        records.retain(|own| own.record != known.record);
        let more = (records.len() + 1).saturating_sub(MOST);
        records.drain(..more);
        records.push(known);
        self.any.store(true, Ordering::Release);
    }

    fn find<T>(&self, record: &[u8], result: impl FnOnce(&Known) -> T) -> Option<T> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        self.records.lock().iter().find(|known| known.record == record).map(result)
    }
}

impl OpenTable {
    /// Adds a record that this process has written in the place of `before`, and that differs in the references to the table only.
    pub(super) fn renew(&self, before: &[u8], record: Vec<u8>) {
        let maintained = |known: &Known| known.is_maintained.then(|| known.lacking.clone());
        let lacking = match self.records.find(before, maintained) {
            Some(Some(lacking)) => lacking,
            None if before == self.record => self.lacking.to_vec(),
            // It is compared when it is met.
            _ => return,
        };
        self.records.push(Known { record, lacking, is_maintained: true });
    }

    /// Returns the declaration of this process if the record of the time of opening lacks a part of it, with the positions.
    pub(crate) fn declared_apart(&self) -> (Option<Vec<u8>>, Vec<usize>) {
        let declaration = (!self.lacking.is_empty()).then(|| self.declaration.clone());
        (declaration, self.lacking.to_vec())
    }

    /// Whether the record of the time of opening lacked a part of the declaration.
    pub(crate) fn has_lacked(&self) -> bool {
        !self.lacking.is_empty()
    }

    /// Whether a known record lacks the index or aggregate at this position.
    pub(crate) fn was_lacking(&self, position: usize) -> bool {
        let is_lacking = |known: &Known| known.lacking.contains(&position);
        self.lacking.contains(&position) || self.records.records.lock().iter().any(is_lacking)
    }

    /// Returns the known records that this process maintains.
    pub(super) fn known_records(&self) -> Vec<Vec<u8>> {
        let records = self.records.records.lock();
        let others = records.iter().filter(|known| known.is_maintained);
        [self.record.clone()].into_iter().chain(others.map(|known| known.record.clone())).collect()
    }

    /// Whether this process reads the table by this record. Otherwise, it has to be compared.
    #[inline]
    pub(super) fn knows(&self, record: &[u8]) -> bool {
        record == self.record || self.records.find(record, |_| ()).is_some()
    }

    /// Whether this process is known to maintain everything in this record.
    pub(super) fn maintains(&self, record: &[u8]) -> bool {
        record == self.record || self.records.find(record, |it| it.is_maintained) == Some(true)
    }

    /// Compares a record that another client has written with the declaration. Returns whether it has the rows of this process. All
    /// indexes may be others since, so their states are read again.
    #[cold]
    pub(super) fn compare(&self, reader: Reader<'_>, record: &[u8]) -> Result<bool> {
        let table = self.schema.name;
        let (file, own) = (TableRecord::decode(table, record)?, self.declaration()?);
        if !file.is_of_rows_of(&own) {
            return Ok(false);
        }
        let (lacking, is_maintained) = (
            file.lacking(&own),
            file.unmaintained_by(&own).is_none() && self.has_referrers(reader)?,
        );
        self.readable.forget();
        let is_watched = self.client.is_some() && !lacking.is_empty();
        self.records.push(Known { record: record.to_vec(), lacking, is_maintained });
        if is_watched {
            self.rollout.watch();
        }
        Ok(true)
    }

    /// Returns an error unless this process maintains everything on which the record relies.
    ///
    /// # Errors
    ///
    /// [`Error::SchemaMismatch`]
    #[cold]
    pub(super) fn refuse_unmaintained(&self, reader: Reader<'_>, record: &[u8]) -> Result<()> {
        let table = self.schema.name;
        if self.maintains(record) {
            return Ok(());
        }
        // A table that refers to this one can have been opened since it was compared.
        if !self.compare(reader, record)? {
            return Err(self.declared_otherwise());
        }
        if self.maintains(record) {
            return Ok(());
        }
        let (file, own) = (TableRecord::decode(table, record)?, self.declaration()?);
        let difference = match file.unmaintained_by(&own) {
            Some(Unmaintained::Other(index)) => {
                let added = Added::read(reader.record(ADDED)?);
                let by = added.by(&index.name);
                format!(
                    "its {}, added by {by}, is not maintained by this process",
                    index.described()
                )
            }
            Some(Unmaintained::Gone(index)) => {
                format!("another process has opened it without its {}", index.described())
            }
            None => "a table refers to it that this process does not know".to_owned(),
        };
        let way_out = "restart this process with the release that has opened the table last";
        Err(Error::SchemaMismatch { table, difference, way_out })
    }

    /// Whether this process knows all references to the table.
    pub(crate) fn has_referrers(&self, reader: Reader<'_>) -> Result<bool> {
        for part in reader.recorded_parts()? {
            let Some(record) = reader.record(&part)? else { continue };
            let Some(by) = Referrer::decode(self.schema.name, &part, record)? else { continue };
            if !(0..).map_while(|at| reader.referrer(at)).any(|own| *own == by) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns the positions of the declared indexes and aggregates that the record in this snapshot lacks.
    pub(super) fn lacking_in(&self, reader: Reader<'_>) -> Result<Vec<usize>> {
        let Some(record) = reader.record("")? else { return Ok(Vec::new()) };
        if record == self.record {
            return Ok(self.lacking.to_vec());
        }
        if !self.knows(record) {
            self.compare(reader, record)?;
        }
        Ok(self.records.find(record, |it| it.lacking.clone()).unwrap_or_default())
    }

    /// Returns the state of an index that the record in this snapshot lacks.
    pub(super) fn state_if_lacking(
        &self,
        reader: Reader<'_>,
        index: usize,
    ) -> Result<Option<StateRecord>> {
        let may_lack = !self.lacking.is_empty() || self.records.any.load(Ordering::Acquire);
        if !may_lack || !self.lacking_in(reader)?.contains(&index) {
            return Ok(None);
        }
        let name = self.schema.name_at(index).unwrap_or_default();
        let announced = reader.record(name)?.and_then(StateRecord::decode);
        if let Some(state @ StateRecord::Announced(_)) = announced {
            return Ok(Some(state));
        }
        let own = self.declaration()?;
        let retired = own.indexes.into_iter().nth(index);
        Ok(retired
            .map(|index| StateRecord::Retired(KeptDeclaration { version: own.version, index })))
    }

    /// Returns the declaration of this process.
    fn declaration(&self) -> Result<TableRecord> {
        TableRecord::decode(self.schema.name, &self.declaration)
    }
}
