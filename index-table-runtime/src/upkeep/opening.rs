//! Opening a table: the file is compared with the declaration, and changed to match it.

use std::{cell::RefCell, collections::BTreeMap, sync::Arc};

use crate::model::KeyRange;
use crate::{
    background::clock,
    engine::{self, Conflicts, Query, Read, ReadRecords as _, Write, WriteRecords as _},
    model::{
        error::{Error, Result},
        index_state::IndexState,
        row_vtable::{RowVtable, TableRows},
        schema::{
            Comparison, IndexSchema, Renaming, Source, StateRecord, TableRecord, TableSchema,
            is_index,
        },
        shard::{Distribution, map_of},
        stream::STREAM,
    },
    placement::{Tables, Writer},
    store::{Client, Declared, OpenTable, Shards, Store, transaction},
    upkeep::{
        build::{self, Build, BuiltIndex},
        changes::forget_list,
        foreign, lists, read_only, readable, references,
        renaming::{self, Renamed},
        rollout, shards, versions,
    },
    usage::trace::span,
    write::{changes, queue},
};

/// The maximum number of rows of a small table. Its indexes are built in the transaction that declares them.
/// Other writers, and threads that open tables, wait for a fraction of a second.
const SMALL: u64 = 4_096;

/// Opens a table with all indexes built.
pub(crate) fn open(store: &Store, rows: &'static RowVtable) -> Result<Arc<OpenTable>> {
    open_whole(store, &store.rows_of(rows)?, false)
}

fn open_whole(store: &Store, rows: &TableRows, online: bool) -> Result<Arc<OpenTable>> {
    if let Some(shards) = store.inner.engines.several() {
        return shards::open(store, shards, rows, online);
    }
    let opened = open_with(store, rows, None, online);
    match store.inner.engines.several() {
        // The store has grown while this thread was waiting for its turn to open a table.
        Some(shards) if opened.is_err() => shards::open(store, shards, rows, online),
        _ => opened,
    }
}

/// The part of a table in a shard. A plain store has whole tables.
#[derive(Clone, Copy, Default)]
pub(super) struct ShardPart<'s> {
    /// Whether the table is opened in a further shard, which has no keys of it. Its part of each global index is empty, and
    /// complete.
    pub(super) is_added: bool,
    pub(super) origin: Origin,
    /// Whether the rows are parts of rows that can be in other shards.
    pub(super) has_main_rows_elsewhere: bool,
    /// The shards, if global indexes can be renamed.
    pub(super) shards: Option<&'s Shards>,
}

impl ShardPart<'_> {
    /// Whether the entries of a global index stay in their shards when it is renamed.
    pub(super) fn has_equal_maps(&self, table: &str, from: &str, to: &str) -> bool {
        self.shards
            .is_some_and(|shards| shards.has_equal_maps(&map_of(table, from), &map_of(table, to)))
    }
}

/// The origin of the part of a table in a shard.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Origin {
    #[default]
    Store,
    /// The shard was attached, rebuilt or restored, so all global indexes are emptied.
    Elsewhere,
    /// The table is from the time before the store has grown: the data file has all entries of global indexes, which were
    /// indexes of one data file.
    OneFile,
}

