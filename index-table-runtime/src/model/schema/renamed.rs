//! Renamed tables: the changes of the catalog. This code is pure.
//!
//! A table takes all of its records to its new name, and the records of other tables that name it are changed too. The former
//! name keeps a record with the new name. So a program with the former name gets an error, and no new, empty table.

mod indexes;

use std::collections::BTreeMap;

use super::{Parts, REFERENCE, TableRecord, TableSchema, is_index};
use crate::model::{
    error::{Error, Result},
    key::kept_text,
    reference::{MARK, TO},
};

/// The first byte of the record under the former name of a table. It is not the number of a format, so a release without
/// support for it refuses the former name.
const RENAMED: u8 = 0;

/// The prefix of a queue's database. The name of its table follows.
pub(crate) const QUEUE: &str = ".queue.";

/// The advice to a program with a former name.
pub(super) const WAY_OUT: &str = "open it by its new name; for a new table with the former name, open the repository of the \
                                  renamed table first in this process";

/// Returns the new name of a table, if this is the record under its former name.
pub(crate) fn renamed_to(record: &[u8]) -> Option<&str> {
    let name = record.strip_prefix(&[RENAMED])?;
    let is_letter = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-".contains(byte);
    // Damaged bytes are no name.
    str::from_utf8(name)
        .ok()
        .filter(|name| !name.is_empty() && name.as_bytes().iter().all(is_letter))
}

