//! The records of the shard map manager with the lists of tables.
//!
//! They are not part of [`ManagerRecords`](super::ManagerRecords): what replaces those keeps these. Like those in the data files
//! of the shards, each stands twice in its file (`model/lists/copies.rs`). The rows of the shards don't need them to be read, but
//! the manager gives the numbers of lists, also while a shard is away.

use std::cell::Cell;

use super::manager::{Encoded, MANAGER, Manager, facts, read};
use crate::{
    engine::{Read as _, Reader, Space, Write as _, Writer},
    model::{
        error::Result,
        lists::{self, Found, choose},
    },
};

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
        let own = [LISTS, table.as_bytes()].concat();
        if self.has_both(&own, after)? {
            return Ok(true);
        }
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

    /// Whether both copies of a record are this one.
    fn has_both(&self, own: &[u8], record: &[u8]) -> Result<bool> {
        let has_both = Cell::new(false);
        facts(self.engine(), &MANAGER, &|reader, records| {
            let first = records.iter().find(|(key, _)| key == own).map(|(_, first)| &**first);
            let second = reader.get(Space::ListCopies, table_of(own))?;
            has_both.set([first, second] == [Some(record); 2]);
            Ok(())
        })?;
        Ok(has_both.get())
    }

    /// Checks that both copies of each record are there and equal.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`](crate::Error::Corrupt) with the first table that has a damaged, missing or differing copy.
    pub(crate) fn check_lists(&self) -> Result<()> {
        facts(self.engine(), &MANAGER, &|reader, records| {
            for (key, copy) in copies(reader)? {
                if !records.iter().any(|(own, _)| *own == key) {
                    check(&key, None, Some(&copy))?;
                }
            }
            for (key, record) in records.iter().filter(|(key, _)| key.starts_with(LISTS)) {
                let second = reader.get(Space::ListCopies, table_of(key))?;
                // A file of a release with one copy gets all second copies with its next record.
                let has_copies = self.engine().has_list_copies();
                let second = if has_copies { second } else { Some(&**record) };
                check(key, Some(record), second)?;
            }
            Ok(())
        })
        .map(drop)
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

fn check(key: &[u8], first: Option<&[u8]>, second: Option<&[u8]>) -> Result<()> {
    lists::check(&String::from_utf8_lossy(table_of(key)), first, second)
}

/// Returns the name of the table in the key of a record of lists.
fn table_of(key: &[u8]) -> &[u8] {
    key.get(LISTS.len()..).unwrap_or_default()
}

/// Returns the second copies, with the keys of the first ones.
fn copies(reader: Reader<'_>) -> Result<Encoded> {
    let (mut found, mut from) = (Encoded::new(), vec![0]);
    while let Some((table, copy)) = reader.at_or_above(Space::ListCopies, &from)? {
        found.push(([LISTS, table].concat(), copy.to_vec()));
        from = [table, &[0]].concat();
    }
    Ok(found)
}

/// Puts the second copies in the places of records that are damaged, missing or earlier.
pub(super) fn use_copies(reader: Reader<'_>, records: &mut Encoded) -> Result<()> {
    for (key, copy) in copies(reader)? {
        let at = records.iter_mut().find(|(own, _)| *own == key).map(|(_, record)| record);
        let is_used = |first| {
            let found = choose(first, Some(&copy));
            matches!(found, Ok(Some(Found { record, fault: Some(_), .. })) if record == copy)
        };
        if is_used(at.as_deref().map(Vec::as_slice)) {
            match at {
                Some(record) => *record = copy,
                None => records.push((key, copy)),
            }
        }
    }
    Ok(())
}

/// Writes the second copies of the records of lists, and removes those of other tables.
pub(super) fn write_copies(writer: &mut Writer<'_, '_>, records: &Encoded) -> Result<()> {
    for (key, _) in copies(writer.reader())? {
        if !records.iter().any(|(own, _)| *own == key) {
            writer.remove(Space::ListCopies, table_of(&key))?;
        }
    }
    for (key, record) in records.iter().filter(|(key, _)| key.starts_with(LISTS)) {
        let table = table_of(key);
        if writer.reader().get(Space::ListCopies, table)? != Some(record) {
            writer.put(Space::ListCopies, table, record)?;
        }
    }
    Ok(())
}
