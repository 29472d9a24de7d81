//! Releases of a program that have a table open at the same time, as in a rolling deployment.
//!
//! [The record of a table](crate::model::schema::relied) decides which indexes each client maintains. A client that opens a table
//! replaces the record by its own declaration, except that an index which another client does not declare is *announced* only:
//!
//! | step | record | state of the index | clients of the earlier release | clients of the later release |
//! |---|---|---|---|---|
//! | a client of the later release opens the table | without the index | announced | write | write without the index, which is not readable |
//! | the last client of the earlier release ends | | | | see it within [`PERIOD`], and a second more on a server |
//! | [`rely`], one transaction | with the index | under construction | can't write | maintain the index |
//! | the build ends | | none | | read the index |
//!
//! A crash between two steps changes nothing: another client does the next one. An index that the client does not declare is taken
//! out of the record when the client opens the table, so that each client writes without it; for clients that declare it, it is
//! *retired*, and not readable.
//!
//! Which clients have the table open is a hint ([`Client`]). A client that others don't see is refused when it writes.

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
    time::Duration,
};

use crate::{
    background::{Job, Lane, Work},
    engine::{Engine, ReadRecords as _, WriteRecords as _},
    model::{
        error::{Error, Result},
        row_vtable::TableRows,
        schema::{ADDED, Added, KeptDeclaration, StateRecord, TableRecord, TableSchema},
    },
    placement::Writer,
    store::{Client, Inner, OpenTable, Store},
    upkeep::{build::Build, opening},
    usage::trace::announced_index,
};

/// The time after which a thread of the store looks again whether clients of an earlier release have ended.
const PERIOD: Duration = Duration::from_secs(10);

/// The number of batches of a build between two looks at the record.
const BATCHES: u64 = 8;

/// Tells other clients that this one has the table open. A store with several shards has no other clients that write.
pub(super) fn client(
    engine: &Arc<Engine>,
    rows: &TableRows,
    is_shard: bool,
) -> Result<Option<Client>> {
    if is_shard {
        return Ok(None);
    }
    let schema = rows.schema;
    let declared = opening::declaration(rows, &[], |index| engine.layout(schema, index));
    Client::new(engine, schema.name, &declared).map(Some)
}

/// Returns those of the positions whose parts can be announced: a reference is recorded at once, and so is its index.
pub(super) fn delayed(rows: &TableRows, mut positions: Vec<usize>) -> Vec<usize> {
    positions.retain(|at| !rows.references.iter().any(|it| it.index == Some(*at)));
    positions
}

/// Announces those of the new parts of a declaration that are `delayed`, unless earlier clients can't write the table anyway. Returns
/// their positions. The declaration is about to replace the record `file`. Notes the release that adds the other parts.
pub(super) fn announce(
    rows: &TableRows,
    (file, declared): (&TableRecord, &mut TableRecord),
    (new, delayed): (&[usize], &[usize]),
    writer: &mut Writer<'_, '_>,
) -> Result<Vec<usize>> {
    let table = rows.schema.name;
    let is_refused = file.version != declared.version || file.gone(declared).is_some();
    let is_announced = |at: &usize| !is_refused && delayed.contains(at);
    let announced: Vec<_> = new.iter().copied().filter(is_announced).collect();
    for index in announced.iter().filter_map(|at| declared.indexes.get(*at)) {
        let kept = KeptDeclaration { version: declared.version, index: index.clone() };
        writer.put_record(&index.name, &StateRecord::Announced(kept).encode(table)?)?;
        announced_index(table, &index.name);
    }
    let mut record = declared.omitting(&announced);
    record.changes = file.changes;
    if record == *file {
        declared.changes = file.changes;
        return Ok(announced);
    }
    let before = writer.reader().record(ADDED)?.map(<[u8]>::to_vec);
    let mut added = Added::read(before.as_deref());
    added.note(file, &record, rows.release);
    match added.encode() {
        Some(record) if before.as_ref() != Some(&record) => writer.put_record(ADDED, &record)?,
        None if before.is_some() => writer.remove_record(ADDED)?,
        _ => {}
    }
    Ok(announced)
}

