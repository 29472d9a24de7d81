use heed::RwTxn;

use super::{
    append::{Block, Taken},
    blocks::{self, Malformed, Scratch},
    env::Engine,
    error::{Failure, refused},
    layout::{self, Layout},
    names::{FILE, LIST_COPIES},
    pages::{self, Guard},
    read::Reader,
    shared,
    short::short,
    tables::{Index, Small, Tables},
    turn::Writing,
};
use crate::{
    engine::{Ascending, Read as _, Retry, Space, Write},
    model::{
        entry::RawEntry,
        error::{Error, Result},
        key::DecodeError,
        maintain::{Change, Sink},
        schema::{IndexSchema, Source},
    },
};

/// A writer of one table in one transaction.
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
        let Writing { scratch, retry, .. } = writing;
        Self { engine, txn, tables, scratch, retry }
    }

    /// Removes the piece of an index with the key `at`, or with `all`, each piece whose key starts with these bytes.
    /// Returns false if there was none.
    pub(crate) fn remove_pieces(&mut self, index: usize, at: &[u8], all: bool) -> Result<bool> {
        let Self { engine, txn, tables, scratch, retry } = self;
        let recorder = &mut scratch.recorder;
        let Some(Index { database, .. }) = tables.indexes.get(index) else { return Ok(false) };
        let mut failed = |error| engine.write_error(retry, error);
        if !all {
            return database.delete(txn, recorder, at).map_err(&mut failed);
        }
        let mut removed = false;
        while let Some((found, _)) =
            database.get_greater_than_or_equal_to(txn, at).map_err(&mut failed)?
            && found.starts_with(at)
        {
            let found = found.to_vec();
            if !database.delete(txn, recorder, &found).map_err(&mut failed)? {
                break;
            }
            removed = true;
        }
        Ok(removed)
    }

    /// Checks the pages that LMDB follows when it writes to the table: the table's own, the catalog, the sequences and the lists of
    /// free pages, in the state before this transaction.
    ///
    /// Cost: reads each page.
    pub(crate) fn check_pages(&self) -> Result<()> {
        let path = &self.engine.path;
        let (file, before) = (path.join(FILE), (self.txn.id() as u64).saturating_sub(1));
        let refused = |fault| refused(path, fault);
        let Some(guard) = Guard::new(&file, before).map_err(refused)? else { return Ok(()) };
        pages::look_at_free_lists(&file, before).map_err(refused)?;
        let Tables { catalog, sequences, .. } = self.tables;
        self.tables.own().chain([catalog, sequences]).try_for_each(|own| {
            let whole = guard.whole(own.name());
            whole.map_err(|bad| self.tables.bad_page(path, own.name(), bad))
        })
    }

    #[cold]
    fn failed(&mut self, error: heed::Error) -> Error {
        if let heed::Error::Decoding(source) = &error
            && let Some(Malformed { database, at }) = source.downcast_ref()
            && let mut indexes = self.tables.indexes.iter()
            && let Some(index) = indexes.position(|index| index.database.name() == database)
        {
            return self.tables.schema.corrupt(Source::Index(index), at, DecodeError::Short);
        }
        self.engine.write_error(self.retry, error)
    }

    #[cold]
    fn failed_with(&mut self, failure: Failure) -> Error {
        match failure {
            Failure::Heed(error) => self.failed(error),
            Failure::Other(error) => error,
        }
    }

    /// Returns a reader that sees the transaction's own writes.
    pub(crate) fn reader(&self) -> Reader<'_> {
        Reader::new(self.engine, self.txn, self.tables)
    }

    fn apply(&mut self, change: Change<'_>) -> heed::Result<()> {
        let Self { txn, tables, scratch, .. } = self;
        match change {
            Change::PutFact { primary_key, row } => {
                tables.facts.put(txn, &mut scratch.recorder, primary_key, row)
            }
            Change::DeleteFact { primary_key } => {
                tables.facts.delete(txn, &mut scratch.recorder, primary_key).map(drop)
            }
            Change::PutEntry { index, key, primary_key, data } => {
                let Some(index) = tables.indexes.get(index) else { return Ok(()) };
                match index.layout {
                    Layout::Unique => {
                        let (recorder, value) = scratch.joined(primary_key, data);
                        index.database.put(txn, recorder, key, value)
                    }
                    Layout::ShortUnique { .. } => {
                        let value = short(primary_key);
                        index.database.put(txn, &mut scratch.recorder, key, value)
                    }
                    Layout::Entries => {
                        let (recorder, key) = scratch.joined(key, primary_key);
                        index.database.put(txn, recorder, key, data)
                    }
                    Layout::Blocks { .. } => {
                        let Index { database, forecast, .. } = index;
                        blocks::insert(database, forecast, txn, key, primary_key, scratch)
                    }
                }
            }
            // An entry that is missing in a damaged file is not an error: it is removed already.
            Change::DeleteEntry { index, key, primary_key } => {
                let Some(index) = tables.indexes.get(index) else { return Ok(()) };
                match index.layout {
                    Layout::Unique | Layout::ShortUnique { .. } => {
                        index.database.delete(txn, &mut scratch.recorder, key).map(drop)
                    }
                    Layout::Entries => {
                        let (recorder, key) = scratch.joined(key, primary_key);
                        index.database.delete(txn, recorder, key).map(drop)
                    }
                    Layout::Blocks { .. } => {
                        let Index { database, forecast, .. } = index;
                        blocks::remove(database, forecast, txn, key, primary_key, scratch).map(drop)
                    }
                }
            }
        }
    }

    /// Appends an entry, or a row, after all existing ones. Returns false if its key is not after theirs; the caller
    /// then writes it like any other. Primary keys of blocks stay in `block` until it is full.
    fn append_one(
        &mut self,
        source: Source,
        entry: RawEntry<'_>,
        block: &mut Block,
    ) -> heed::Result<bool> {
        let Self { txn, tables, scratch, .. } = self;
        let RawEntry { key, primary_key, data } = entry;
        let Source::Index(index) = source else {
            return tables.facts.append(txn, &mut scratch.recorder, primary_key, data);
        };
        let Some(Index { database, layout, .. }) = tables.indexes.get(index) else {
            return Ok(true);
        };
        match layout {
            Layout::Unique => {
                let (recorder, value) = scratch.joined(primary_key, data);
                database.append(txn, recorder, key, value)
            }
            Layout::ShortUnique { .. } => {
                let value = short(primary_key);
                database.append(txn, &mut scratch.recorder, key, value)
            }
            Layout::Entries => {
                let (recorder, key) = scratch.joined(key, primary_key);
                database.append(txn, recorder, key, data)
            }
            Layout::Blocks { .. } => {
                match block.add(database, txn, &mut scratch.recorder, key, primary_key)? {
                    Taken::Yes => Ok(true),
                    Taken::No => {
                        self.append_block(index, block)?;
                        Ok(false)
                    }
                    Taken::NotLast => {
                        self.put_block(index, block)?;
                        Ok(false)
                    }
                }
            }
        }
    }

    /// Writes the primary keys in `block`.
    fn append_block(&mut self, index: usize, block: &mut Block) -> heed::Result<()> {
        let Self { txn, tables, scratch, .. } = self;
        let Some(Index { database, .. }) = tables.indexes.get(index) else { return Ok(()) };
        if block.write(database, txn, &mut scratch.recorder)? {
            Ok(())
        } else {
            self.put_block(index, block)
        }
    }

    /// Writes the primary keys in `block` entry by entry.
    fn put_block(&mut self, index: usize, block: &Block) -> heed::Result<()> {
        let Self { txn, tables, scratch, .. } = self;
        let Some(Index { database, forecast, .. }) = tables.indexes.get(index) else {
            return Ok(());
        };
        let (key, mut primary_keys) = block.entries();
        primary_keys.try_for_each(|primary_key| {
            blocks::insert(database, forecast, txn, key, primary_key, scratch)
        })
    }
}

