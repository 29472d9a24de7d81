//! The indexes that have one state in all shards: global indexes, and the indexes of reference tables.
//!
//! One transaction of all shards changes such a state. The state can still differ between shards if a shard was missing,
//! was attached or restored, or if the process ended while a table was opened in one shard after another.

use std::{collections::BTreeSet, sync::Arc};

use super::{
    build::{self, Build},
    opening,
};
use crate::{
    engine::{ReadRecords as _, Retry},
    model::{
        error::{Error, Result},
        index_state::IndexState,
        row_vtable::TableRows,
        schema::{Source, StateRecord, TableSchema},
        shard::{GlobalIndex, ShardNumber},
    },
    placement::{self, Tables, Txn, Writer, shards},
    store::{Engines, OpenTable, Shards, Store, transaction},
};

/// Builds the global indexes that a shard has emptied, from the rows of all shards. If a shard is not available, they stay empty
/// until the shard is restored, or the store is opened with all shards of the table.
///
/// One transaction of all shards writes all entries, so an interrupted build changes nothing. Other write transactions
/// wait for it.
pub(super) fn build_global(engines: &Engines, tables: &Tables, rows: &TableRows) -> Result<()> {
    let (Some(shards), Some(of_shards)) = (engines.several(), tables.several()) else {
        return Ok(());
    };
    let unbuilt = unbuilt(shards, of_shards, rows.schema)?;
    if unbuilt.is_empty() || shards.is_read_only() {
        return Ok(());
    }
    if !of_shards.are_complete() {
        return empty_global(shards, of_shards, rows, &unbuilt);
    }
    // The build writes rows of older lists again.
    let _lineage = rows.lists.begin();
    let incomplete = unreadable(engines, tables, rows)?;
    in_all(shards, tables, &|writer| {
        build::at_once(rows, writer, &unbuilt, (&incomplete, true), build::MEMORY).map(|_| ())
    })
}

/// Empties the global indexes of tables in all available shards, in one transaction.
pub(super) fn empty_all(shards: &Shards, in_use: &[Arc<OpenTable>]) -> Result<()> {
    let global = |table: &Arc<OpenTable>| table.rows.distribution.global();
    if in_use.iter().all(|table| global(table).is_empty()) {
        return Ok(());
    }
    commit(&|| begin(shards), &|retry| shards.prepare(retry), &|txn| {
        for table in in_use.iter().filter(|table| !global(table).is_empty()) {
            let Some(tables) = table.tables.several() else { continue };
            let routing = tables.routing();
            let is_there = |shard: &&ShardNumber| {
                tables.in_shard(**shard).is_some()
                    && shards.shard(**shard).is_ok_and(|it| it.opened().is_ok())
            };
            let mut writer = writer(txn, &table.tables)?;
            for shard in routing.all_shards().iter().filter(is_there) {
                writer.beside(*shard, &mut |writer| {
                    build::empty(&table.rows, writer, global(table))
                })?;
            }
        }
        Ok(())
    })
}

fn begin(shards: &Shards) -> Result<Txn<'_>> {
    shards.write().map(Txn::Several)
}

fn writer<'t, 's>(txn: &'t mut Txn<'s>, tables: &'t Tables) -> Result<Writer<'t, 's>> {
    txn.writer(tables).ok_or_else(|| Error::internal("a table of another engine"))
}

/// Runs `write` in a transaction that `begin` starts, and commits it. Repeats this if the commit needs another attempt.
fn commit<'s>(
    begin: &dyn Fn() -> Result<Txn<'s>>,
    prepare: &dyn Fn(Retry) -> Result<bool>,
    write: &dyn Fn(&mut Txn<'s>) -> Result<()>,
) -> Result<()> {
    let attempt = || {
        let mut txn = begin().map_err(|error| (error, None))?;
        write(&mut txn).map_err(|error| (error, txn.retry()))?;
        txn.commit(|| ()).map_err(|failure| {
            let retry = failure.retry();
            (Error::from(failure), retry)
        })
    };
    transaction::run(attempt, prepare)
}

/// Empties global indexes in all available shards, so that each shard records their state.
fn empty_global(
    shards: &Shards,
    tables: &shards::Tables,
    rows: &TableRows,
    indexes: &[usize],
) -> Result<()> {
    in_each(shards, tables, &|writer| build::empty(rows, writer, indexes))
}

/// Writes a table in each available shard, in a transaction for each.
fn in_each(
    shards: &Shards,
    tables: &shards::Tables,
    write: &dyn Fn(&mut Writer<'_, '_>) -> Result<()>,
) -> Result<()> {
    for number in tables.routing().all_shards() {
        let (Ok(shard), Ok(of_shard)) =
            (shards.shard(*number)?.opened(), tables.of(shards, *number))
        else {
            continue;
        };
        let begin = || shard.write().map(Txn::One);
        commit(&begin, &|retry| shard.prepare(retry), &|txn| match txn {
            Txn::One(txn) => {
                let writer = txn.writer(of_shard);
                let missing = || Error::internal("a table of another engine");
                write(&mut Writer::One(writer.ok_or_else(missing)?))
            }
            Txn::Several(_) => Err(Error::internal("a transaction of several shards")),
        })?;
    }
    Ok(())
}

