//! Writing a table in its shards: each change goes to the shard of its primary key, or of its index key if
//! the index is global.

use std::sync::Arc;

use super::{Engine, Reader, Tables, Tracked, steps::Author, txn::Writes};
use crate::{
    engine::{Ascending, Space, Write as _},
    model::{
        error::{Error, Result},
        maintain::{Change, Image, Sink as _},
        schema::{ANALYSIS, IndexSchema, Source, version_of},
        shard::{GlobalIndex, Routing, ShardNumber},
    },
    placement,
};

/// A writer of one table in one transaction.
pub(crate) struct Writer<'t> {
    pub(super) txn: &'t mut (dyn Writes + 't),
    pub(super) engine: &'t Engine,
    pub(super) tables: &'t Tables,
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
        write: impl FnMut(&mut placement::Writer<'_, '_>) -> Result<T>,
    ) -> Result<T> {
        self.tracked(primary_key, Author::Row, write)
    }

    /// Writes in the shard of a row, and adds the row to the moves of its shard key.
    #[inline]
    fn tracked<T>(
        &mut self,
        primary_key: &[u8],
        author: Author,
        write: impl FnMut(&mut placement::Writer<'_, '_>) -> Result<T>,
    ) -> Result<T> {
        let Some(shard) = self.tables.routing.shard_of(primary_key) else {
            return self.without_a_shard(primary_key, write);
        };
        if self.tables.routing.moves() {
            self.lock(shard, Some(primary_key))?;
            self.track(primary_key, author)?;
        }
        self.in_shard(shard, primary_key, write)
    }

    /// Locks a shard before a change in it is added to a move. A move takes the changes, waits for the lock, and then copies the
    /// rows. So it would take a change that is added before, and copy the row as it was.
    #[cold]
    fn lock(&self, shard: ShardNumber, primary_key: Option<&[u8]>) -> Result<()> {
        self.txn.reader(self.tables, shard, primary_key).map(drop)
    }

    /// Adds the changed row to the moves of its shard key.
    #[cold]
    fn track(&self, primary_key: &[u8], author: Author) -> Result<()> {
        self.engine.note_change(&self.tables.routing, primary_key, author)
    }

    /// Fails if one of these rows can't be written, since it is being moved offline.
    ///
    /// # Errors
    ///
    /// [`Error::ShardReadOnly`]
    pub(crate) fn refuse_read_only(&self, old: Option<&Image>, new: Option<&Image>) -> Result<()> {
        if !self.tables.routing.moves() {
            return Ok(());
        }
        let mut rows = [old, new].into_iter().flatten();
        rows.try_for_each(|row| self.track(row.primary_key(), Author::Row))
    }

    /// Whether two rows are in the same shard.
    pub(crate) fn have_same_shard(&self, one: &[u8], other: &[u8]) -> bool {
        self.tables.routing.shard_of(one) == self.tables.routing.shard_of(other)
    }

    /// Replaces or removes a small record in the shard of a row, or in each copy of a reference table.
    pub(crate) fn set_beside(
        &mut self,
        primary_key: &[u8],
        space: Space,
        key: &[u8],
        record: Option<&[u8]>,
    ) -> Result<()> {
        self.row(primary_key, |writer| match record {
            Some(record) => writer.put(space, key, record),
            None => writer.remove(space, key),
        })
    }

    /// Writes in the shard of a row.
    pub(crate) fn in_shard_of(
        &mut self,
        primary_key: &[u8],
        write: &mut dyn FnMut(&mut placement::Writer<'_, '_>) -> Result<()>,
    ) -> Result<()> {
        self.row(primary_key, write)
    }

    /// Writes in the shard of an entry. A key that a row of the shard that is being attached has is refused.
    fn entry<T>(
        &mut self,
        (index, key, primary_key): (usize, &[u8], &[u8]),
        write: impl FnMut(&mut placement::Writer<'_, '_>) -> Result<T>,
    ) -> Result<T> {
        match self.tables.routing.global(index) {
            None => {
                let author = Author::of_entry(self.tables.routing.schema(), index);
                self.tracked(primary_key, author, write)
            }
            Some(global) => {
                let shard = self.tables.shard_of_global(global, index, key)?;
                if global.moves() {
                    self.lock(shard, Some(primary_key))?;
                    self.engine.note_entry(&self.tables.routing, global, key, primary_key)?;
                }
                if global.hides() {
                    self.refuse_coming(global, key, primary_key)?;
                }
                self.in_shard(shard, primary_key, write)
            }
        }
    }

    #[inline]
    fn in_shard<T>(
        &mut self,
        shard: ShardNumber,
        primary_key: &[u8],
        mut write: impl FnMut(&mut placement::Writer<'_, '_>) -> Result<T>,
    ) -> Result<T> {
        let mut outcome = None;
        self.txn.write(self.tables, shard, Some(primary_key), &mut |writer| {
            outcome = Some(write(writer)?);
            Ok(())
        })?;
        outcome.ok_or_else(|| Error::internal("a shard was not written"))
    }

    /// Writes a row whose primary key determines no shard.
    #[cold]
    fn without_a_shard<T>(
        &mut self,
        primary_key: &[u8],
        mut write: impl FnMut(&mut placement::Writer<'_, '_>) -> Result<T>,
    ) -> Result<T> {
        if !self.tables.routing.is_reference() {
            return Err(self.tables.no_shard(primary_key));
        }
        let mut outcome = None;
        self.copies(Some(primary_key), &mut |writer| {
            outcome = Some(write(writer)?);
            Ok(())
        })?;
        outcome.ok_or_else(|| Error::internal("a store has no shards"))
    }

    /// Writes in all copies of a reference table.
    fn copies(
        &mut self,
        primary_key: Option<&[u8]>,
        write: &mut dyn FnMut(&mut placement::Writer<'_, '_>) -> Result<()>,
    ) -> Result<()> {
        let shards = self.tables.routing.shards();
        // A shard that can't be written is found before any copy has changed.
        for shard in shards {
            self.txn.reader(self.tables, *shard, primary_key)?;
        }
        shards
            .iter()
            .try_for_each(|shard| self.txn.write(self.tables, *shard, primary_key, &mut *write))
    }

    /// Writes in the only shard of the table, or in all copies of a reference table.
    fn only(
        &mut self,
        what: &'static str,
        write: &mut dyn FnMut(&mut placement::Writer<'_, '_>) -> Result<()>,
    ) -> Result<()> {
        if self.tables.routing.is_reference() {
            return self.copies(None, write);
        }
        let shard = self.only_shard(what)?;
        self.txn.write(self.tables, shard, None, write)
    }

    /// Returns the shards of the table, or the only shard of the transaction.
    pub(crate) fn parts(&self) -> Vec<ShardNumber> {
        let alone = self.txn.alone();
        let shards = self.tables.routing.all_shards().iter().copied();
        shards.filter(|shard| alone.is_none_or(|alone| alone == *shard)).collect()
    }

    /// Returns the shards that can have changes in the stream of the table, or the only shard of the transaction.
    pub(crate) fn with_changes(&self) -> Vec<ShardNumber> {
        let alone = self.txn.alone();
        let shards = self.tables.with_changes().into_iter();
        shards.filter(|shard| alone.is_none_or(|alone| alone == *shard)).collect()
    }

    /// Whether this transaction is limited to one shard.
    pub(crate) fn is_alone(&self) -> bool {
        self.txn.alone().is_some()
    }

    /// Whether the table has global indexes, or parts of rows in other shards, and this transaction is not limited to one
    /// shard.
    pub(crate) fn spans_shards(&self) -> bool {
        (self.has_global() || self.routing().has_main_rows_elsewhere()) && !self.is_alone()
    }

    /// Returns the routing of the table.
    pub(crate) const fn routing(&self) -> &'t Routing {
        &self.tables.routing
    }

    /// Whether every shard has a copy of the table.
    pub(crate) const fn is_reference(&self) -> bool {
        self.tables.routing.is_reference()
    }

    /// Returns the name of a shard.
    pub(crate) fn name(&self, shard: ShardNumber) -> Result<&'t Arc<str>> {
        Ok(self.engine.shard(shard)?.name())
    }

    /// Writes rows or entries in one shard, regardless of the routing.
    pub(crate) fn part(
        &mut self,
        shard: ShardNumber,
        write: &mut dyn FnMut(&mut placement::Writer<'_, '_>) -> Result<()>,
    ) -> Result<()> {
        if self.tables.routing.moves() || self.hides() {
            self.lock(shard, None)?;
            self.engine.restart_moves();
        }
        self.beside(shard, write)
    }

    /// Writes in one shard: records that moves don't copy, or the copies of a move itself.
    pub(crate) fn beside(
        &mut self,
        shard: ShardNumber,
        write: &mut dyn FnMut(&mut placement::Writer<'_, '_>) -> Result<()>,
    ) -> Result<()> {
        self.txn.write(self.tables, shard, None, write)
    }

    /// Whether this record is the same in each shard of the table: its analysis, or in a table with global indexes the
    /// state of such an index, or an older version of the rows.
    fn is_common(&self, space: Space, key: &[u8]) -> bool {
        let routing = &self.tables.routing;
        let global = routing.global_indexes();
        let name = |global: &GlobalIndex| routing.schema().indexes.get(global.index())?.name.into();
        let is_version = || str::from_utf8(key).is_ok_and(|key| version_of(key).is_some());
        let is_of_global = || {
            !global.is_empty()
                && (is_version()
                    || global.iter().filter_map(name).any(|name: &str| name.as_bytes() == key))
        };
        space == Space::Catalog && (key == ANALYSIS.as_bytes() || is_of_global())
    }

    /// Writes in each shard of the table.
    fn everywhere(
        &mut self,
        write: &mut dyn FnMut(&mut placement::Writer<'_, '_>) -> Result<()>,
    ) -> Result<()> {
        let tables = self.tables;
        let mut shards = tables.routing.all_shards().iter();
        shards.try_for_each(|shard| self.txn.write(tables, *shard, None, write))
    }

    fn only_shard(&self, what: &'static str) -> Result<ShardNumber> {
        match self.tables.routing.shards() {
            [only] => Ok(*only),
            _ => Err(Error::NotOffered { what }),
        }
    }

    pub(crate) fn change(&mut self, change: Change<'_>) -> Result<()> {
        match change {
            Change::PutFact { primary_key, .. } | Change::DeleteFact { primary_key } => {
                self.tables.count_row(true, primary_key);
                self.row(primary_key, |writer| writer.change(change))
            }
            Change::PutEntry { index, key, primary_key, .. }
            | Change::DeleteEntry { index, key, primary_key } => {
                self.entry((index, key, primary_key), |writer| writer.change(change))
            }
        }
    }

    pub(crate) fn append(&mut self, source: Source, entries: &mut dyn Ascending) -> Result<u64> {
        let mut count = 0;
        while let Some(entry) = entries.next()? {
            self.change(entry.put(source))?;
            count += 1;
        }
        Ok(count)
    }

    #[expect(clippy::unused_self, reason = "as with other engines")]
    pub(crate) const fn defer_new(&self) -> bool {
        false
    }

    #[expect(clippy::unnecessary_wraps, clippy::unused_self, reason = "as with other engines")]
    pub(crate) const fn settle_new(&self) -> Result<bool> {
        Ok(true)
    }

    #[expect(clippy::unused_self, reason = "as with other engines")]
    pub(crate) const fn abandon_new(&self) {}

    pub(crate) fn insert_fact(&mut self, primary_key: &[u8], row: &[u8]) -> Result<bool> {
        self.tables.count_row(true, primary_key);
        self.row(primary_key, |writer| writer.insert_fact(primary_key, row))
    }

    pub(crate) fn insert_entry(
        &mut self,
        index: usize,
        key: &[u8],
        primary_key: &[u8],
        data: &[u8],
    ) -> Result<bool> {
        let inserted = self.entry((index, key, primary_key), |writer| {
            writer.insert_entry(index, key, primary_key, data)
        })?;
        let tables = self.tables;
        match tables.routing.global(index) {
            Some(global) if !inserted && global.hides() => {
                self.replace_hidden(global, (key, primary_key, data))
            }
            _ => Ok(inserted),
        }
    }

    pub(crate) fn put_shared(
        &mut self,
        index: usize,
        key: &[u8],
        primary_key: &[u8],
        data: &[u8],
    ) -> Result<()> {
        self.entry((index, key, primary_key), |writer| {
            writer.put_shared(index, key, primary_key, data)
        })
    }

    pub(crate) fn remove_shared(
        &mut self,
        index: usize,
        key: &[u8],
        primary_key: &[u8],
    ) -> Result<()> {
        self.entry((index, key, primary_key), |writer| {
            writer.remove_shared(index, key, primary_key)
        })
    }

    /// Does nothing, because the engines of shards delay no changes.
    #[expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "as with other engines")]
    pub(crate) const fn flush(&mut self) -> Result<()> {
        Ok(())
    }

    pub(crate) fn clear(&mut self, index: usize) -> Result<()> {
        let tables = self.tables;
        let shards = tables.routing.shards_with(Source::Index(index)).iter();
        if tables.routing.omits(Source::Index(index)) {
            shards.clone().try_for_each(|shard| self.lock(*shard, None))?;
            self.engine.restart_moves();
        }
        shards.copied().try_for_each(|shard| {
            self.txn.write(tables, shard, None, &mut |writer| writer.clear(index))
        })
    }

    pub(crate) fn put(&mut self, space: Space, key: &[u8], record: &[u8]) -> Result<()> {
        if self.is_common(space, key) {
            return self.everywhere(&mut |writer| writer.put(space, key, record));
        }
        if space == Space::Sequence
            && (!key.is_empty() || self.tables.routing.is_placed())
            && let Some(shard) = self.tables.routing.shard_of_shard_key(key)
        {
            let routing = &self.tables.routing;
            if routing.moves() {
                self.lock(shard, None)?;
                let (table, map_key) = (routing.schema().name, routing.map_key_of(key));
                let changed = || Tracked::Sequence(table, key.to_vec());
                let at = (routing.map(), &*map_key);
                self.engine.track(routing, at, (key, Author::Row), changed)?;
            }
            return self.beside(shard, &mut |writer| writer.put(space, key, record));
        }
        self.only(SMALL, &mut |writer| writer.put(space, key, record))
    }

    pub(crate) fn remove(&mut self, space: Space, key: &[u8]) -> Result<()> {
        if self.is_common(space, key) {
            return self.everywhere(&mut |writer| writer.remove(space, key));
        }
        self.only(SMALL, &mut |writer| writer.remove(space, key))
    }

    pub(crate) fn clear_space(&mut self, space: Space) -> Result<()> {
        self.only(SMALL, &mut |writer| writer.clear_space(space))
    }

    pub(crate) fn layout(&self, index: &IndexSchema) -> &'static str {
        self.engine.layout(self.tables.routing.schema(), index)
    }
}

/// The uses of small records of a table.
const SMALL: &str =
    "numbering rows, and building indexes step by step, of a table with a shard key";
