//! Reading: a [`Reader`] looks up single entries, [`entries`] are those of a scan, over the steps of
//! a [`range`], and [`count`] counts them.

mod count;
mod entries;
mod packed;
mod parts;
mod range;

pub(crate) use entries::{Entries, LentEntries};
pub(super) use parts::Parts;
pub(super) use range::PhysicalRange;

use heed::{AnyTls, RoTxn};

use super::{
    Database, Layout, Pieces, blocks,
    env::{Engine, Index, Small, Tables},
};
use crate::{
    engine::{Count, Query, Read, Space},
    model::{
        entry::RawEntry,
        error::{Error, Result},
        key::MAX_KEY_LEN,
        schema::{IndexSchema, Source, TableSchema},
    },
};

/// Reads one table in one transaction.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'t> {
    engine: &'t Engine,
    txn: &'t RoTxn<'t, AnyTls>,
    pub(super) tables: &'t Tables<'t>,
}

impl<'t> Reader<'t> {
    pub(super) const fn new(
        engine: &'t Engine,
        txn: &'t RoTxn<'t, AnyTls>,
        tables: &'t Tables<'t>,
    ) -> Self {
        Self { engine, txn, tables }
    }

    #[expect(clippy::inline_always, reason = "each point lookup would make one more call")]
    #[inline(always)]
    fn value(self, database: &Database<'_>, key: &[u8]) -> Result<Option<&'t [u8]>> {
        if key.is_empty() || key.len() > MAX_KEY_LEN {
            // LMDB has no such key, and answers with an error.
            return Ok(None);
        }
        database.get(self.txn, key).map_err(|error| self.engine.error(error))
    }

    /// The last entry at this place or before it.
    pub(super) fn at_or_below(
        self,
        database: &Database<'_>,
        at: &[u8],
    ) -> Result<Option<(&'t [u8], &'t [u8])>> {
        if at.is_empty() || at.len() > MAX_KEY_LEN {
            return Ok(None);
        }
        let found = database.get_lower_than_or_equal_to(self.txn, at);
        found.map_err(|error| self.engine.error(error))
    }

    /// The pieces of an index behind a place.
    pub(crate) fn pieces(self, index: usize, behind: Option<&[u8]>) -> Result<Pieces<'t>> {
        Pieces::new(self, index, behind)
    }

    pub(super) fn index(self, position: usize) -> Result<(&'t Index<'t>, &'static IndexSchema)> {
        let index = self.tables.indexes.get(position);
        index.zip(self.tables.schema.indexes.get(position)).ok_or_else(|| {
            let table = self.tables.schema.name;
            Error::internal(format!("table `{table}` has no index at position {position}"))
        })
    }

    pub(super) fn database(self, source: Source) -> Result<&'t Database<'t>> {
        match source {
            Source::Facts => Ok(&self.tables.facts),
            Source::Index(position) => self.index(position).map(|(index, _)| &index.database),
        }
    }

    /// How an index is laid out; `None` for the fact table.
    fn layout(self, source: Source) -> Option<Layout> {
        match source {
            Source::Facts => None,
            Source::Index(position) => self.index(position).ok().map(|(index, _)| index.layout),
        }
    }

    /// The bytes of the pages of a database.
    pub(crate) fn bytes_of(self, source: Source) -> Result<u64> {
        let stat =
            self.database(source)?.stat(self.txn).map_err(|error| self.engine.error(error))?;
        let pages = stat.branch_pages + stat.leaf_pages + stat.overflow_pages;
        Ok(pages as u64 * u64::from(stat.page_size))
    }

    pub(super) fn len_of(self, source: Source) -> Result<u64> {
        self.database(source)?.len(self.txn).map_err(|error| self.engine.error(error))
    }
}

impl<'t> Read<'t> for Reader<'t> {
    type Entries = Entries<'t>;
    type Cursor = LentEntries<'t>;

    fn table(self) -> &'static TableSchema {
        self.tables.schema
    }

    fn fact(self, primary_key: &[u8]) -> Result<Option<&'t [u8]>> {
        self.value(&self.tables.facts, primary_key)
    }

    fn entry(self, index: usize, key: &[u8], primary_key: &[u8]) -> Result<Option<&'t [u8]>> {
        let Index { database, layout, .. } = self.index(index)?.0;
        let joined = || [key, primary_key].concat();
        match layout {
            Layout::Unique => {
                let own = |value: Option<&'t [u8]>| value?.strip_prefix(primary_key);
                match own(self.value(database, key)?) {
                    None => Ok(own(self.value(database, &joined())?)),
                    own => Ok(own),
                }
            }
            Layout::Entries => self.value(database, &joined()),
            Layout::Blocks { .. } => {
                let block = self.at_or_below(database, &joined())?;
                let holds = |(physical, packed): (&[u8], &[u8])| {
                    blocks::is_block_of(key, primary_key.len(), physical)
                        && blocks::place(packed, primary_key.len(), primary_key).is_ok()
                };
                Ok(block.filter(|block| holds(*block)).map(|_| &[][..]))
            }
        }
    }

    fn unique(self, index: usize, key: &[u8]) -> Result<Option<RawEntry<'t>>> {
        let source = Source::Index(index);
        // `get` gives no key back, and the caller's doesn't live as long as the page.
        let Some(value) = self.value(self.database(source)?, key)? else { return Ok(None) };
        let parts = Parts::of(self.tables.schema, source);
        match parts.first(value) {
            Some((primary_key, data)) => Ok(Some(RawEntry { key: &[], primary_key, data })),
            None => Err(parts.damaged(source, key, value)),
        }
    }

    fn scan(self, query: Query) -> Result<Entries<'t>> {
        Entries::new(self, query)
    }

    fn count(self, query: &Query) -> Result<Count> {
        count::count(self, query)
    }

    fn cursor(self, query: Query) -> Result<LentEntries<'t>> {
        LentEntries::new(self, query)
    }

    fn stored(self, source: Source) -> Result<Option<u64>> {
        self.len_of(source).map(Some)
    }

    fn get(self, space: Space, key: &[u8]) -> Result<Option<&'t [u8]>> {
        let Some(Small { database, .. }) = self.tables.small(space) else { return Ok(None) };
        self.value(database, &self.tables.small_key(space, key))
    }

    fn at_or_above(self, space: Space, key: &[u8]) -> Result<Option<(&'t [u8], &'t [u8])>> {
        let Some(small) = self.tables.small(space) else { return Ok(None) };
        let from = self.tables.small_key(space, key);
        let found = small.database.get_greater_than_or_equal_to(self.txn, &from);
        found.map(|found| small.own(found)).map_err(|error| self.engine.error(error))
    }

    fn below(self, space: Space, key: &[u8]) -> Result<Option<(&'t [u8], &'t [u8])>> {
        let Some(small) = self.tables.small(space) else { return Ok(None) };
        let below = self.tables.small_key(space, key);
        let found = small.database.get_lower_than(self.txn, &below);
        found.map(|found| small.own(found)).map_err(|error| self.engine.error(error))
    }

    fn len(self, space: Space) -> Result<u64> {
        let Some(small) = self.tables.small(space) else { return Ok(0) };
        if small.prefix.is_empty() {
            return small.database.len(self.txn).map_err(|error| self.engine.error(error));
        }
        let mut count = u64::from(self.get(space, &[])?.is_some());
        let mut from = vec![0];
        while let Some((key, _)) = self.at_or_above(space, &from)? {
            count += 1;
            from = [key, &[0]].concat();
        }
        Ok(count)
    }
}