/// Returns the positions of the global indexes of a part. They are only emptied here, and not built, because their entries
/// refer to rows in all shards.
pub(super) fn global(rows: &TableRows, part: Option<ShardPart<'_>>) -> &'static [usize] {
    part.map_or(&[], |_| rows.distribution.global())
}

/// Opens a table of one engine, with all its own indexes built. With `online`, new indexes are only declared.
pub(super) fn open_with(
    store: &Store,
    rows: &TableRows,
    part: Option<ShardPart<'_>>,
    online: bool,
) -> Result<Arc<OpenTable>> {
    store.note_data_file();
    let global = global(rows, part);
    if store.inner.engines.is_read_only() || !rows.has_rows() {
        let open = if online { read_only::find } else { read_only::open };
        let is_shard = part.is_some();
        return open(store, rows, (global, part.unwrap_or_default().origin, is_shard));
    }
    if rows.changes.is_some() {
        clock::observe();
    }
    let table = declare(store, rows, part, online)?;
    if online {
        return Ok(table);
    }
    let counter = store.inner.opened();
    if !table.is_all_readable(counter) && has_unreadable(store, &table, global)? {
        let build = Build::new(store, &table).without(global).renewing(renews(rows, part));
        // Otherwise, the opening of the table in all shards continues the build.
        let Some(report) = build.run_in_shard()? else { return Ok(table) };
        let is_missing =
            |it: &BuiltIndex| !matches!(it.state, IndexState::Readable | IndexState::Announced);
        if let Some(index) = report.indexes.into_iter().find(is_missing) {
            let (table, index, state) = (report.table, index.name, index.state);
            return Err(Error::IndexNotReadable { table, index, state });
        }
    }
    Ok(table)
}

/// Whether there is something to build: announced indexes are built later.
fn has_unreadable(store: &Store, table: &OpenTable, global: &[usize]) -> Result<bool> {
    let txn = store.read()?;
    let (unreadable, lacking) = (txn.unreadable(table)?, txn.lacking(table)?);
    let mut indexes = unreadable.incomplete.iter().chain(unreadable.violated.iter());
    Ok(indexes.any(|index| !global.contains(index) && !lacking.contains(index)))
}

/// Opens a table whose indexes may still have to be built.
pub(crate) fn open_online(store: &Store, rows: &'static RowVtable) -> Result<Arc<OpenTable>> {
    open_whole(store, &store.rows_of(rows)?, true)
}

fn declare(
    store: &Store,
    rows: &TableRows,
    part: Option<ShardPart<'_>>,
    online: bool,
) -> Result<Arc<OpenTable>> {
    let table = store.inner.open_once(rows, |_| {
        let engine = store.inner.engine()?;
        span!(DEBUG, "open", table = rows.schema.name);
        readable::check_stored(store, engine, rows)?;
        // Not in the transaction, which may run again.
        rows.names();
        // Clients see this one before it looks for others.
        let client = rollout::client(engine, rows, part.is_some())?;
        let delayed = client.as_ref().map(Client::lacked_elsewhere).transpose()?;
        let delayed = rollout::delayed(rows, delayed.unwrap_or_default());
        let (tables, declared) = record(store, rows, part, (online, &delayed))?;
        if declared.has_foreign {
            foreign::number(store, engine, rows)?;
        }
        Ok((tables, Declared { client, ..declared }))
    })?;
    if part.is_none() {
        rollout::watch(store, &table);
    }
    Ok(table)
}

/// Records the declaration of a table in one engine, without the parts at the positions `delayed` that are new.
pub(super) fn record(
    store: &Store,
    rows: &TableRows,
    part: Option<ShardPart<'_>>,
    (online, delayed): (bool, &[usize]),
) -> Result<(Tables, Declared)> {
    let engine = store.inner.engine()?;
    // Builds write rows of older lists again.
    let _lineage = rows.lists.begin();
    let (mut declared, renamed) = (Declared::default(), RefCell::new(Renamed::default()));
    let mut attempts = 0;
    let attempt = || {
        attempts += 1;
        let excludes_writers = attempts > build::ATTEMPTS;
        let rename = &mut |renaming: &mut Renaming<'_>| {
            *renamed.borrow_mut() = renaming::rename(store, rows, (part, delayed), renaming)?;
            Ok(())
        };
        let prepare = &mut |writer: engine::Writer<'_, '_>| {
            let mut writer = Writer::One(writer);
            queue::rename(rows.schema, &mut writer, &renamed.borrow().indexes)?;
            declared = prepare(rows, &mut writer, part, (online, delayed))?;
            declared.has_foreign = foreign::is_in(rows, &writer)?;
            Ok(())
        };
        engine.open_or_rename(rows.schema, rows.parts(), excludes_writers, rename, prepare)
    };
    let mut conflicts = Conflicts::default();
    let tables = transaction::run(attempt, |retry| {
        transaction::prepare(&store.inner.engines, retry, &mut conflicts)
    })?;
    let renamed = renamed.into_inner();
    renamed.warn(rows.schema.name);
    declared.renewed.splice(..0, renamed.renewed);
    Ok((tables.into(), declared))
}

/// Empties the parts of global indexes in a shard that has no keys of the table. Their entries and states are from before the
/// shard lost these keys. The shards with keys have the states of the indexes, and an empty part has all of its entries.
fn empty_added(schema: &TableSchema, writer: &mut Writer<'_, '_>, global: &[usize]) -> Result<()> {
    for &index in global {
        let Some(name) = schema.name_at(index) else { continue };
        if writer.reader().stored(Source::Index(index))? != Some(0) {
            writer.clear(index)?;
        }
        if writer.reader().record(name)?.is_some() {
            writer.remove_record(name)?;
        }
    }
    Ok(())
}

/// Prepares the parts of global indexes in a shard, and removes these indexes from `new` and `unfinished`. Returns the indexes
/// that are not readable.
fn prepare_global(
    rows: &TableRows,
    writer: &mut Writer<'_, '_>,
    part: Option<ShardPart<'_>>,
    [new, unfinished]: [&mut Vec<usize>; 2],
) -> Result<Vec<usize>> {
    let (global, mut unreadable) = (global(rows, part), Vec::new());
    let ShardPart { is_added, origin, .. } = part.unwrap_or_default();
    if is_added {
        empty_added(rows.schema, writer, global)?;
    } else {
        let is_emptied = |index: &usize| origin == Origin::Elsewhere || new.contains(index);
        let emptied: Vec<_> = global.iter().copied().filter(is_emptied).collect();
        build::empty(rows, writer, &emptied)?;
        let is_unreadable = |index: &usize| emptied.contains(index) || unfinished.contains(index);
        unreadable.extend(global.iter().copied().filter(is_unreadable));
    }
    for all in [new, unfinished] {
        all.retain(|index| !global.contains(index));
    }
    Ok(unreadable)
}

