//! The databases of renamed tables and indexes.
//!
//! LMDB can't rename a database. So the databases of a renamed table keep their names, and the catalog has the name with which
//! they begin. A new table whose own name is the beginning of another table's databases gets another beginning. In the same way,
//! the database of a renamed index keeps the end of its name, and a new index gets one that no other index of the table has.

use std::{borrow::Cow, collections::BTreeSet};

use heed::{DatabaseOpener, RoTxn, RwTxn, WithoutTls};

use super::{
    env::Engine,
    journal::recorder::Recorder,
    named::Named,
    names::{CATALOG, Database, LIST_COPIES, SEQUENCES},
};
use crate::{
    engine::{Records, Rename},
    model::{
        error::Result,
        schema::{DATABASES, Parts, QUEUE, Renaming, TableSchema, both_exist, needs_catalog},
    },
};

/// The first byte of a record with a name. No state of an index begins with it.
const TAG: u8 = 127;

/// Returns the name of the record with the beginning of a table's databases.
fn record_of(table: &str) -> String {
    format!("{table}.{DATABASES}")
}

/// Returns the name of the record with the end of the name of an index's database.
pub(super) fn record_of_index(table: &str, index: &str) -> String {
    format!("{table}.{DATABASES}.{index}")
}

fn encode(name: &str) -> Vec<u8> {
    [&[TAG], name.as_bytes()].concat()
}

fn decode(record: &[u8]) -> Option<&str> {
    str::from_utf8(record.strip_prefix(&[TAG])?).ok()
}

/// Returns the name of a database in the file. `name` is its name if its table and its index were never renamed.
///
/// Cost: one or two look-ups in the catalog.
pub(super) fn stored<'n>(
    catalog: &Database<'_>,
    txn: &RoTxn<'_>,
    name: &'n str,
) -> heed::Result<Cow<'n, str>> {
    let (prefix, rest) = match name.strip_prefix(QUEUE) {
        Some(table) => (QUEUE, table),
        None => ("", name),
    };
    let (table, part) =
        rest.split_once('.').map_or((rest, None), |(table, part)| (table, Some(part)));
    if table.is_empty() {
        return Ok(name.into());
    }
    let find = |record: String| {
        let found = catalog.get(txn, record.as_bytes())?;
        Ok::<_, heed::Error>(found.and_then(decode))
    };
    let beginning = find(record_of(table))?.unwrap_or(table);
    let Some(part) = part else { return Ok(format!("{prefix}{beginning}").into()) };
    let end = find(record_of_index(table, part))?.unwrap_or(part);
    Ok(format!("{prefix}{beginning}.{end}").into())
}

/// Gives a renamed table the beginning of its databases, and a new table a beginning that no other table has.
fn name_databases(renaming: &mut Renaming<'_>, schema: &TableSchema) {
    for (from, to) in renaming.tables.clone() {
        let record = record_of(to);
        let name = renaming.record(&record).and_then(decode).unwrap_or(from).to_owned();
        renaming.set(record, (name != to).then(|| encode(&name)));
    }
    let table = schema.name;
    if renaming.has(table) {
        return;
    }
    let (suffix, own) = (format!(".{DATABASES}"), record_of(table));
    let is_taken = |name: &str| {
        let is_other = |record: &str| record.ends_with(&suffix) && record != own;
        let mut others = renaming.records().filter(|(record, _)| is_other(record));
        others.any(|(_, record)| decode(record) == Some(name))
    };
    // No table has a name with this character.
    let others = (2_u32..).map(|number| format!("{table}~{number}"));
    let free = [table.to_owned()].into_iter().chain(others).find(|name| !is_taken(name));
    if let Some(name) = free.filter(|name| name != table) {
        renaming.set(record_of(table), Some(encode(&name)));
    }
}

/// Gives the renamed indexes of a table their databases, and its new indexes databases that no other index has.
fn name_index_databases(renaming: &mut Renaming<'_>, (schema, parts): (&TableSchema, Parts)) {
    let table = schema.name;
    for (from, to) in renaming.indexes.clone() {
        let [before, after] = [&from, &to].map(|index| record_of_index(table, index));
        let name = renaming.record(&before).and_then(decode).unwrap_or(&from).to_owned();
        renaming.set(before, None);
        renaming.set(after, (name != to).then(|| encode(&name)));
    }
    let own = record_of_index(table, "");
    let names = renaming.records().filter(|(record, _)| record.starts_with(&own));
    let mut taken: BTreeSet<String> =
        names.filter_map(|(_, name)| decode(name)).map(str::to_owned).collect();
    for index in schema.indexes.iter().map(|index| index.name).chain(parts.names()) {
        let record = record_of_index(table, index);
        if taken.contains(index) && renaming.record(&record).is_none() {
            // No index has a name with this character.
            let others = (2_u32..).map(|number| format!("{index}~{number}"));
            if let Some(name) = others.into_iter().find(|name| !taken.contains(name)) {
                renaming.set(record, Some(encode(&name)));
                taken.insert(name);
            }
        }
    }
}

