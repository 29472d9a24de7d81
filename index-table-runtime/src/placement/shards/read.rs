//! Reading a table in its shards.

use std::{collections::BTreeMap, sync::Arc};

use super::{Entries, Filter, LentEntries, Tables, txn::Reads};
use crate::{
    engine::{self, Query, Read, Space, WithRow},
    model::{
        KeyRange,
        entry::{KeyBuffer, ShortEntry},
        error::{Error, Result},
        schema::{Source, TableSchema},
        shard::{Routing, ShardNumber, ShardSet, Shards},
    },
    placement,
};

/// The part of a table that is in one shard.
pub(crate) struct Part<'t> {
    /// The name of the shard.
    pub(crate) shard: &'t Arc<str>,
    pub(crate) number: ShardNumber,
    pub(crate) routing: &'t Routing,
    pub(crate) reader: placement::Reader<'t>,
    /// The first copy of a reference table, if this is another copy.
    pub(crate) first_copy: Option<placement::Reader<'t>>,
}

/// A reader of one table in one transaction. It is as large as LMDB's reader, so that it doesn't enlarge the common
/// type.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'t> {
    pub(super) txn: &'t dyn Reads,
    tables: &'t Tables,
}

impl<'t> Reader<'t> {
    pub(super) const fn new(txn: &'t dyn Reads, tables: &'t Tables) -> Self {
        Self { txn, tables }
    }

