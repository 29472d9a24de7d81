//! The changes of the removal of a shard, and their checks.

use std::{collections::BTreeSet, fmt, sync::Arc};

use super::super::{build, changes, numbers::Numbered, opening};
use crate::{
    engine::{Query, Read as _, ReadRecords as _},
    model::{
        KeyRange,
        error::{Error, Result},
        schema::Source,
        shard::{GlobalIndex, ShardNumber},
    },
    placement::{
        self, Reader,
        shards::{self, Changed, MoveRecord},
    },
    store::{OpenTable, Shards},
    write::queue::{DEAD_LETTERS, DeadLetterRecord, Message, QUEUE_STATE, QueueState, decode},
};

/// Refuses to remove a shard with messages of eventual indexes, or with changes that a consumer has not committed. If the shard
/// keeps its rows, it may keep their messages, but not those of rows that have moved away: they would lack their entries.
fn refuse_unread(
    txn: &shards::Txn<'_>,
    table: &OpenTable,
    number: ShardNumber,
    keeps_rows: bool,
    refused: &dyn Fn(String) -> Error,
) -> Result<()> {
    let Some(tables) = table.tables.several() else { return Ok(()) };
    let (part, name) = (txn.reader(tables).of_shard(number)?, table.schema.name);
    if table.schema.has_eventual() && (!keeps_rows || has_messages_of_others(tables, number, part)?)
    {
        let queue = QueueState::read(table.schema, part)?;
        if queue.left(part)? > 0 {
            return Err(refused(format!(
                "it has queued messages of an eventual index of table `{name}`; start the index worker"
            )));
        }
        if queue.dead_letters > 0 {
            return Err(refused(format!(
                "it has dead letters of table `{name}`; apply them with `retry_dead_letters`"
            )));
        }
    }
    if table.rows.changes.is_some()
        && let Some(consumer) = changes::lagging(part)?
    {
        return Err(refused(format!(
            "consumer `{consumer}` of the change stream of table `{name}` has not committed all changes in it; \
             commit them, or remove the consumer"
        )));
    }
    Ok(())
}

/// Whether the queue of a shard has messages of rows that are in another shard.
fn has_messages_of_others(
    tables: &shards::Tables,
    number: ShardNumber,
    part: Reader<'_>,
) -> Result<bool> {
    let routing = tables.routing();
    let mut from = QUEUE_STATE + 1;
    while let Some((at, bytes)) = part.message(from)? {
        let dead_letter = if at < DEAD_LETTERS { None } else { decode::<DeadLetterRecord>(bytes) };
        let bytes = dead_letter.as_ref().map_or(bytes, |dead_letter| &dead_letter.message);
        let shard = decode::<Message>(bytes).and_then(|it| routing.shard_of(&it.primary_key));
        if shard.is_some_and(|shard| shard != number) {
            return Ok(true);
        }
        let Some(next) = at.checked_add(1) else { break };
        from = next;
    }
    Ok(false)
}

/// Whether a move brings entries of a global index from this shard to another.
pub(super) fn moves_entries_out(moving: &MoveRecord, shard: ShardNumber) -> bool {
    moving.from == shard && moving.map.contains('.')
}

/// Refuses to remove a shard with rows that would be lost, with unread changes, or with queued messages.
pub(super) fn check(
    txn: &shards::Txn<'_>,
    shards: &Shards,
    number: ShardNumber,
    plan: &Plan,
    refused: &dyn Fn(String) -> Error,
) -> Result<()> {
    for table in &plan.streams {
        let keeps_rows =
            plan.affected.iter().any(|it| it.keeps_rows && Arc::ptr_eq(&it.table, table));
        refuse_unread(txn, table, number, keeps_rows, refused)?;
    }
    for Affected { table, keeps_rows, .. } in &plan.affected {
        let Some(tables) = table.tables.several() else { continue };
        let has_parts = shards.has_placed_parts(table.schema.name);
        if (!keeps_rows || has_parts) && has_rows(txn, tables, number)? {
            let name = table.schema.name;
            let parts = if has_parts { ", with parts in other shards" } else { "" };
            return Err(refused(format!("it has rows of table `{name}`{parts}; move them")));
        }
    }
    Ok(())
}

