//! The records of the shard map manager with the lists of tables.
//!
//! They are not part of [`ManagerRecords`](super::ManagerRecords): what replaces those keeps these.

use std::cell::Cell;

use super::manager::{Encoded, MANAGER, Manager, read};
use crate::model::{error::Result, lists};

/// The beginning of the key of the lists of a table.
const LISTS: &[u8] = b"lists.";

impl Manager {
    /// Returns the record of the lists of a table.
    pub(crate) fn lists(&self, table: &str) -> Result<Option<Vec<u8>>> {
        let own = [LISTS, table.as_bytes()].concat();
        let records = read(self.engine(), &MANAGER)?;
        Ok(records.into_iter().find(|(key, _)| *key == own).map(|(_, record)| record))
    }

    /// Replaces the record of the lists of a table, if the lists `after` extend it. Returns false if they don't.
    pub(crate) fn exchange_lists(&self, table: &str, after: &[u8]) -> Result<bool> {
        if self.lists(table)?.as_deref() == Some(after) {
            return Ok(true);
        }
        let own = [LISTS, table.as_bytes()].concat();
        let lists = lists::decode(after);
        let is_extended = Cell::new(false);
        self.update(&|all| {
            let found = all.iter().find(|(key, _)| *key == own).map(|(_, record)| record);
            is_extended.set(match (found.map(|found| lists::decode(found)), &lists) {
                (None, _) => true,
                (Some(Some(found)), Some(lists)) => lists.extends(&found),
                // A damaged record is replaced by lists that the data files have too.
                (Some(None), lists) => lists.is_some(),
                (Some(Some(_)), None) => false,
            });
            if is_extended.get() {
                all.retain(|(key, _)| *key != own);
                all.push((own.clone(), after.to_vec()));
            }
            Ok(())
        })?;
        Ok(is_extended.get())
    }

    /// Adds the records of lists among those of another manager, which has the same lists or none.
    pub(crate) fn copy_lists(&self, from: &[(Vec<u8>, Vec<u8>)]) -> Result<()> {
        self.update(&|all| {
            all.retain(|(key, _)| !key.starts_with(LISTS));
            all.extend(from.iter().filter(|(key, _)| key.starts_with(LISTS)).cloned());
            Ok(())
        })
    }
}

/// Replaces all records but those of lists, which are not part of [`ManagerRecords`].
pub(super) fn replace(all: &mut Encoded, records: &[(Vec<u8>, Vec<u8>)]) {
    all.retain(|(key, _)| key.starts_with(LISTS));
    all.extend_from_slice(records);
}

/// Gives the record of the lists of a table another name.
pub(super) fn rename_lists(all: &mut Encoded, from: &str, to: &str) {
    let [from, to] = [from, to].map(|table| [LISTS, table.as_bytes()].concat());
    for (key, _) in all.iter_mut().filter(|(key, _)| *key == from) {
        key.clone_from(&to);
    }
}
