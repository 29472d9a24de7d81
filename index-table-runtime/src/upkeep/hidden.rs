//! Removing the [hidden entries](crate::placement::shards) of global indexes, in batches.

use std::{collections::BTreeSet, thread, time::Duration};

use crate::{
    engine::{Cursor as _, Query, Read as _, ReadRecords as _, Write as _},
    model::{
        KeyRange,
        entry::Position,
        error::{Error, Result},
        maintain::{Change, Sink as _},
        schema::Source,
        shard::{GlobalIndex, ShardNumber},
    },
    placement::shards,
    store::{OpenTable, Shards, Store, transaction},
};

/// The maximum number of entries that a batch removes, in one transaction of one shard.
pub(super) const REMOVED: usize = 2048;

/// The maximum number of entries that a batch reads, in one snapshot.
const READ: usize = 1 << 15;

/// The pause after a batch, in which waiting writers get the lock of the shard.
pub(super) const PAUSE: Duration = Duration::from_millis(1);

/// Removes all hidden entries. The caller has the turn to move.
///
/// # Errors
///
/// [`Error::ShardRefused`]: a table with hidden entries is not open. [`Error::ShardUnavailable`]
pub(super) fn remove_all(store: &Store, engine: &Shards) -> Result<()> {
    let hidden = engine.hidden();
    if hidden.is_empty() {
        return Ok(());
    }
    let tables = store.inner.tables_in_use();
    for map in &hidden {
        let name = map.split_once('.').map_or(map.as_str(), |(table, _)| table);
        if tables.iter().all(|table| table.schema.name != name) {
            return Err(Error::ShardRefused {
                what: "the assignment of keys of an earlier shard".to_owned(),
                reason: format!(
                    "global indexes of table `{name}` have entries of a detached shard: open its repository first, which \
                     removes them"
                ),
            });
        }
    }
    tables.iter().try_for_each(|table| remove(store, engine, table))
}

/// Removes the hidden entries of a table, and then its records of them. The caller has the turn to move.
///
/// # Errors
///
/// [`Error::ShardUnavailable`]
pub(super) fn remove(store: &Store, engine: &Shards, table: &OpenTable) -> Result<()> {
    let Some(tables) = table.tables.several() else { return Ok(()) };
    let hidden = engine.hidden();
    let routing = tables.routing();
    let of_table = |global: &&GlobalIndex| hidden.contains(global.map());
    let indexes: Vec<_> = routing.global_indexes().iter().filter(of_table).collect();
    for global in &indexes {
        for shard in global.shards() {
            remove_in(engine, tables, global.index(), *shard)?;
        }
    }
    // An index that is no longer declared is emptied before it is declared again.
    let prefix = format!("{}.", table.schema.name);
    let is_other = |map: &&String| !map.starts_with(&prefix);
    let left: BTreeSet<_> = hidden.iter().filter(is_other).cloned().collect();
    if left == hidden {
        return Ok(());
    }
    let _opening = store.inner.lock_opening();
    let attempt = || engine.hide(&left, None);
    transaction::run(attempt, |retry| engine.prepare(retry))
}

/// Removes the hidden entries of an index in one shard.
fn remove_in(
    engine: &Shards,
    tables: &shards::Tables,
    index: usize,
    shard: ShardNumber,
) -> Result<()> {
    let (source, routing) = (Source::Index(index), tables.routing());
    let schema = routing.schema();
    let name = schema.name_at(index).unwrap_or_default();
    let is_unique = schema.index(source).is_some_and(|declared| declared.unique);
    let mut position: Option<Position> = None;
    loop {
        let (mut hidden, mut read) = (Vec::new(), 0);
        {
            let txn = engine.read_on(shard)?;
            let reader = txn.reader(tables).of_shard(shard)?;
            let query = Query { position: position.take(), ..Query::new(source, KeyRange::ALL) };
            let mut entries = reader.cursor(query)?;
            while read < READ && hidden.len() < REMOVED && entries.advance()? {
                read += 1;
                let entry = entries.entry();
                if routing.is_hidden(source, entry.primary_key) {
                    hidden.push(entry.position());
                }
                position = Some(entry.position());
            }
        }
        if !hidden.is_empty() {
            let attempt = || {
                engine.write_alone(shard, tables, &mut |writer| {
                    // The layout of an index that is not readable has room for several entries of a key.
                    let is_shared = is_unique && writer.reader().record(name)?.is_some();
                    for Position { key, primary_key } in &hidden {
                        if writer.reader().entry(index, key, primary_key)?.is_none() {
                            // A writer has replaced it.
                        } else if is_shared {
                            writer.remove_shared(index, key, primary_key)?;
                        } else {
                            writer.change(Change::DeleteEntry { index, key, primary_key })?;
                        }
                    }
                    writer.flush()
                })
            };
            transaction::run(attempt, |retry| engine.prepare(retry))?;
            thread::sleep(PAUSE);
        }
        if read < READ && hidden.len() < REMOVED {
            return Ok(());
        }
    }
}