/// Empties a change stream that was not written, and forgets the list of consumers of a shard that was elsewhere.
fn prepare_stream(
    writer: &mut Writer<'_, '_>,
    is_new: bool,
    (is_shard, is_from_elsewhere): (bool, bool),
) -> Result<()> {
    if is_from_elsewhere {
        forget_list(writer)?;
    }
    if is_new {
        writer.remove_record(STREAM)?;
        changes::restart(writer, is_shard)?;
    }
    Ok(())
}

/// Returns the record of a table as it is declared. The indexes at the positions `global` are those of a shard.
pub(super) fn declaration(
    rows: &RowVtable,
    global: &[usize],
    layout: impl Fn(&IndexSchema) -> &'static str,
) -> TableRecord {
    let record = TableRecord::of(rows.schema, layout).with_global(global);
    let record = record.with_aggregates(rows.schema, rows.aggregates);
    record.with_references(rows.schema, rows.references).with_changes(rows.changes)
}

/// Compares the table in the file with its declaration. Builds new indexes, or records that they have to be
/// built.
fn prepare(
    rows: &TableRows,
    writer: &mut Writer<'_, '_>,
    part: Option<ShardPart<'_>>,
    (online, delayed): (bool, &[usize]),
) -> Result<Declared> {
    let ShardPart { origin, has_main_rows_elsewhere, .. } = part.unwrap_or_default();
    let (schema, table) = (rows.schema, rows.schema.name);
    lists::open(rows, writer, part.is_some())?;
    lists::note_release(rows, writer)?;
    let mut declared = declaration(rows, global(rows, part), |index| writer.layout(index));
    let mut recorded = None;
    let (new, mut unfinished) =
        if let Some(stored) = writer.reader().record("")?.map(<[u8]>::to_vec) {
            let mut file = TableRecord::decode(table, &stored)?;
            if origin == Origin::OneFile {
                file = file.grown(schema, global(rows, part));
            }
            declared.changes = file.changes;
            let states = states(table, writer)?;
            rollout::retire(schema, &states, writer)?;
            let older = versions::records(writer.reader())?;
            let (comparison, changed) = file.compare_all(&declared, schema, &older)?;
            let mut unfinished: Vec<_> =
                states.keys().filter_map(|name| schema.position_of(name)).collect();
            let is_queue_read = matches!(comparison, Comparison::Build(_))
                || unfinished.iter().any(|index| schema.is_eventual(*index));
            let lost = if is_queue_read { repair_queue(schema, writer)? } else { Vec::new() };
            let mut new = match comparison {
                Comparison::Same => Vec::new(),
                Comparison::Build(indexes) => {
                    versions::keep(schema, (&file, &declared), &changed, writer)?;
                    for retired in file.retired(&declared) {
                        let name = retired.index.name.clone();
                        let state = StateRecord::Retired(retired).encode(table)?;
                        writer.put_record(&name, &state)?;
                    }
                    declared.changes = file.changes.wrapping_add(1).max(1);
                    // Queued messages for former declarations are meaningless.
                    queue::purge(schema, writer, |name| {
                        let was = file.indexes.iter().any(|it| it.name == name && it.is_eventual());
                        let stays = |at: usize| schema.is_eventual(at) && !indexes.contains(&at);
                        was && schema.position_of(name).is_some_and(stays)
                    })?;
                    indexes
                }
            };
            for index in lost {
                if !new.contains(&index) {
                    new.push(index);
                }
            }
            unfinished.retain(|index| !new.contains(index));
            recorded = Some(file);
            (new, unfinished)
        } else {
            refuse_foreign_rows(schema, writer)?;
            ((0..rows.first_reference() + rows.references.len()).collect(), Vec::new())
        };

    let mut announced = Vec::new();
    if let Some(file) = &recorded {
        announced = rollout::announce(rows, (file, &mut declared), (&new, delayed), writer)?;
    }
    let new = new.into_iter().filter(|at| !announced.contains(at));
    unfinished.retain(|at| !announced.contains(at));

    let (mut new, others): (Vec<usize>, Vec<usize>) =
        new.partition(|position| schema.positions().contains(position));
    // The stream follows the aggregates and the references.
    let is_stream_new = others.contains(&(rows.first_reference() + rows.references.len()));
    let renewed = {
        let new = (&*others, part.is_some(), has_main_rows_elsewhere);
        references::declare(rows, recorded.as_ref(), new, writer)?
    };
    if rows.changes.is_some() {
        prepare_stream(writer, is_stream_new, (part.is_some(), origin == Origin::Elsewhere))?;
    }

    let mut readable = vec![true; schema.positions().len()];
    let unreadable = prepare_global(rows, writer, part, [&mut new, &mut unfinished])?;
    for index in unreadable.into_iter().chain(announced.iter().copied()) {
        if let Some(readable) = readable.get_mut(index) {
            *readable = false;
        }
    }

    let incomplete = [&*new, &unfinished, global(rows, part), &announced].concat();
    let renewal = (incomplete.as_slice(), renews(rows, part));
    if writer.reader().is_concurrent() {
        // A concurrent writer may not see the position of a build. Its writes conflict with this transaction instead.
        let is_aggregate = |position: &usize| schema.aggregate(*position).is_some();
        let aggregates: Vec<usize> =
            new.iter().chain(&unfinished).copied().filter(is_aggregate).collect();
        build::at_once(rows, writer, &aggregates, renewal, build::MEMORY)?;
        new.retain(|position| !is_aggregate(position));
        unfinished.retain(|position| !is_aggregate(position));
    }
    let count = count(writer)?;
    let is_small = count == 0 || (!online && count <= SMALL);
    let unbuilt = [&*new, &unfinished].concat();
    if !is_small || !build::at_once(rows, writer, &unbuilt, renewal, build::MEMORY)? {
        build::declare(rows, writer, if is_small { &unbuilt } else { &new }, count)?;
        for index in unbuilt {
            if let Some(readable) = readable.get_mut(index) {
                *readable = false;
            }
        }
    }
    let (record, declaration) = put_record(&declared, &announced, writer, table)?;
    let lacking = announced;
    Ok(Declared { record, declaration, lacking, readable, renewed, ..Declared::default() })
}