/// Whether a table has rows in a shard.
fn has_rows(txn: &shards::Txn<'_>, tables: &shards::Tables, number: ShardNumber) -> Result<bool> {
    if tables.in_shard(number).is_none() {
        return Ok(false);
    }
    let first = Query { limit: Some(1), ..Query::new(Source::Facts, KeyRange::ALL) };
    Ok(txn.reader(tables).of_shard(number)?.count(&first)?.found > 0)
}

/// The changes of the removal of a shard.
pub(super) struct Plan {
    pub(super) changed: Vec<Changed>,
    pub(super) affected: Vec<Affected>,
    /// The tables with a change stream or a queue in the shard.
    pub(super) streams: Vec<Arc<OpenTable>>,
    /// The tables whose numbers of `insert_with` the shard may have.
    pub(super) numbered: Vec<Numbered>,
}

impl Plan {
    /// Whether an affected table has a readable global index with this shard map.
    pub(super) fn has_readable(&self, txn: &shards::Txn<'_>, map: &str) -> Result<bool> {
        for Affected { table, .. } in &self.affected {
            let Some(tables) = table.tables.several() else { continue };
            let reader = txn.reader(tables);
            let index = reader.routing().global_with(map).map(GlobalIndex::index);
            if let Some(name) = index.and_then(|index| table.schema.name_at(index)) {
                return Ok(placement::Reader::Several(reader).record(name)?.is_none());
            }
        }
        Ok(false)
    }
}

/// A table that may have rows or entries in a shard that is removed.
pub(super) struct Affected {
    pub(super) table: Arc<OpenTable>,
    /// The global indexes that may have entries in it, or entries that refer to its rows.
    pub(super) global: BTreeSet<usize>,
    /// Whether the rows in the shard are detached with it.
    pub(super) keeps_rows: bool,
}

impl Affected {
    /// Prepares the global indexes for the removal of a shard: the entries of its rows become hidden. Indexes that are not
    /// readable are emptied, and their tables added to `emptied`. Returns the shard maps of the others.
    pub(super) fn leave(
        &self,
        txn: &mut shards::Txn<'_>,
        number: ShardNumber,
        emptied: &mut Vec<Arc<OpenTable>>,
        refused: &dyn Fn(String) -> Error,
    ) -> Result<BTreeSet<String>> {
        let Self { table, global, keeps_rows } = self;
        let Some(tables) = table.tables.several() else { return Ok(BTreeSet::new()) };
        let (mut unreadable, mut hidden, mut maps) = (Vec::new(), Vec::new(), BTreeSet::new());
        {
            let has_rows = *keeps_rows && has_rows(txn, tables, number)?;
            let reader = txn.reader(tables);
            for &index in global {
                let Some(name) = table.schema.name_at(index) else { continue };
                let Some(own) = reader.routing().global(index) else { continue };
                if placement::Reader::Several(reader).record(name)?.is_some() {
                    unreadable.push(index);
                } else if own.shards().contains(&number) {
                    return Err(refused(format!(
                        "it has entries of global index `{name}` of table `{}` again; try again",
                        table.schema.name
                    )));
                } else if has_rows {
                    hidden.push(index);
                    maps.insert(own.map().to_owned());
                }
            }
        }
        let missing = || Error::internal("a write transaction without a writer");
        if !unreadable.is_empty() {
            let mut writer = placement::Writer::Several(txn.writer(tables).ok_or_else(missing)?);
            let count = opening::count(&writer)?;
            build::declare(&table.rows, &mut writer, &unreadable, count)?;
            emptied.push(Arc::clone(table));
        }
        if !hidden.is_empty() {
            // The shard is a plain store afterwards, which builds these indexes when it is opened.
            let mut writer = txn.writer(tables).ok_or_else(missing)?;
            writer.beside(number, &mut |writer| {
                let count = opening::count(writer)?;
                build::declare(&table.rows, writer, &hidden, count)
            })?;
        }
        Ok(maps)
    }
}

/// The way in which a shard is removed from the store.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Leaving {
    /// It has no rows.
    Removed,
    /// It keeps its rows.
    Detached,
}

impl fmt::Display for Leaving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Removed => "removal",
            Self::Detached => "detaching",
        })
    }
}