impl Sink for Writer<'_, '_> {
    fn change(&mut self, change: Change<'_>) -> Result<()> {
        self.apply(change).map_err(|error| self.failed(error))
    }
}

impl Write for Writer<'_, '_> {
    fn append(&mut self, source: Source, entries: &mut dyn Ascending) -> Result<u64> {
        let (mut count, mut is_after, mut block) = (0, true, Block::default());
        while let Some(entry) = entries.next()? {
            count += 1;
            if is_after {
                let appended = self.append_one(source, entry, &mut block);
                is_after = appended.map_err(|error| self.failed(error))?;
            }
            if !is_after {
                self.change(entry.put(source))?;
            }
        }
        if is_after && let Source::Index(index) = source {
            self.append_block(index, &mut block).map_err(|error| self.failed(error))?;
        }
        Ok(count)
    }

    fn insert_fact(&mut self, primary_key: &[u8], row: &[u8]) -> Result<bool> {
        let Self { txn, tables, scratch, .. } = self;
        let inserted = tables.facts.insert(txn, &mut scratch.recorder, primary_key, row);
        inserted.map_err(|error| self.failed(error))
    }

    fn insert_entry(
        &mut self,
        index: usize,
        key: &[u8],
        primary_key: &[u8],
        data: &[u8],
    ) -> Result<bool> {
        let Self { txn, tables, scratch, .. } = self;
        let Some(Index { database, layout, .. }) = tables.indexes.get(index) else {
            return Ok(false);
        };
        let inserted = if matches!(layout, Layout::ShortUnique { .. }) {
            let value = short(primary_key);
            database.insert(txn, &mut scratch.recorder, key, value)
        } else {
            let (recorder, value) = scratch.joined(primary_key, data);
            database.insert(txn, recorder, key, value)
        };
        inserted.map_err(|error| self.failed(error))
    }

