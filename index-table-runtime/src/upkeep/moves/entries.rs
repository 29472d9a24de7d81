//! The entries of a global index, which move by the shard map of the index.

use std::{collections::BTreeMap, sync::atomic::Ordering::Relaxed, thread};

use super::copy::{BYTES, Mover, PAUSE, READ, ROWS, Until, tables_of};
use crate::{
    engine::{Cursor as _, Query, Read as _, Write as _},
    model::{
        KeyRange,
        entry::{Position, RawEntry},
        error::{Error, Result},
        maintain::{Change, Sink as _},
        schema::{IndexSchema, Source},
        shard::GlobalIndex,
    },
    placement::{self, shards::MoveRecord},
    store::OpenTable,
    usage::Progress,
};

/// The entries of a shard by their identity: the index key, and the primary key unless a key has at most one entry. The
/// values are the primary key and the data of each entry.
type Entries = BTreeMap<(Vec<u8>, Vec<u8>), (Vec<u8>, Vec<u8>)>;

/// Some entries of a shard.
struct Chunk {
    entries: Entries,
    bytes: usize,
    /// The last entry that was read; `None` at the end of the range.
    last: Option<Position>,
}

/// A global index that is being moved.
pub(super) struct MovedIndex<'t> {
    pub(super) index: usize,
    pub(super) table: &'t OpenTable,
    declared: &'t IndexSchema,
}

impl<'t> MovedIndex<'t> {
    /// Returns the global index of a move; `None` for a move of rows.
    pub(super) fn of(record: &MoveRecord, table: &'t OpenTable) -> Result<Option<Self>> {
        let index = tables_of(table)?.routing().global_with(&record.map).map(GlobalIndex::index);
        Ok(index.and_then(|index| {
            let declared = table.schema.indexes.get(index)?;
            Some(Self { index, table, declared })
        }))
    }

    const fn source(&self) -> Source {
        Source::Index(self.index)
    }

    /// Returns the second part of the identity of an entry, after its index key.
    fn identity(&self, primary_key: &[u8]) -> Vec<u8> {
        if self.declared.has_one_entry_per_key() { Vec::new() } else { primary_key.to_vec() }
    }

    /// Whether an entry comes after this position.
    fn is_after(&self, entry: &RawEntry<'_>, at: &Position) -> bool {
        if self.declared.has_one_entry_per_key() {
            return entry.key > at.key.as_slice();
        }
        (entry.key, entry.primary_key) > (&at.key, &at.primary_key)
    }
}

