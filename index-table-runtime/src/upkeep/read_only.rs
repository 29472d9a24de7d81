//! Opening a table of a read-only store: its declaration must match the file.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    engine::Records,
    model::{
        error::{Error, Result},
        row_vtable::TableRows,
        schema::{
            Comparison, IndexRecord, Source, StateRecord, TableRecord, TableSchema, is_index,
            version_of,
        },
    },
    store::{Declared, OpenTable, Store},
    upkeep::{
        lists,
        opening::{self, Origin},
        readable, recorded,
    },
};

const DECLARE: &str = "open the store once without `read_only(true)`, which changes the file, or declare \
                       the table as the file has it";

/// Opens a table, and checks that all its indexes are readable.
pub(super) fn open(
    store: &Store,
    rows: &TableRows,
    (global, origin, is_shard): (&[usize], Origin, bool),
) -> Result<Arc<OpenTable>> {
    let table = find(store, rows, (global, origin, is_shard))?;
    if !rows.has_rows() {
        return Ok(table);
    }
    let txn = store.read()?;
    for index in rows.schema.positions() {
        txn.reader_of(&table, Source::Index(index))?;
    }
    Ok(table)
}

/// Opens a table whose indexes may not be readable.
pub(super) fn find(
    store: &Store,
    rows: &TableRows,
    (global, origin, is_shard): (&[usize], Origin, bool),
) -> Result<Arc<OpenTable>> {
    if !rows.has_rows() {
        return recorded::find(store, rows, (global, is_shard));
    }
    let table = store.inner.open_once(rows, |_| {
        let engine = store.inner.engine()?;
        let schema = rows.schema;
        let records = engine.all_records()?;
        // Until a writer opens the table of a store that has grown, its record has no global indexes.
        let is_grown = origin != Origin::OneFile || has_global(schema, &records, global)?;
        let global = if is_grown { global } else { &[] };
        let declared = opening::declaration(rows, global, |index| engine.layout(schema, index));
        lists::find(engine, rows, &records, is_shard)?;
        let declared = fit(rows, &records, declared)?;
        let Some(tables) = engine.find_table(schema, rows.parts())? else {
            return Err(without_databases(schema, &declared)?);
        };
        Ok((tables.into(), declared))
    })?;
    readable::check_stored(store, store.inner.engine()?, rows)?;
    Ok(table)
}

/// Whether the record of a table in the file has all those of these global indexes that are in it.
fn has_global(schema: &TableSchema, records: &Records, global: &[usize]) -> Result<bool> {
    let Some((_, record)) = records.iter().find(|(name, _)| name == schema.name) else {
        return Ok(true);
    };
    let record = || TableRecord::decode(schema.name, record);
    Ok(record()?.grown(schema, global) == record()?)
}

/// Describes an index that the file has by another name.
fn former_name(file: &TableRecord, own: &TableRecord) -> Option<String> {
    let (was, index) = file.renamed_indexes(own).into_iter().next()?;
    Some(format!("the file has its index `{index}` by the former name `{}`", was.name))
}

/// Returns the error for a table some of whose databases are missing.
fn without_databases(schema: &TableSchema, declared: &Declared) -> Result<Error> {
    let [file, own] = [Some(&declared.record), declared.declaration.as_ref()]
        .map(|record| TableRecord::decode(schema.name, record.unwrap_or(&declared.record)));
    let (file, own) = (file?, own?);
    let Some(lacking) = declared.lacking.first().and_then(|at| own.indexes.get(*at)) else {
        let difference = "another process is changing it".to_owned();
        return Ok(mismatch(schema, difference, "open it again"));
    };
    Ok(mismatch(schema, without(&file, &own, lacking), DECLARE))
}

/// Describes what the file lacks of the declaration of a client.
fn without(file: &TableRecord, own: &TableRecord, lacking: &IndexRecord) -> String {
    let otherwise = || format!("the file has no {} with this declaration", lacking.described());
    former_name(file, own).unwrap_or_else(otherwise)
}

fn mismatch(schema: &TableSchema, difference: String, way_out: &'static str) -> Error {
    Error::SchemaMismatch { table: schema.name, difference, way_out }
}

/// Returns the result of opening the table if the file needs no change.
fn fit(rows: &TableRows, records: &Records, declared: TableRecord) -> Result<Declared> {
    let (schema, table) = (rows.schema, rows.schema.name);
    let Some((_, record)) = records.iter().find(|(name, _)| name == table) else {
        let is_former = |(name, _): &&(String, Vec<u8>)| schema.was.contains(&name.as_str());
        let difference = match records.iter().find(is_former) {
            Some((was, _)) => format!("the file has it by its former name `{was}`"),
            None => "the file has no such table".to_owned(),
        };
        return Err(mismatch(schema, difference, DECLARE));
    };
    let file = TableRecord::decode(table, record)?;
    let declared = TableRecord { changes: file.changes, ..declared };

    let mut states = BTreeMap::new();
    for (name, record) in records {
        let Some(part) = name.strip_prefix(table).and_then(|name| name.strip_prefix('.')) else {
            continue;
        };
        if let Some(version) = version_of(part) {
            schema.check_older(version)?;
        } else if is_index(part) {
            let state = StateRecord::decode(record);
            states.insert(part, state.ok_or_else(|| StateRecord::unreadable(table, part))?);
        }
    }
    let comparison = file.compare(&declared, schema)?;
    if file.version < declared.version {
        let versions = (file.version, declared.version);
        let difference = format!(
            "its rows have version {} in the file and {} in the code",
            versions.0, versions.1
        );
        return Err(mismatch(schema, difference, DECLARE));
    }
    if let Comparison::Build(_) = comparison
        && let Some(gone) = file.gone(&declared)
    {
        return Err(mismatch(schema, without(&file, &declared, gone), DECLARE));
    }
    let lacking = file.lacking(&declared);
    Ok(Declared {
        record: record.clone(),
        declaration: Some(declared.encode(table)?),
        readable: schema
            .positions()
            .map(|at| {
                let has_state = schema.name_at(at).is_some_and(|name| states.contains_key(name));
                !has_state && !lacking.contains(&at)
            })
            .collect(),
        lacking,
        ..Declared::default()
    })
}