    fn put_shared(
        &mut self,
        index: usize,
        key: &[u8],
        primary_key: &[u8],
        data: &[u8],
    ) -> Result<()> {
        let Self { txn, tables, scratch, .. } = self;
        let put = shared::put(
            (txn, &mut scratch.recorder),
            tables,
            index,
            RawEntry { key, primary_key, data },
        );
        put.map_err(|failure| self.failed_with(failure))
    }

    fn remove_shared(&mut self, index: usize, key: &[u8], primary_key: &[u8]) -> Result<()> {
        let Self { txn, tables, scratch, .. } = self;
        let removed = shared::remove((txn, &mut scratch.recorder), tables, index, key, primary_key);
        removed.map_err(|failure| self.failed_with(failure))
    }

    fn clear(&mut self, index: usize) -> Result<()> {
        let Some(index) = self.tables.indexes.get(index) else { return Ok(()) };
        let cleared = index.database.clear(self.txn, &mut self.scratch.recorder);
        cleared.map_err(|error| self.failed(error))
    }

    fn put(&mut self, space: Space, key: &[u8], record: &[u8]) -> Result<()> {
        let Self { engine, txn, tables, scratch, .. } = self;
        let Some(Small { database, .. }) = tables.small(space) else { return Ok(()) };
        if space == Space::ListCopies && !engine.has_intact_pages(txn, LIST_COPIES)? {
            return Ok(());
        }
        let put = database.put(txn, &mut scratch.recorder, &tables.small_key(space, key), record);
        put.map_err(|error| self.failed(error))
    }

    fn remove(&mut self, space: Space, key: &[u8]) -> Result<()> {
        let Self { engine, txn, tables, scratch, .. } = self;
        let Some(Small { database, .. }) = tables.small(space) else { return Ok(()) };
        if space == Space::ListCopies && !engine.has_intact_pages(txn, LIST_COPIES)? {
            return Ok(());
        }
        let removed = database.delete(txn, &mut scratch.recorder, &tables.small_key(space, key));
        removed.map(drop).map_err(|error| self.failed(error))
    }

    fn clear_space(&mut self, space: Space) -> Result<()> {
        let Self { txn, tables, scratch, .. } = self;
        let Some(Small { database, prefix }) = tables.small(space) else { return Ok(()) };
        if prefix.is_empty() {
            let cleared = database.clear(txn, &mut scratch.recorder);
            return cleared.map_err(|error| self.failed(error));
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