    pub(super) const fn tables(self) -> &'t Tables {
        self.tables
    }

    /// Returns a reader of the shard of a row.
    #[inline]
    pub(crate) fn of_row(self, primary_key: &[u8]) -> Result<placement::Reader<'t>> {
        let shard = match self.tables.routing.shard_of(primary_key) {
            Some(shard) => shard,
            None => self.without_a_shard(primary_key)?,
        };
        self.txn.reader(self.tables, shard, Some(primary_key)).map(placement::Reader::One)
    }

    /// Returns the shard of a row whose primary key determines none: a shard with a copy of a reference table.
    #[cold]
    fn without_a_shard(self, primary_key: &[u8]) -> Result<ShardNumber> {
        if self.tables.routing.is_reference() {
            return Ok(self.txn.nearest(self.tables));
        }
        Err(self.tables.no_shard(primary_key))
    }

    /// Returns the reader of one shard.
    pub(crate) fn of_shard(self, shard: ShardNumber) -> Result<placement::Reader<'t>> {
        self.member(shard).map(placement::Reader::One)
    }

    /// Returns the engine's reader of one shard.
    pub(super) fn member(self, shard: ShardNumber) -> Result<engine::Reader<'t>> {
        self.txn.reader(self.tables, shard, None)
    }

    /// Returns readers of the shards that together have each row exactly once, or of the shard with this shard key.
    pub(crate) fn of_shards(self, shard_key: Option<&[u8]>) -> Result<Vec<placement::Reader<'t>>> {
        let own = match shard_key {
            Some(key) => {
                let shard = self.tables.routing.shard_of(key);
                Shards::One([shard.ok_or_else(|| self.tables.no_shard(key))?])
            }
            None => self.shards(),
        };
        own.iter().map(|shard| self.of_shard(*shard)).collect()
    }

    /// Returns the shards that can have entries within bounds.
    fn shards_within(self, source: Source, bounds: &KeyRange) -> Result<Shards<'t>> {
        if self.tables.routing.is_reference() {
            return Ok(self.shards());
        }
        let shards = self.tables.routing.shards_of(source, bounds);
        shards.map_err(|shard_key| self.tables.no_shard(&shard_key))
    }

    /// Returns the shards that a query reads.
    pub(super) fn shards_of(self, query: &Query) -> Result<Shards<'t>> {
        let shards = self.shards_within(query.source, &query.bounds)?;
        if query.available {
            return Ok(self.only_available(&shards));
        }
        Ok(shards)
    }

    #[cold]
    fn only_available(self, shards: &[ShardNumber]) -> Shards<'t> {
        let is_available = |shard: &ShardNumber| self.txn.available(self.tables, *shard).is_ok();
        Shards::Some(shards.iter().copied().filter(is_available).collect())
    }

    /// Returns a reader of the shard with all entries and rows of a query, and adds this shard to `shards`. If there
    /// may be several, returns the reader of all shards.
    #[cold]
    pub(crate) fn of_query(
        self,
        query: &Query,
        shards: &mut ShardSet,
    ) -> Result<placement::Reader<'t>> {
        let is_global = match query.source {
            Source::Facts => false,
            Source::Index(index) => self.tables.routing.global(index).is_some(),
        };
        if !is_global {
            self.tables.count_query(query);
        }
        // The rows of a global index may be in other shards, and each value of a list may be in a different shard.
        if !is_global
            && !self.tables.routing.omits(query.source)
            && query.list.is_none()
            && let [shard] = *self.shards_of(query)?
        {
            let reader = self.of_shard(shard)?;
            shards.insert(shard);
            return Ok(reader);
        }
        Ok(placement::Reader::Several(self))
    }

    /// Adds the shards that a query reads, and returns their number.
    #[cold]
    pub(crate) fn note(self, query: &Query, shards: &mut ShardSet) -> u64 {
        let Ok(read) = self.shards_of(query) else { return 0 };
        read.iter().for_each(|shard| shards.insert(*shard));
        read.len() as u64
    }

    /// Adds the shard of a row.
    #[cold]
    pub(crate) fn note_row(self, primary_key: &[u8], shards: &mut ShardSet) {
        let shard = self.tables.routing.shard_of(primary_key);
        if let Ok(shard) = shard.map_or_else(|| self.without_a_shard(primary_key), Ok) {
            shards.insert(shard);
        }
    }

    /// Whether the table has global indexes.
    pub(crate) const fn has_global(self) -> bool {
        !self.tables.routing.global_indexes().is_empty()
    }

    /// Adds the shards that a query needs but that are not available, with the reasons.
    pub(crate) fn missing(self, query: &Query, missing: &mut BTreeMap<ShardNumber, Error>) {
        let Ok(shards) = self.shards_within(query.source, &query.bounds) else { return };
        let rows = self.leaving_out(query).map(|_| self.tables.routing.shards());
        for shard in shards.iter().chain(rows.into_iter().flatten()) {
            if let Err(error) = self.txn.available(self.tables, *shard) {
                missing.insert(*shard, error);
            }
        }
    }

    /// Returns the parts of the table in its shards, or in the only shard of the transaction.
    ///
    /// # Errors
    ///
    /// [`Error::ShardUnavailable`]
    pub(crate) fn parts(self) -> Result<Vec<Part<'t>>> {
        let (routing, engine) = (&self.tables.routing, self.txn.engine());
        let alone = self.txn.alone();
        let is_read = |shard: &&ShardNumber| alone.is_none_or(|alone| alone == **shard);
        let mut parts: Vec<Part<'t>> = Vec::new();
        for number in routing.all_shards().iter().filter(is_read).copied() {
            if alone.is_none() && self.lacks_copy(number)? {
                continue;
            }
            let reader = self.of_shard(number)?;
            let first_copy = parts.first().map(|first| first.reader);
            let first_copy = first_copy.filter(|_| routing.is_reference());
            let shard = engine.shard(number)?.name();
            parts.push(Part { shard, number, routing, reader, first_copy });
        }
        Ok(parts)
    }

    /// Whether a reader has opened the table before a writer that makes the copies of a reference table after the store has grown.
    fn lacks_copy(self, shard: ShardNumber) -> Result<bool> {
        let (routing, engine) = (&self.tables.routing, self.txn.engine());
        Ok(routing.is_reference()
            && self.tables.in_shard(shard).is_none()
            && engine.is_read_only()
            && engine.is_from_one_file(routing.schema().name)?)
    }

    /// Returns the readers of the shards that can have changes in the stream of the table.
    ///
    /// # Errors
    ///
    /// [`Error::ShardUnavailable`] for any shard from which rows of the table may have been moved away.
    pub(crate) fn with_changes(self) -> Result<Vec<(ShardNumber, placement::Reader<'t>)>> {
        let is_moved = !self.tables.routing.map().is_empty();
        for (_, shard) in self.txn.engine().shards().filter(|_| is_moved) {
            shard.present()?;
        }
        let shards = self.tables.with_changes();
        let alone = self.txn.alone();
        let is_read = |shard: &ShardNumber| alone.is_none_or(|alone| alone == *shard);
        let shards = shards.into_iter().filter(is_read);
        shards.map(|shard| Ok((shard, self.of_shard(shard)?))).collect()
    }

    /// Whether this transaction is limited to one shard.
    pub(crate) fn is_alone(self) -> bool {
        self.txn.alone().is_some()
    }

    /// Whether the table has global indexes, or parts of rows in other shards, and this transaction is not limited to one
    /// shard.
    pub(crate) fn spans_shards(self) -> bool {
        (self.has_global() || self.routing().has_main_rows_elsewhere())
            && self.txn.alone().is_none()
    }

    /// Returns the routing of the table.
    pub(crate) const fn routing(self) -> &'t Routing {
        &self.tables.routing
    }

    /// Returns shards that together have each row exactly once.
    fn shards(self) -> Shards<'t> {
        if self.tables.routing.is_reference() {
            return Shards::One([self.txn.nearest(self.tables)]);
        }
        Shards::All(self.tables.routing.shards())
    }

    /// Returns shards that together have each entry of `source` exactly once.
    fn shards_with(self, source: Source) -> Shards<'t> {
        match self.shards() {
            Shards::All(_) => Shards::All(self.tables.routing.shards_with(source)),
            nearest => nearest,
        }
    }

    /// Prepares a query of a global index for single shards: without rows, which may be in other shards. Returns the
    /// filter of [`leaving_out`](Self::leaving_out).
    #[inline]
    fn of_global(self, query: &mut Query) -> Option<Self> {
        if self.has_global() { self.of_any_index(query) } else { None }
    }

    #[cold]
    fn of_any_index(self, query: &mut Query) -> Option<Self> {
        let Source::Index(index) = query.source else { return None };
        self.tables.routing.global(index)?;
        query.rows = false;
        if query.available {
            // Filtered entries don't count.
            query.limit = None;
        }
        self.leaving_out(query)
    }

    /// Returns a filter by [`has_shard_of`](Self::has_shard_of), if a query leaves out entries whose rows are in
    /// unavailable shards.
    pub(super) fn leaving_out(self, query: &Query) -> Option<Self> {
        let Source::Index(index) = query.source else { return None };
        (query.available && self.tables.routing.global(index).is_some()).then_some(self)
    }

    /// Prepares a query for single shards, and returns the filter of their entries, if one is needed: while rows are being
    /// moved, while a global index has hidden entries, and for a query that leaves out unavailable shards.
    #[inline]
    fn filter(self, query: &mut Query, rows: Option<Self>) -> Option<Filter<'t>> {
        let omits = self.tables.routing.omits(query.source);
        if rows.is_none() && !omits {
            return None;
        }
        if omits {
            // Filtered entries don't count.
            query.limit = None;
        }
        let omitted = omits.then_some((self, query.source));
        Some(Filter { rows, omitted, shards: Vec::new() })
    }

    /// Whether queries leave out an entry of a shard: it is a copy of an entry of another shard, or hidden.
    pub(super) fn omits(self, source: Source, keys: (&[u8], &[u8]), shard: ShardNumber) -> bool {
        self.tables.routing.is_omitted(source, keys, shard)
    }

    /// Whether the shard of a row is available.
    pub(super) fn has_shard_of(self, primary_key: &[u8]) -> bool {
        let shard = self.tables.routing.shard_of(primary_key);
        shard.is_none_or(|shard| self.txn.available(self.tables, shard).is_ok())
    }

    pub(crate) fn scan(self, mut query: Query) -> Result<placement::Entries<'t>> {
        let rows = self.of_global(&mut query);
        let shards = self.shards_of(&query)?;
        let filter = self.filter(&mut query, rows);
        if let [shard] = *shards
            && filter.is_none()
        {
            return self.of_shard(shard)?.scan(query);
        }
        let (mut streams, reverse) = (Vec::with_capacity(shards.len()), query.reverse);
        for shard in shards.iter().copied() {
            streams.push(self.member(shard)?.scan(query.clone())?);
        }
        let filter = filter.map(|filter| filter.of(&shards));
        Ok(placement::Entries::Several(Entries::new(streams, reverse, filter)))
    }

    pub(crate) fn cursor(self, mut query: Query) -> Result<placement::LentEntries<'t>> {
        let rows = self.of_global(&mut query);
        let shards = self.shards_of(&query)?;
        let filter = self.filter(&mut query, rows);
        if let [shard] = *shards
            && filter.is_none()
        {
            return self.of_shard(shard)?.cursor(query);
        }
        let (mut streams, reverse) = (Vec::with_capacity(shards.len()), query.reverse);
        for shard in shards.iter().copied() {
            streams.push(self.member(shard)?.cursor(query.clone())?);
        }
        let filter = filter.map(|filter| filter.of(&shards));
        Ok(placement::LentEntries::Several(LentEntries::new(streams, reverse, filter)))
    }

    pub(crate) fn table(self) -> &'static TableSchema {
        self.tables.routing.schema()
    }

    pub(crate) fn fact(self, primary_key: &[u8]) -> Result<Option<&'t [u8]>> {
        self.tables.count_row(false, primary_key);
        self.of_row(primary_key)?.fact(primary_key)
    }

    pub(crate) fn facts<'k>(
        self,
        primary_keys: impl Iterator<Item = &'k [u8]>,
        mut each: impl FnMut(Option<&'t [u8]>),
    ) -> Result<()> {
        for primary_key in primary_keys {
            each(self.fact(primary_key)?);
        }
        Ok(())
    }

    #[expect(clippy::unused_self, reason = "as with other engines")]
    pub(crate) const fn facts_at_once(self) -> usize {
        1
    }

    pub(crate) fn entry(
        self,
        index: usize,
        key: &[u8],
        primary_key: &[u8],
    ) -> Result<Option<&'t [u8]>> {
        let reader = match self.tables.routing.global(index) {
            None => self.of_row(primary_key)?,
            Some(global) => {
                let shard = self.tables.shard_of_global(global, index, key)?;
                let reader = self.txn.reader(self.tables, shard, Some(primary_key))?;
                placement::Reader::One(reader)
            }
        };
        reader.entry(index, key, primary_key)
    }

    pub(crate) fn unique_row(self, index: usize, key: &[u8]) -> Result<Option<WithRow<'t>>> {
        Ok(self.unique(index, key)?.map(|entry| (entry, None)))
    }

    pub(crate) fn unique(self, index: usize, key: &[u8]) -> Result<Option<ShortEntry<'t>>> {
        // A unique index contains the shard key or is global, so this is a single shard.
        let shards = self.shards_within(Source::Index(index), &KeyRange::beginning_with(key))?;
        let mut first: Option<ShortEntry<'t>> = None;
        let (source, mut buffer) = (Source::Index(index), KeyBuffer::new());
        for shard in shards.iter().copied() {
            let found = self.of_shard(shard)?.unique(index, key)?;
            let found = found.filter(|found| {
                !self.omits(source, (key, found.primary_key.in_buffer(&mut buffer)), shard)
            });
            let is_before = |found: &ShortEntry<'_>| {
                first.is_none_or(|first| found.primary_key.compare(first.primary_key).is_lt())
            };
            first = found.filter(is_before).or(first);
        }
        Ok(first)
    }

    pub(crate) fn stored(self, source: Source) -> Result<Option<u64>> {
        if self.tables.routing.omits(source) {
            // The shards also count these entries.
            return Ok(None);
        }
        let mut total = Some(0);
        for shard in self.shards_with(source).iter() {
            let stored = self.of_shard(*shard)?.stored(source)?;
            total = total.zip(stored).map(|(total, stored)| total + stored);
        }
        Ok(total)
    }

    pub(crate) fn get(self, space: Space, key: &[u8]) -> Result<Option<&'t [u8]>> {
        // Other shards can have entries of global indexes, and states of these indexes.
        let is_state = || space == Space::Catalog && !key.is_empty() && self.has_global();
        if let [only] = self.tables.routing.shards()
            && !is_state()
        {
            return self.of_shard(*only)?.get(space, key);
        }
        if space == Space::Sequence && !key.is_empty() {
            // The key is a shard key.
            let shard = self.tables.routing.shard_of_shard_key(key);
            let shard = shard.ok_or_else(|| self.tables.no_shard(key))?;
            return self.of_shard(shard)?.get(space, key);
        }
        let mut first = None;
        let shards = match self.shards() {
            Shards::All(_) => Shards::All(self.tables.routing.all_shards()),
            nearest => nearest,
        };
        for shard in shards.iter() {
            // Shards that are not available are skipped.
            let Ok(declared) =
                self.tables.opened(self.txn.engine(), *shard).map(|open| &*open.record)
            else {
                continue;
            };
            let reader = match self.of_shard(*shard) {
                // A transaction of one shard reads the catalog of that shard only.
                Err(Error::OtherShard { .. }) if space == Space::Catalog => continue,
                reader => reader?,
            };
            let found = reader.get(space, key)?;
            if space == Space::Catalog && key.is_empty() && found != Some(declared) {
                // Another process has changed the declaration of the table.
                return Ok(found);
            }
            first = first.or(found);
        }
        Ok(first)
    }

    pub(crate) fn at_or_above(
        self,
        space: Space,
        key: &[u8],
    ) -> Result<Option<(&'t [u8], &'t [u8])>> {
        let mut least: Option<(&'t [u8], &'t [u8])> = None;
        for shard in self.shards().iter() {
            let found = self.of_shard(*shard)?.at_or_above(space, key)?;
            least = match (least, found) {
                (Some(least), Some(found)) if found.0 < least.0 => Some(found),
                (least, found) => least.or(found),
            };
        }
        Ok(least)
    }

    pub(crate) fn below(self, space: Space, key: &[u8]) -> Result<Option<(&'t [u8], &'t [u8])>> {
        let mut greatest: Option<(&'t [u8], &'t [u8])> = None;
        for shard in self.shards().iter() {
            let found = self.of_shard(*shard)?.below(space, key)?;
            greatest = match (greatest, found) {
                (Some(greatest), Some(found)) if found.0 > greatest.0 => Some(found),
                (greatest, found) => greatest.or(found),
            };
        }
        Ok(greatest)
    }

    pub(crate) fn len(self, space: Space) -> Result<u64> {
        let len = |total, shard: &ShardNumber| Ok(total + self.of_shard(*shard)?.len(space)?);
        self.shards().iter().try_fold(0, len)
    }
}
