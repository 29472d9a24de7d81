use heed::{PutFlags, RwTxn};

use super::{
    append::{self, Block, Taken},
    blocks::{self, Scratch},
    env::Engine,
    error::Failure,
    layout::{self, Layout},
    names::Database,
    read::Reader,
    shared,
    tables::{Index, Small, Tables},
    turn::Writing,
};
use crate::{
    engine::{Ascending, Read as _, Retry, Space, Write},
    model::{
        entry::RawEntry,
        error::{Error, Result},
        maintain::{Change, Sink},
        schema::{IndexSchema, Source},
    },
};

/// Writes one table in one transaction.
pub(crate) struct Writer<'t, 's> {
    engine: &'t Engine,
    txn: &'t mut RwTxn<'s>,
    tables: &'t Tables<'t>,
    scratch: &'t mut Scratch,
    retry: &'t mut Option<Retry>,
}

impl<'t, 's> Writer<'t, 's> {
    pub(super) const fn new(
        engine: &'t Engine,
        txn: &'t mut RwTxn<'s>,
        tables: &'t Tables<'t>,
        writing: &'t mut Writing,
    ) -> Self {
        let Writing { scratch, retry } = writing;
        Self { engine, txn, tables, scratch, retry }
    }

    /// Removes the piece of an index at this place, or all that begin with these bytes; `false`: there was
    /// none.
    pub(crate) fn remove_pieces(&mut self, index: usize, at: &[u8], all: bool) -> Result<bool> {
        let Self { engine, txn, tables, retry, .. } = self;
        let Some(Index { database, .. }) = tables.indexes.get(index) else { return Ok(false) };
        let mut failed = |error| engine.write_error(retry, error);
        if !all {
            return database.delete(txn, at).map_err(&mut failed);
        }
        let mut removed = false;
        while let Some((found, _)) =
            database.get_greater_than_or_equal_to(txn, at).map_err(&mut failed)?
            && found.starts_with(at)
        {
            let found = found.to_vec();
            if !database.delete(txn, &found).map_err(&mut failed)? {
                break;
            }
            removed = true;
        }
        Ok(removed)
    }

    #[cold]
    fn failed(&mut self, error: heed::Error) -> Error {
        self.engine.write_error(self.retry, error)
    }

    #[cold]
    fn failed_with(&mut self, failure: Failure) -> Error {
        match failure {
            Failure::Heed(error) => self.failed(error),
            Failure::Other(error) => error,
        }
    }

    /// Reads what the transaction has written so far.
    pub(crate) fn reader(&self) -> Reader<'_> {
        Reader::new(self.engine, self.txn, self.tables)
    }

    fn apply(&mut self, change: Change<'_>) -> heed::Result<()> {
        let Self { txn, tables, scratch, .. } = self;
        match change {
            Change::PutFact { primary_key, row } => tables.facts.put(txn, primary_key, row),
            Change::DeleteFact { primary_key } => tables.facts.delete(txn, primary_key).map(drop),
            Change::PutEntry { index, key, primary_key, data } => {
                let Some(index) = tables.indexes.get(index) else { return Ok(()) };
                match index.layout {
                    Layout::Unique => {
                        index.database.put(txn, key, scratch.joined(primary_key, data))
                    }
                    Layout::Entries => {
                        index.database.put(txn, scratch.joined(key, primary_key), data)
                    }
                    Layout::Blocks { .. } => {
                        let Index { database, forecast, .. } = index;
                        blocks::insert(database, forecast, txn, key, primary_key, scratch)
                    }
                }
            }
            // An entry that is not there, in a damaged file, is what was wanted.
            Change::DeleteEntry { index, key, primary_key } => {
                let Some(index) = tables.indexes.get(index) else { return Ok(()) };
                match index.layout {
                    Layout::Unique => index.database.delete(txn, key).map(drop),
                    Layout::Entries => {
                        index.database.delete(txn, scratch.joined(key, primary_key)).map(drop)
                    }
                    Layout::Blocks { .. } => {
                        let Index { database, forecast, .. } = index;
                        blocks::remove(database, forecast, txn, key, primary_key, scratch).map(drop)
                    }
                }
            }
        }
    }

    /// Writes an entry, or a fact, behind all that are there; `false`: it is not behind them, and is
    /// to be written as any other. Primary keys of blocks stay in `block` until it is full.
    fn append_one(
        &mut self,
        source: Source,
        entry: RawEntry<'_>,
        block: &mut Block,
    ) -> heed::Result<bool> {
        let Self { txn, tables, scratch, .. } = self;
        let RawEntry { key, primary_key, data } = entry;
        let Source::Index(index) = source else {
            return append::append(&tables.facts, txn, primary_key, data);
        };
        let Some(Index { database, layout, .. }) = tables.indexes.get(index) else {
            return Ok(true);
        };
        match layout {
            Layout::Unique => append::append(database, txn, key, scratch.joined(primary_key, data)),
            Layout::Entries => {
                append::append(database, txn, scratch.joined(key, primary_key), data)
            }
            Layout::Blocks { .. } => match block.add(database, txn, key, primary_key)? {
                Taken::Yes => Ok(true),
                Taken::No => {
                    self.append_block(index, block)?;
                    Ok(false)
                }
                Taken::Behind => {
                    self.put_block(index, block)?;
                    Ok(false)
                }
            },
        }
    }

    /// Writes what is left in the block.
    fn append_block(&mut self, index: usize, block: &Block) -> heed::Result<()> {
        let Self { txn, tables, .. } = self;
        let Some(Index { database, .. }) = tables.indexes.get(index) else { return Ok(()) };
        if block.write(database, txn)? { Ok(()) } else { self.put_block(index, block) }
    }

    /// Writes what is in the block entry by entry.
    fn put_block(&mut self, index: usize, block: &Block) -> heed::Result<()> {
        let Self { txn, tables, scratch, .. } = self;
        let Some(Index { database, forecast, layout: Layout::Blocks { primary_key } }) =
            tables.indexes.get(index)
        else {
            return Ok(());
        };
        let (key, mut primary_keys) = block.entries(*primary_key);
        primary_keys.try_for_each(|primary_key| {
            blocks::insert(database, forecast, txn, key, primary_key, scratch)
        })
    }
}