/// Writes the record of a table, unless it is equal. Returns it, and the declaration if the record lacks parts of it.
fn put_record(
    declared: &TableRecord,
    announced: &[usize],
    writer: &mut Writer<'_, '_>,
    table: &'static str,
) -> Result<(Vec<u8>, Option<Vec<u8>>)> {
    let declaration = (!announced.is_empty()).then(|| declared.encode(table)).transpose()?;
    let record = declared.omitting(announced).encode(table)?;
    if writer.reader().record("")? != Some(record.as_slice()) {
        writer.put_record("", &record)?;
    }
    Ok((record, declaration))
}

/// Whether a transaction that opens a table can write its rows again. The entries of a shard that comes from elsewhere are not in
/// other shards yet.
fn renews(rows: &TableRows, part: Option<ShardPart<'_>>) -> bool {
    let Some(part) = part else { return true };
    let comes = part.origin == Origin::Elsewhere && rows.distribution != Distribution::Reference;
    comes || rows.renews_in_shard()
}

/// Returns the number of rows. If the engine does not store it, rows above [`SMALL`] are not counted.
pub(super) fn count(writer: &Writer<'_, '_>) -> Result<u64> {
    if let Some(count) = writer.reader().stored(Source::Facts)? {
        return Ok(count);
    }
    let few = Query { limit: Some(SMALL + 1), ..Query::new(Source::Facts, KeyRange::ALL) };
    Ok(writer.reader().count(&few)?.found)
}

/// Empties the queue if it is damaged. Returns the indexes that may lack entries because of lost messages.
fn repair_queue(schema: &TableSchema, writer: &mut Writer<'_, '_>) -> Result<Vec<usize>> {
    let is_damaged = queue::repair(schema, writer)?.is_some();
    Ok(schema.positions().filter(|index| is_damaged && schema.is_eventual(*index)).collect())
}

/// Returns the states of the table's indexes that the catalog records, by name.
fn states(table: &'static str, writer: &Writer<'_, '_>) -> Result<BTreeMap<String, StateRecord>> {
    let reader = writer.reader();
    let parts = reader.recorded_parts()?.into_iter().filter(|part| is_index(part));
    let states = parts.map(|index| {
        let state = reader.record(&index)?.and_then(StateRecord::decode);
        match state {
            Some(state) => Ok((index, state)),
            None => Err(StateRecord::unreadable(table, &index)),
        }
    });
    states.collect()
}

/// Checks that a table without a record in the catalog is empty.
fn refuse_foreign_rows(schema: &TableSchema, writer: &Writer<'_, '_>) -> Result<()> {
    let rows = Query::new(Source::Facts, KeyRange::ALL);
    if writer.reader().count(&rows)?.found == 0 {
        return Ok(());
    }
    Err(Error::SchemaMismatch {
        table: schema.name,
        difference: "its database has entries that index-table did not write".to_owned(),
        way_out: "declare another `#[table(name = …)]`",
    })
}