impl Engine {
    /// Renames tables and indexes before a table is opened, in its write transaction.
    pub(super) fn rename<'e>(
        &self,
        (opener, txn): (&DatabaseOpener<'e, WithoutTls>, &mut RwTxn<'e>),
        recorder: &mut Recorder,
        (schema, parts): (&'static TableSchema, Parts),
        rename: &mut Rename<'_>,
    ) -> Result<()> {
        let failed = |error| self.error(error);
        let catalog: Option<Database<'_>> =
            opener.open_database(txn, Some(CATALOG)).map_err(failed)?;
        let Some(catalog) = catalog else { return Ok(()) };
        let find = |table: &str| catalog.get(txn, table.as_bytes()).map_err(failed);
        if !needs_catalog(schema, parts, find)? {
            return Ok(());
        }
        let records: Records = self.records(&catalog, txn)?;
        let mut renaming = Renaming::of(&records);
        rename(&mut renaming)?;
        for (table, was) in &renaming.unused {
            let name = stored(&catalog, txn, was).map_err(failed)?;
            let facts: Option<Database<'_>> =
                opener.open_database(txn, Some(&name)).map_err(failed)?;
            let is_empty = facts.map_or(Ok(true), |facts| facts.is_empty(txn));
            if !is_empty.map_err(failed)? {
                return Err(both_exist(table, was));
            }
        }
        name_databases(&mut renaming, schema);
        name_index_databases(&mut renaming, (schema, parts));
        let catalog = Named::new(catalog, CATALOG);
        for (name, record) in renaming.changes() {
            let changed = match record {
                Some(record) => catalog.put(txn, recorder, name.as_bytes(), record),
                None => catalog.delete(txn, recorder, name.as_bytes()).map(drop),
            };
            changed.map_err(failed)?;
        }
        if renaming.tables.is_empty() {
            return Ok(());
        }
        let sequences: Option<Database<'_>> =
            opener.open_database(txn, Some(SEQUENCES)).map_err(failed)?;
        if let Some(sequences) = sequences {
            let sequences = Named::new(sequences, SEQUENCES);
            for (from, to) in &renaming.tables {
                move_sequences(&sequences, txn, recorder, (from, to)).map_err(failed)?;
            }
        }
        if self.has_intact_pages(txn, LIST_COPIES)?
            && let Some(copies) = self.open_copies(opener, txn).map_err(failed)?
        {
            let copies = Named::new(copies, LIST_COPIES);
            for (from, to) in &renaming.tables {
                move_list_copy(&copies, txn, recorder, (from, to)).map_err(failed)?;
            }
        }
        Ok(())
    }
}

/// Moves the second copy of the record of a table's lists. The catalog has the first one.
fn move_list_copy(
    copies: &Named<'_>,
    txn: &mut RwTxn<'_>,
    recorder: &mut Recorder,
    (from, to): (&str, &str),
) -> heed::Result<()> {
    let Some(copy) = copies.get(txn, from.as_bytes())?.map(<[u8]>::to_vec) else { return Ok(()) };
    copies.delete(txn, recorder, from.as_bytes())?;
    copies.put(txn, recorder, to.as_bytes(), &copy)
}

/// Moves the last numbers of a table, and of its shard keys.
fn move_sequences(
    sequences: &Named<'_>,
    txn: &mut RwTxn<'_>,
    recorder: &mut Recorder,
    (from, to): (&str, &str),
) -> heed::Result<()> {
    let mut moved: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    for record in sequences.prefix_iter(txn, from.as_bytes())? {
        let (key, number) = record?;
        let rest = key.get(from.len()..).unwrap_or_default();
        if rest.first().is_none_or(|dot| *dot == b'.') {
            moved.push((rest.to_vec(), number.to_vec()));
        }
    }
    for (rest, number) in moved {
        sequences.delete(txn, recorder, &[from.as_bytes(), &rest].concat())?;
        sequences.put(txn, recorder, &[to.as_bytes(), &rest].concat(), &number)?;
    }
    Ok(())
}