/// `false`: the key is there, and nothing has changed.
fn insert(
    database: &Database<'_>,
    txn: &mut RwTxn<'_>,
    key: &[u8],
    value: &[u8],
) -> heed::Result<bool> {
    match database.put_with_flags(txn, PutFlags::NO_OVERWRITE, key, value) {
        Ok(()) => Ok(true),
        Err(heed::Error::Mdb(heed::MdbError::KeyExist)) => Ok(false),
        Err(error) => Err(error),
    }
}

impl Sink for Writer<'_, '_> {
    fn change(&mut self, change: Change<'_>) -> Result<()> {
        self.apply(change).map_err(|error| self.failed(error))
    }
}

impl Write for Writer<'_, '_> {
    fn append(&mut self, source: Source, entries: &mut dyn Ascending) -> Result<u64> {
        let (mut count, mut behind, mut block) = (0, true, Block::default());
        while let Some(entry) = entries.next()? {
            count += 1;
            if behind {
                let appended = self.append_one(source, entry, &mut block);
                behind = appended.map_err(|error| self.failed(error))?;
            }
            if !behind {
                self.change(entry.put(source))?;
            }
        }
        if behind && let Source::Index(index) = source {
            self.append_block(index, &block).map_err(|error| self.failed(error))?;
        }
        Ok(count)
    }

    fn insert_fact(&mut self, primary_key: &[u8], row: &[u8]) -> Result<bool> {
        let Self { txn, tables, .. } = self;
        insert(&tables.facts, txn, primary_key, row).map_err(|error| self.failed(error))
    }

    fn insert_entry(
        &mut self,
        index: usize,
        key: &[u8],
        primary_key: &[u8],
        data: &[u8],
    ) -> Result<bool> {
        let Self { txn, tables, scratch, .. } = self;
        let Some(Index { database, .. }) = tables.indexes.get(index) else { return Ok(false) };
        insert(database, txn, key, scratch.joined(primary_key, data))
            .map_err(|error| self.failed(error))
    }

    fn put_shared(
        &mut self,
        index: usize,
        key: &[u8],
        primary_key: &[u8],
        data: &[u8],
    ) -> Result<()> {
        let Self { txn, tables, .. } = self;
        let put = shared::put(txn, tables, index, RawEntry { key, primary_key, data });
        put.map_err(|failure| self.failed_with(failure))
    }

    fn remove_shared(&mut self, index: usize, key: &[u8], primary_key: &[u8]) -> Result<()> {
        let Self { txn, tables, .. } = self;
        let removed = shared::remove(txn, tables, index, key, primary_key);
        removed.map_err(|failure| self.failed_with(failure))
    }

    fn clear(&mut self, index: usize) -> Result<()> {
        let Some(index) = self.tables.indexes.get(index) else { return Ok(()) };
        index.database.clear(self.txn).map_err(|error| self.failed(error))
    }

    fn put(&mut self, space: Space, key: &[u8], record: &[u8]) -> Result<()> {
        let Self { txn, tables, .. } = self;
        let Some(Small { database, .. }) = tables.small(space) else { return Ok(()) };
        let put = database.put(txn, &tables.small_key(space, key), record);
        put.map_err(|error| self.failed(error))
    }

    fn remove(&mut self, space: Space, key: &[u8]) -> Result<()> {
        let Self { txn, tables, .. } = self;
        let Some(Small { database, .. }) = tables.small(space) else { return Ok(()) };
        let removed = database.delete(txn, &tables.small_key(space, key));
        removed.map(drop).map_err(|error| self.failed(error))
    }

    fn clear_space(&mut self, space: Space) -> Result<()> {
        let Self { txn, tables, .. } = self;
        let Some(Small { database, prefix }) = tables.small(space) else { return Ok(()) };
        if prefix.is_empty() {
            return database.clear(txn).map_err(|error| self.failed(error));
        }
        self.remove(space, &[])?;
        while let Some((key, _)) = self.reader().at_or_above(space, &[0])? {
            let key = key.to_vec();
            self.remove(space, &key)?;
        }
        Ok(())
    }

    fn layout(&self, index: &IndexSchema) -> &'static str {
        layout::layout(self.tables.schema, index)
    }
}