/// Whether opening a table can rename it, one of its indexes or a table to which it refers, or creates it. Otherwise, the other
/// records of the catalog are not needed. `find` returns the record of a table.
pub(crate) fn needs_catalog<'r>(
    schema: &TableSchema,
    parts: Parts,
    mut find: impl FnMut(&'static str) -> Result<Option<&'r [u8]>>,
) -> Result<bool> {
    // Not the tables of the store itself.
    if schema.name.starts_with('.') {
        return Ok(false);
    }
    let mut find = |table| find(table).map(|it| it.filter(|record| renamed_to(record).is_none()));
    let Some(own) = find(schema.name)? else { return Ok(true) };
    if TableRecord::read(own).is_ok_and(|own| own.lacks_index_of(schema, parts)) {
        return Ok(true);
    }
    let referred = parts.references.iter().flat_map(|reference| reference.to.was);
    for was in schema.was.iter().chain(referred) {
        if find(was)?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The records of the catalog while tables are renamed.
#[derive(Debug)]
pub(crate) struct Renaming<'r> {
    pub(crate) before: &'r [(String, Vec<u8>)],
    records: BTreeMap<String, Vec<u8>>,
    /// The former and the new names of tables.
    pub(crate) tables: Vec<(&'static str, &'static str)>,
    /// The former and the new names of their databases. Some may not exist.
    pub(crate) databases: Vec<(String, String)>,
    /// Tables, and their former tables, which are not renamed and must have no rows.
    pub(crate) unused: Vec<(&'static str, &'static str)>,
    /// The former and the new names of indexes and aggregates of the table that is opened.
    pub(crate) indexes: Vec<(String, String)>,
}

impl<'r> Renaming<'r> {
    pub(crate) fn of(before: &'r [(String, Vec<u8>)]) -> Self {
        let records = before.iter().cloned().collect();
        let (tables, databases, unused) = (Vec::new(), Vec::new(), Vec::new());
        Self { before, records, tables, databases, unused, indexes: Vec::new() }
    }

    /// Returns the records that differ, by their names in the catalog; `None` for a record to be removed.
    pub(crate) fn changes(&self) -> Vec<(&str, Option<&[u8]>)> {
        let mut before: BTreeMap<_, _> =
            self.before.iter().map(|(name, record)| (name.as_str(), record)).collect();
        let mut changes = Vec::new();
        for (name, record) in &self.records {
            if before.remove(name.as_str()) != Some(record) {
                changes.push((name.as_str(), Some(record.as_slice())));
            }
        }
        changes.extend(before.into_keys().map(|name| (name, None)));
        changes
    }

    /// Returns the tables with other records than before, and both records.
    pub(crate) fn renewed(&self) -> Vec<(&str, &[u8], &[u8])> {
        let tables = self.before.iter().filter(|(name, _)| !name.contains('.') && self.has(name));
        let renewed = tables.filter_map(|(name, before)| {
            let after = self.records.get(name)?;
            (after != before).then_some((name.as_str(), before.as_slice(), after.as_slice()))
        });
        renewed.collect()
    }

    /// Returns a record by its name.
    pub(crate) fn record(&self, name: &str) -> Option<&[u8]> {
        self.records.get(name).map(Vec::as_slice)
    }

    /// Returns the records, by their names.
    pub(crate) fn records(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.records.iter().map(|(name, record)| (name.as_str(), record.as_slice()))
    }

    /// Replaces a record, or removes it.
    pub(crate) fn set(&mut self, name: String, record: Option<Vec<u8>>) {
        match record {
            Some(record) => drop(self.records.insert(name, record)),
            None => drop(self.records.remove(&name)),
        }
    }

    /// Whether the catalog has a table with this name.
    pub(crate) fn has(&self, table: &str) -> bool {
        self.record(table).is_some_and(|record| renamed_to(record).is_none())
    }

    /// Renames a table that the catalog has by one of its former names only. `refuse_used` returns the error for a
    /// table that this process uses. In a shard, the records of referenced tables don't count the change.
    ///
    /// # Errors
    ///
    /// [`Error::SchemaMismatch`] if this process uses the table by a former name, or a record can't be read.
    pub(crate) fn rename(
        &mut self,
        schema: &TableSchema,
        is_shard: bool,
        refuse_used: &dyn Fn(&'static str, &'static str) -> Result<()>,
    ) -> Result<()> {
        let name = schema.name;
        if !self.has(name)
            && let Some(from) = schema.was.iter().find(|was| self.has(was))
        {
            refuse_used(name, from)?;
            self.apply(from, name, is_shard)?;
        }
        for was in schema.was.iter().filter(|was| self.has(was)).collect::<Vec<_>>() {
            refuse_used(name, was)?;
            self.unused.push((name, was));
        }
        Ok(())
    }

    fn apply(&mut self, from: &'static str, to: &'static str, is_shard: bool) -> Result<()> {
        self.tables.push((from, to));
        self.move_databases(from, to);
        let own = format!("{from}.");
        let by = format!("{MARK}{from}.");
        let names: Vec<_> = self.records.keys().cloned().collect();
        for name in names {
            let (table, part) = name.split_once('.').unwrap_or((&name, ""));
            let (is_own, is_by) = (name == from || name.starts_with(&own), part.starts_with(&by));
            if !is_own && !is_by {
                continue;
            }
            let Some(record) = self.records.remove(&name) else { continue };
            let part = match part.strip_prefix(&by) {
                Some(reference) => format!("{MARK}{to}.{reference}"),
                None => part.to_owned(),
            };
            let dot = if part.is_empty() { "" } else { "." };
            let new = format!("{}{dot}{part}", if is_own { to } else { table });
            self.records.insert(new, record);
            if is_by && !is_own && !is_shard {
                self.change(table, |_| true)?;
            }
        }
        let tables: Vec<_> =
            self.records.keys().filter(|name| !name.contains('.')).cloned().collect();
        for table in tables {
            let is_own = table == to;
            self.change(&table, |record| record.refer_to(from, to) || is_own)?;
            if self.record(&table).and_then(renamed_to) == Some(from) {
                self.records.insert(table, former(to));
            }
        }
        self.records.insert(from.to_owned(), former(to));
        Ok(())
    }

    /// Changes the record of a table, and counts the change if `change` returns true.
    fn change(&mut self, table: &str, change: impl FnOnce(&mut TableRecord) -> bool) -> Result<()> {
        let Some(bytes) = self.records.get_mut(table) else { return Ok(()) };
        // A record of a later release, or under a former name.
        let Ok(mut record) = TableRecord::read(bytes) else { return Ok(()) };
        if change(&mut record) {
            record.changes = record.changes.wrapping_add(1).max(1);
            *bytes = record.encode(kept_text(table))?;
        }
        Ok(())
    }

    fn move_databases(&mut self, from: &str, to: &str) {
        let mut parts: Vec<String> = Vec::new();
        if let Some(Ok(record)) = self.record(from).map(TableRecord::read) {
            let indexes = record.indexes.into_iter().filter(|index| index.layout != REFERENCE);
            parts.extend(indexes.map(|index| index.name));
        }
        let own = format!("{from}.");
        let states = self.records.keys().filter_map(|name| name.strip_prefix(&own));
        parts.extend(states.filter(|part| is_index(part)).map(str::to_owned));
        parts.sort_unstable();
        parts.dedup();
        self.databases.push((from.to_owned(), to.to_owned()));
        self.databases.push((format!("{QUEUE}{from}"), format!("{QUEUE}{to}")));
        let of = |table: &str, part: &str| format!("{table}.{part}");
        self.databases.extend(parts.iter().map(|part| (of(from, part), of(to, part))));
    }
}

/// Returns the record under the former name of a table.
fn former(to: &str) -> Vec<u8> {
    [&[RENAMED], to.as_bytes()].concat()
}

impl TableRecord {
    /// Changes the references to a renamed table. Returns false if there are none.
    fn refer_to(&mut self, from: &str, to: &str) -> bool {
        let mut is_changed = false;
        for index in self.indexes.iter_mut().filter(|index| index.layout == REFERENCE) {
            for option in &mut index.options {
                if option.strip_prefix(TO) == Some(from) {
                    *option = format!("{TO}{to}");
                    is_changed = true;
                }
            }
        }
        is_changed
    }
}

/// Returns the error for a table that exists beside its former table.
#[cold]
pub(crate) fn both_exist(table: &'static str, was: &str) -> Error {
    Error::SchemaMismatch {
        table,
        difference: format!("the store also has rows in its former table `{was}`"),
        way_out: "move the rows of one of the two tables to the other, with both structs and without `was`; or remove \
                  `was`, and keep both tables",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static CLIENTS: TableSchema =
        TableSchema { was: &["customers"], ..TableSchema::of_records("clients", &[]) };

    fn named(name: &str, record: &[u8]) -> (String, Vec<u8>) {
        (name.to_owned(), record.to_vec())
    }

    #[test]
    fn all_records_with_the_name_of_a_table_get_its_new_name() {
        let record = TableRecord::of(&CLIENTS, |_| "");
        let bytes = record.encode("customers").expect("a record");
        let before = [
            named("customers", &bytes),
            named("customers.1", b"older"),
            named("customers.@customers.parent", b"own"),
            named("customers.@orders.customer", b"by"),
            named("customers.town", &[3]),
            named("customers-2", &bytes),
            named("customers-2.@other.customers", b"other"),
            named("regions", &bytes),
            named("regions.@customers.region", b"to"),
            named("buyers", b"\0customers"),
        ];
        let mut renaming = Renaming::of(&before);
        renaming.rename(&CLIENTS, false, &|_, _| Ok(())).expect("records");
        let after: Vec<_> = renaming.records().map(|(name, _)| name).collect();
        assert_eq!(
            after,
            [
                "buyers",
                "clients",
                "clients.1",
                "clients.@clients.parent",
                "clients.@orders.customer",
                "clients.town",
                "customers",
                "customers-2",
                "customers-2.@other.customers",
                "regions",
                "regions.@clients.region",
            ]
        );
        for former in ["buyers", "customers"] {
            // The test vector of docs/FORMAT.md.
            assert_eq!(
                renaming.record(former),
                Some(&[0, 0x63, 0x6c, 0x69, 0x65, 0x6e, 0x74, 0x73][..])
            );
            assert!(!renaming.has(former));
        }
        let renewed: Vec<_> = renaming.renewed().into_iter().map(|(table, ..)| table).collect();
        assert_eq!(renewed, ["regions"]);
        for table in ["clients", "regions"] {
            let record = renaming.record(table).and_then(|it| TableRecord::read(it).ok());
            assert_eq!(record.map(|record| record.changes), Some(1), "{table}");
        }
        let moved = |from: &str, to: &str| (from.to_owned(), to.to_owned());
        assert_eq!(
            renaming.databases,
            [
                moved("customers", "clients"),
                moved(".queue.customers", ".queue.clients"),
                moved("customers.town", "clients.town"),
            ]
        );
    }

    #[test]
    fn damaged_records_are_no_new_names() {
        for record in [&b""[..], &[0], &[0, 0], &[0, b'a', b'.'], &[1, b'a']] {
            assert_eq!(renamed_to(record), None, "{record:?}");
        }
    }
}