impl Mover<'_> {
    /// Reads the next entries of the range in one shard: as many as a batch writes, or up to and including `until`.
    fn entries(
        &self,
        reader: placement::Reader<'_>,
        own: &MovedIndex<'_>,
        after: Option<&Position>,
        until: Until<'_, Position>,
    ) -> Result<Chunk> {
        let routing = tables_of(own.table)?.routing();
        let missing = || Error::internal("a move of an index that is not global");
        let global = routing.global(own.index).ok_or_else(missing)?;
        let MoveRecord { start, end, .. } = self.record();
        let first = if global.is_hashed() { Vec::new() } else { start.clone() };
        let first = Position { key: first, primary_key: Vec::new() };
        let query = Query {
            position: Some(after.cloned().unwrap_or(first)),
            inclusive: after.is_none(),
            ..Query::new(own.source(), KeyRange::ALL)
        };
        let mut chunk = Chunk { entries: Entries::new(), bytes: 0, last: None };
        let mut read = 0;
        let mut entries = reader.cursor(query)?;
        while entries.advance()? {
            let entry = entries.entry();
            let is_beyond = |end: &[u8]| !global.is_hashed() && entry.key >= end;
            let is_after = |at: &Position| own.is_after(&entry, at);
            if end.as_deref().is_some_and(is_beyond) || until.last().is_some_and(is_after) {
                break;
            }
            if self.record().has(&global.map_key(entry.key)) {
                chunk.bytes += entry.key.len() + entry.primary_key.len() + entry.data.len();
                let identity = (entry.key.to_vec(), own.identity(entry.primary_key));
                chunk.entries.insert(identity, (entry.primary_key.to_vec(), entry.data.to_vec()));
            }
            read += 1;
            let is_full = chunk.entries.len() >= ROWS || chunk.bytes >= BYTES || read >= READ;
            if matches!(until, Until::Full) && is_full {
                chunk.last = Some(entry.position());
                break;
            }
        }
        Ok(chunk)
    }

    /// Copies all entries of the range.
    pub(super) fn copy_entries(&mut self, own: &MovedIndex<'_>) -> Result<()> {
        let (engine, index) = (self.engine, own.index);
        let MoveRecord { from, to, .. } = *self.record();
        let of_shards = tables_of(own.table)?;
        let mut after: Option<Position> = None;
        loop {
            let source = {
                let txn = engine.read_on(from)?;
                let reader = txn.reader(of_shards).of_shard(from)?;
                self.entries(reader, own, after.as_ref(), Until::Full)?
            };
            self.write(to, 0, &mut |mover, _, writer| {
                let until = Until::Last(source.last.as_ref());
                let found = mover.entries(writer.reader(), own, after.as_ref(), until)?;
                for ((key, identity), (primary_key, _)) in &found.entries {
                    if !source.entries.contains_key(&(key.clone(), identity.clone())) {
                        writer.change(Change::DeleteEntry { index, key, primary_key })?;
                    }
                }
                for (identity, entry) in &source.entries {
                    if found.entries.get(identity) != Some(entry) {
                        let ((key, _), (primary_key, data)) = (identity, entry);
                        writer.change(Change::PutEntry { index, key, primary_key, data })?;
                    }
                }
                writer.flush()
            })?;
            self.moved.rows += source.entries.len() as u64;
            self.moved.bytes += source.bytes as u64;
            self.report("entries")?;
            after = source.last;
            if after.is_none() {
                return Ok(());
            }
            thread::sleep(PAUSE);
        }
    }

    /// Reports the copied rows or entries. Fails if the move was asked to stop.
    pub(super) fn report(&mut self, unit: &'static str) -> Result<()> {
        let super::Moved { rows, bytes, .. } = self.moved;
        self.moving.rows.store(rows, Relaxed);
        self.moving.bytes.store(bytes, Relaxed);
        let total = Some(self.moving.total.load(Relaxed)).filter(|total| *total > 0);
        (self.progress)(Progress::new(unit, rows, total, self.started).with_bytes(bytes));
        self.check_stop()
    }

    /// Compares the copies of entries with the entries in the source, except for entries that have changed since the
    /// copy.
    pub(super) fn verify_entries(&self, own: &MovedIndex<'_>) -> Result<()> {
        let MoveRecord { from, to, .. } = *self.record();
        let of_shards = tables_of(own.table)?;
        let mut after: Option<Position> = None;
        loop {
            let txn = self.engine.read()?;
            let reader = txn.reader(of_shards);
            let (source, target) = (reader.of_shard(from)?, reader.of_shard(to)?);
            let entries = self.entries(source, own, after.as_ref(), Until::Full)?;
            let until = Until::Last(entries.last.as_ref());
            let copies = self.entries(target, own, after.as_ref(), until)?;
            let all = entries.entries.keys().chain(copies.entries.keys());
            for identity in all {
                let is_equal = entries.entries.get(identity) == copies.entries.get(identity);
                if !is_equal {
                    let (key, primary_key) = identity;
                    let changed = own.tracked(key, primary_key);
                    if !self.moving.tracker.has(&changed) {
                        return Err(self.entry_not_equal(own, key));
                    }
                }
            }
            after = entries.last;
            if after.is_none() {
                return Ok(());
            }
        }
    }

    fn entry_not_equal(&self, own: &MovedIndex<'_>, key: &[u8]) -> Error {
        let MoveRecord { id, map, .. } = self.record();
        let key = own.table.schema.show_key(own.source(), key);
        Error::ShardRefused {
            what: format!("the switch of move {id} of shard map `{map}`"),
            reason: format!(
                "the copies of the entries with key {key} are not equal to them; `verify` finds damage of the source, \
                 `Store::cancel_move` removes the copies, and `resume_move` copies again"
            ),
        }
    }

    /// Removes the copies of entries from the shard that doesn't have their keys.
    pub(super) fn clean_entries(&mut self, own: &MovedIndex<'_>) -> Result<()> {
        let (engine, shard, index) = (self.engine, self.record().copier(), own.index);
        let of_shards = tables_of(own.table)?;
        let (mut after, mut removed): (Option<Position>, u64) = (None, 0);
        loop {
            let chunk = {
                let txn = engine.read_on(shard)?;
                let reader = txn.reader(of_shards).of_shard(shard)?;
                self.entries(reader, own, after.as_ref(), Until::Full)?
            };
            if !chunk.entries.is_empty() {
                self.write(shard, 0, &mut |_, _, writer| {
                    for ((key, _), (primary_key, _)) in &chunk.entries {
                        writer.change(Change::DeleteEntry { index, key, primary_key })?;
                    }
                    writer.flush()
                })?;
                removed += chunk.entries.len() as u64;
                (self.progress)(Progress::new("copies removed", removed, None, self.started));
                thread::sleep(PAUSE);
            }
            after = chunk.last;
            if after.is_none() {
                return Ok(());
            }
        }
    }
}