/// Returns the global indexes that a shard has emptied.
fn unbuilt(shards: &Shards, tables: &shards::Tables, schema: &TableSchema) -> Result<Vec<usize>> {
    let routing = tables.routing();
    let global = routing.global_indexes();
    if global.is_empty() {
        return Ok(Vec::new());
    }
    let (txn, mut unbuilt) = (shards.read()?, Vec::new());
    let reader = placement::Reader::Several(txn.reader(tables));
    for index in global.iter().map(GlobalIndex::index) {
        let Some(declared) = schema.indexes.get(index) else { continue };
        if reader.record(declared.name)?.is_some() {
            unbuilt.push(index);
        }
    }
    Ok(unbuilt)
}

/// Writes a table in all shards, in one transaction.
fn in_all(
    shards: &Shards,
    tables: &Tables,
    write: &dyn Fn(&mut Writer<'_, '_>) -> Result<()>,
) -> Result<()> {
    commit(&|| begin(shards), &|retry| shards.prepare(retry), &|txn| {
        write(&mut writer(txn, tables)?)
    })
}

/// Gives each global index, and each index of a reference table, the same state in all shards. An unfinished build
/// continues if all shards have its state. Otherwise, the index is emptied, and its build starts at the first row.
///
/// If a shard is missing, a global index stays emptied, and is not maintained. `in_use` is the table if transactions can
/// already use it.
pub(super) fn align(
    engines: &Engines,
    tables: &Tables,
    rows: &TableRows,
    in_use: Option<&OpenTable>,
) -> Result<()> {
    let (Some(shards), Some(of_shards)) = (engines.several(), tables.several()) else {
        return Ok(());
    };
    let (routing, schema) = (of_shards.routing(), rows.schema);
    let indexes: Vec<usize> = if routing.is_reference() {
        schema.positions().collect()
    } else {
        routing.global_indexes().iter().map(GlobalIndex::index).collect()
    };
    if indexes.is_empty() {
        return Ok(());
    }
    let different = {
        let (txn, mut different) = (shards.read()?, Vec::new());
        let parts = txn.reader(of_shards).available_parts()?;
        for index in indexes {
            let Some(name) = schema.name_at(index) else { continue };
            let mut states = BTreeSet::new();
            for part in &parts {
                states.insert(part.record(name)?);
            }
            let is_emptied = |state: &[u8]| {
                matches!(StateRecord::decode(state), None | Some(StateRecord::Emptied(_)))
            };
            if states.len() > 1 || states.iter().flatten().any(|state| is_emptied(state)) {
                different.push(index);
            }
        }
        different
    };
    if different.is_empty() {
        return Ok(());
    }
    let emptied = different.iter().map(|index| in_use.map(|table| table.will_be_emptied(*index)));
    let _emptied: Vec<_> = emptied.collect();
    let declare = |writer: &mut Writer<'_, '_>| {
        let count = opening::count(writer)?;
        build::declare(rows, writer, &different, count)
    };
    if of_shards.are_complete() {
        return in_all(shards, tables, &declare);
    }
    if routing.is_reference() {
        in_each(shards, of_shards, &declare)
    } else {
        empty_global(shards, of_shards, rows, &different)
    }
}

/// Returns the indexes that are not readable in an available shard.
pub(super) fn unreadable(
    engines: &Engines,
    tables: &Tables,
    rows: &TableRows,
) -> Result<Vec<usize>> {
    let (Some(shards), Some(of_shards)) = (engines.several(), tables.several()) else {
        return Ok(Vec::new());
    };
    let txn = shards.read()?;
    let parts = txn.reader(of_shards).available_parts()?;
    let mut unreadable = Vec::new();
    for index in rows.schema.positions() {
        let Some(name) = rows.schema.name_at(index) else { continue };
        for part in &parts {
            if part.record(name)?.is_some() {
                unreadable.push(index);
                break;
            }
        }
    }
    Ok(unreadable)
}

/// Builds the indexes of a table that was opened without building them. Global indexes that a shard has emptied stay
/// as they are.
///
/// # Errors
///
/// [`Error::IndexNotReadable`]: a unique index has duplicates. In a read-only store: an index is not readable.
pub(super) fn finish(store: &Store, rows: &TableRows, table: &Arc<OpenTable>) -> Result<()> {
    let global = rows.distribution.global();
    let (mut is_global_emptied, mut is_needed) = (false, false);
    {
        let txn = store.read()?;
        for index in rows.schema.positions() {
            if store.inner.engines.is_read_only() {
                txn.reader_of(table, Source::Index(index))?;
                continue;
            }
            match table.state(txn.reader(table)?, index)? {
                None => {}
                Some(StateRecord::Emptied(_)) if global.contains(&index) => {
                    is_global_emptied = true;
                }
                Some(_) => is_needed = true,
            }
        }
    }
    if !is_needed {
        return Ok(());
    }
    let build = Build::new(store, table);
    let build = if is_global_emptied { build.without(global) } else { build };
    let report = build.run()?;
    match report.indexes.into_iter().find(|it| it.state != IndexState::Readable) {
        None => Ok(()),
        Some(index) => Err(Error::IndexNotReadable {
            table: report.table,
            index: index.name,
            state: index.state,
        }),
    }
}