/// Retires the announced indexes that this client does not declare. Clients that declare them can still rely on them later.
pub(super) fn retire(
    schema: &TableSchema,
    states: &BTreeMap<String, StateRecord>,
    writer: &mut Writer<'_, '_>,
) -> Result<()> {
    for (name, state) in states {
        if let StateRecord::Announced(kept) = state
            && schema.position_of(name).is_none()
        {
            writer.put_record(name, &StateRecord::Retired(kept.clone()).encode(schema.name)?)?;
        }
    }
    Ok(())
}

/// Puts the declared indexes that the record lacks into it, unless another client has the table open without them. With `refuse`,
/// such a client can't write from now on. Returns whether the record has changed.
pub(super) fn rely(store: &Store, table: &OpenTable, refuse: bool) -> Result<bool> {
    let Some(client) = table.client.as_ref() else { return Ok(false) };
    let lacking = store.read()?.lacking(table)?;
    if lacking.is_empty() {
        return Ok(false);
    }
    let delayed = if refuse { Vec::new() } else { client.lacked_elsewhere()? };
    let delayed = self::delayed(&table.rows, delayed);
    if lacking.iter().all(|at| delayed.contains(at)) {
        return Ok(false);
    }
    store.inner.refuse_nested_write()?;
    let _opening = store.inner.lock_opening();
    opening::record(store, &table.rows, None, (true, &delayed))?;
    Ok(true)
}

/// Builds the indexes of a table that its record lacks in a thread of the store, when other clients have ended: those that it lacks
/// now, and those that another client takes out of it later.
pub(super) fn watch(store: &Store, table: &OpenTable) {
    if table.client.is_none() {
        return;
    }
    let inner = Arc::downgrade(&store.inner);
    store.inner.rollout.set(Box::new(move || {
        let work = Arc::new(Watching(Weak::clone(&inner)));
        Job::start(work, Lane::Rollouts, Some(PERIOD)).ok()
    }));
    if table.has_lacked() {
        store.inner.rollout.watch();
    }
}

/// The tables of a store with indexes that are not in their records.
struct Watching(Weak<Inner>);

impl Work for Watching {
    fn run(&self) -> Option<Duration> {
        let store = Store { inner: self.0.upgrade()? };
        let tables = store.inner.tables_in_use().into_iter();
        // The program can end the use of each of them, and open it with another declaration.
        let tables: Vec<_> =
            tables.map(|table| (table.schema.name, Arc::downgrade(&table))).collect();
        let build = |table| store.inner.rollout.with_table(table, |table| is_built(&store, table));
        let is_left = tables.into_iter().filter_map(build).filter(|is_built| !is_built).count() > 0;
        is_left.then_some(PERIOD)
    }

    fn panicked(&self) {}
}

/// Builds the announced indexes of a table. Returns false if some are left, or after an error.
fn is_built(store: &Store, table: &Arc<OpenTable>) -> bool {
    // The program can have dropped its handles.
    let is_used = || Arc::strong_count(table) > 1 && Arc::strong_count(&store.inner) > 1;
    // A build that was not finished goes on in the next run.
    let is_due = || {
        let unreadable = store.read()?.unreadable(table)?;
        Ok::<_, Error>(unreadable.incomplete.iter().any(|at| table.was_lacking(*at)))
    };
    let lacks_none = || store.read()?.lacking(table).map(|lacking| lacking.is_empty());
    if rely(store, table, false).is_err() {
        return false;
    }
    loop {
        // Another client can have taken an index out of the record meanwhile.
        match lacks_none().and_then(|lacks_none| Ok((lacks_none, is_due()?))) {
            Ok((true, false)) => return true,
            Ok((true, true)) => {}
            Ok((false, _)) | Err(_) => return false,
        }
        let built = Build::new(store, table).limit(BATCHES).stop_when(&|| !is_used()).run();
        let goes_on = built.is_ok_and(|report| report.steps > 0);
        if !goes_on || !is_used() {
            return false;
        }
    }
}
