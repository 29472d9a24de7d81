//! Writing a table in its shards: each change goes to the shard of its primary key.

use super::{Engine, Reader, Tables, txn::Writes};
use crate::{
    engine::{self, Ascending, Space, Write as _},
    model::{
        error::{Error, Result},
        maintain::{Change, Sink as _},
        schema::{IndexSchema, Source},
        shard::ShardNumber,
    },
};

/// Writes one table in one transaction.
pub(crate) struct Writer<'t> {
    txn: &'t mut (dyn Writes + 't),
    engine: &'t Engine,
    tables: &'t Tables,
}

impl<'t> Writer<'t> {
    pub(super) const fn new(
        txn: &'t mut (dyn Writes + 't),
        engine: &'t Engine,
        tables: &'t Tables,
    ) -> Self {
        Self { txn, engine, tables }
    }

    pub(crate) fn reader(&self) -> Reader<'_> {
        Reader::new(&*self.txn, self.tables)
    }

    /// Writes in the shard of a row.
    fn row<T>(
        &mut self,
        primary_key: &[u8],
        mut write: impl FnMut(&mut engine::Writer<'_, '_>) -> Result<T>,
    ) -> Result<T> {
        let shard = self.tables.shard_of(primary_key)?;
        let mut outcome = None;
        self.txn.write(self.tables, shard, Some(primary_key), &mut |writer| {
            outcome = Some(write(writer)?);
            Ok(())
        })?;
        outcome.ok_or_else(|| Error::internal("a shard was not written"))
    }

    /// Writes in the only shard of the table.
    fn only(
        &mut self,
        what: &'static str,
        write: &mut dyn FnMut(&mut engine::Writer<'_, '_>) -> Result<()>,
    ) -> Result<()> {
        let shard = self.only_shard(what)?;
        self.txn.write(self.tables, shard, None, write)
    }

    fn only_shard(&self, what: &'static str) -> Result<ShardNumber> {
        match self.tables.routing.shards() {
            [only] => Ok(*only),
            _ => Err(Error::NotOffered { what }),
        }
    }

    pub(crate) fn change(&mut self, change: Change<'_>) -> Result<()> {
        let (Change::PutFact { primary_key, .. }
        | Change::DeleteFact { primary_key }
        | Change::PutEntry { primary_key, .. }
        | Change::DeleteEntry { primary_key, .. }) = change;
        self.row(primary_key, |writer| writer.change(change))
    }

    pub(crate) fn append(&mut self, source: Source, entries: &mut dyn Ascending) -> Result<u64> {
        let mut count = 0;
        while let Some(entry) = entries.next()? {
            self.change(entry.put(source))?;
            count += 1;
        }
        Ok(count)
    }

    pub(crate) fn insert_fact(&mut self, primary_key: &[u8], row: &[u8]) -> Result<bool> {
        self.row(primary_key, |writer| writer.insert_fact(primary_key, row))
    }

    pub(crate) fn insert_entry(
        &mut self,
        index: usize,
        key: &[u8],
        primary_key: &[u8],
        data: &[u8],
    ) -> Result<bool> {
        self.row(primary_key, |writer| writer.insert_entry(index, key, primary_key, data))
    }

    pub(crate) fn put_shared(
        &mut self,
        index: usize,
        key: &[u8],
        primary_key: &[u8],
        data: &[u8],
    ) -> Result<()> {
        self.row(primary_key, |writer| writer.put_shared(index, key, primary_key, data))
    }

    pub(crate) fn remove_shared(
        &mut self,
        index: usize,
        key: &[u8],
        primary_key: &[u8],
    ) -> Result<()> {
        self.row(primary_key, |writer| writer.remove_shared(index, key, primary_key))
    }

    /// The engines of shards delay no changes.
    #[expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "as with other engines")]
    pub(crate) const fn flush(&mut self) -> Result<()> {
        Ok(())
    }

    pub(crate) fn clear(&mut self, index: usize) -> Result<()> {
        self.only("emptying an index in several shards", &mut |writer| writer.clear(index))
    }

    pub(crate) fn put(&mut self, space: Space, key: &[u8], record: &[u8]) -> Result<()> {
        self.only(SMALL, &mut |writer| writer.put(space, key, record))
    }

    pub(crate) fn remove(&mut self, space: Space, key: &[u8]) -> Result<()> {
        self.only(SMALL, &mut |writer| writer.remove(space, key))
    }

    pub(crate) fn clear_space(&mut self, space: Space) -> Result<()> {
        self.only(SMALL, &mut |writer| writer.clear_space(space))
    }

    pub(crate) fn layout(&self, index: &IndexSchema) -> &'static str {
        self.engine.layout(self.tables.routing.schema(), index)
    }
}

/// What small records of a table are for.
const SMALL: &str =
    "numbering rows, and building indexes step by step, of a table with a shard key";
