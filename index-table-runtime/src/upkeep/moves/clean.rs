//! Removing the copies of a move: from the source shard after the switch, or from the target shard if the move is
//! cancelled.

use std::{sync::Arc, thread};

use super::{
    copy::{Mover, PAUSE, READ, ROWS, Until, tables_of},
    entries::MovedIndex,
};
use crate::{
    engine::{Cursor as _, Query, Read as _, Space, Write as _},
    model::{
        KeyRange,
        entry::Position,
        error::Result,
        maintain::{Change, Sink as _},
        schema::Source,
        shard::ShardNumber,
    },
    usage::Progress,
};

impl Mover<'_> {
    /// Removes the copies from the shard that doesn't have the keys.
    pub(super) fn clean(&mut self) -> Result<()> {
        let (engine, tables, shard) =
            (self.engine, Arc::clone(&self.tables), self.record().copier());
        let mut removed = 0;
        for (at, table) in tables.iter().enumerate() {
            if let Some(moved) = MovedIndex::of(self.record(), table)? {
                self.clean_entries(&moved)?;
                continue;
            }
            let of_shards = tables_of(table)?;
            let mut after: Option<Vec<u8>> = None;
            loop {
                let chunk = {
                    let txn = engine.read_on(shard)?;
                    self.chunk(
                        txn.reader(of_shards).of_shard(shard)?,
                        table,
                        after.as_deref(),
                        Until::Full,
                    )?
                };
                if !chunk.rows.is_empty() {
                    let keys = chunk.rows.iter().map(|(key, _)| (key.as_slice(), None));
                    let keys: Vec<_> = keys.collect();
                    self.write(shard, at, &mut |_, copies, writer| copies.set_all(writer, &keys))?;
                    removed += chunk.rows.len() as u64;
                    (self.progress)(Progress::new("copies removed", removed, None, self.started));
                    thread::sleep(PAUSE);
                }
                after = chunk.last;
                if after.is_none() {
                    break;
                }
            }
            self.each_sequence(shard, table, &mut |mover, batch| {
                mover.write(shard, at, &mut |_, _, writer| {
                    let mut records = batch.records.iter();
                    records.try_for_each(|(key, _)| writer.remove(Space::Sequence, key))
                })
            })?;
            self.clean_eventual(at, shard)?;
        }
        Ok(())
    }

    /// Removes the entries of copies from eventual indexes. These indexes can also have entries that the copies no
    /// longer have.
    fn clean_eventual(&mut self, at: usize, shard: ShardNumber) -> Result<()> {
        let Some(table) = self.tables.get(at).cloned() else { return Ok(()) };
        let (table, of_shards) = (&*table, tables_of(&table)?);
        for (index, _) in table.schema.indexes.iter().enumerate().filter(|(_, it)| it.eventual) {
            let routing = of_shards.routing();
            let source = Source::Index(index);
            let mut position: Option<Position> = None;
            if routing.global(index).is_some() {
                continue;
            }
            loop {
                let (mut copies, mut read) = (Vec::new(), 0);
                {
                    let txn = self.engine.read_on(shard)?;
                    let reader = txn.reader(of_shards).of_shard(shard)?;
                    let query =
                        Query { position: position.take(), ..Query::new(source, KeyRange::ALL) };
                    let mut entries = reader.cursor(query)?;
                    while read < READ && copies.len() < ROWS && entries.advance()? {
                        read += 1;
                        let entry = entries.entry();
                        let at = || Position {
                            key: entry.key.to_vec(),
                            primary_key: entry.primary_key.to_vec(),
                        };
                        if routing.is_copy(source, (entry.key, entry.primary_key), shard)
                            && self.has(&routing, entry.primary_key)
                        {
                            copies.push(at());
                        }
                        position = Some(at());
                    }
                }
                if !copies.is_empty() {
                    self.write(shard, at, &mut |_, _, writer| {
                        for Position { key, primary_key } in &copies {
                            writer.change(Change::DeleteEntry { index, key, primary_key })?;
                        }
                        writer.flush()
                    })?;
                    thread::sleep(PAUSE);
                }
                if read < READ && copies.len() < ROWS {
                    break;
                }
            }
        }
        Ok(())
    }
}
