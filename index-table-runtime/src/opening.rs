//! Opening a table: what the file has is compared with the declaration, and made what it says.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    engine::{Read, Write, Writer},
    error::{Error, Result},
    maintain::{self, Image},
    scan::{Bounds, Position, Query},
    schema::{Comparison, Source, StateRecord, TableRecord, TableSchema, is_index},
    store::{OpenTable, Store},
    trace::span,
    unique, versions,
    write::RowType,
};

/// Rows read at a time while an index is built.
const BUILD_BATCH: u64 = 1024;

pub(crate) fn open(store: &Store, rows: &RowType) -> Result<Arc<OpenTable>> {
    store.inner.open_once(rows.schema, |engine| {
        span!(DEBUG, "open", table = rows.schema.name);
        let mut record = Vec::new();
        let tables = engine.open_table(rows.schema, |writer| {
            record = prepare(rows, writer)?;
            Ok(())
        })?;
        Ok((tables, record))
    })
}

/// Compares the table in the file with its declaration, and builds what has to be built.
///
/// Returns the table's record.
fn prepare(rows: &RowType, writer: &mut Writer<'_, '_>) -> Result<Vec<u8>> {
    let table = rows.schema.name;
    let declared = TableRecord::of(rows.schema, |index| writer.layout(index));
    let record = declared.encode(table)?;
    let build = if let Some(stored) = writer.reader().record("")?.map(<[u8]>::to_vec) {
        let file = TableRecord::decode(table, &stored)?;
        let retired: Vec<_> =
            states(table, writer)?.into_values().filter_map(StateRecord::retired).collect();
        let comparison = file.compare(&declared, &retired, rows.schema)?;
        versions::check(rows.schema, writer.reader())?;
        match comparison {
            Comparison::Same => return Ok(stored),
            Comparison::Build(indexes) => {
                versions::keep(table, &file, &declared, writer)?;
                for retired in file.retired(&declared) {
                    let name = retired.index.name.clone();
                    let state = StateRecord::Retired(retired).encode(table)?;
                    writer.put_record(&name, &state)?;
                }
                indexes
            }
        }
    } else {
        refuse_foreign_rows(rows.schema, writer)?;
        (0..rows.schema.indexes.len()).collect()
    };
    for &index in &build {
        writer.clear(index)?;
        if let Some(index) = rows.schema.indexes.get(index) {
            writer.remove_record(index.name)?;
        }
    }
    build_indexes(rows, writer, &build)?;
    writer.put_record("", &record)?;
    Ok(record)
}

/// The states of the table's indexes that the catalog has, by their names.
fn states(table: &'static str, writer: &Writer<'_, '_>) -> Result<BTreeMap<String, StateRecord>> {
    let reader = writer.reader();
    let parts = reader.recorded_parts()?.into_iter().filter(|part| is_index(part));
    let states = parts.map(|index| {
        let state = reader.record(&index)?.and_then(StateRecord::decode);
        match state {
            Some(state) => Ok((index, state)),
            None => Err(Error::SchemaMismatch {
                table,
                difference: format!("the state of its index `{index}` can't be read"),
                way_out: "open it with the release of index-table that wrote it, or a later one",
            }),
        }
    });
    states.collect()
}

/// A table that the catalog doesn't have should be empty.
fn refuse_foreign_rows(schema: &TableSchema, writer: &Writer<'_, '_>) -> Result<()> {
    let rows = Query::new(Source::Facts, Bounds::new());
    if writer.reader().count(rows)?.found == 0 {
        return Ok(());
    }
    Err(Error::SchemaMismatch {
        table: schema.name,
        difference: "its database has entries that index-table did not write".to_owned(),
        way_out: "declare another `#[table(name = …)]`",
    })
}

/// Adds every row's entries to these indexes, which are empty.
fn build_indexes(rows: &RowType, writer: &mut Writer<'_, '_>, indexes: &[usize]) -> Result<()> {
    if indexes.is_empty() {
        return Ok(());
    }
    span!(DEBUG, "build", table = rows.schema.name, indexes = indexes.len());
    let mut position = None;
    loop {
        // A batch at a time: what is borrowed from a page doesn't outlive a write.
        let mut batch: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        let facts = Query::new(Source::Facts, Bounds::new());
        let query = Query { limit: Some(BUILD_BATCH), position: position.take(), ..facts };
        for fact in writer.reader().scan(query)?.take(BUILD_BATCH as usize) {
            let fact = fact?;
            batch.push((fact.primary_key.to_vec(), fact.data.to_vec()));
        }
        let mut image = Image::default();
        for (primary_key, bytes) in &batch {
            rows.load_stored(&mut image, bytes, primary_key)?;
            image.check_lengths(rows.schema)?;
            unique::check(rows, writer, None, &image)?;
            for &index in indexes {
                if let Some(declared) = rows.schema.indexes.get(index) {
                    maintain::add_entries(declared, index, &image, writer)?;
                }
            }
        }
        let Some((primary_key, _)) = batch.pop() else { return Ok(()) };
        position = Some(Position { key: Vec::new(), primary_key });
    }
}
