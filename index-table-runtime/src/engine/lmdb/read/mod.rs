//! Reading. A [`Reader`] looks up single entries. [`entries`] iterates over the entries of a scan, on top of the
//! physical entries of a [`range`]. [`count`] counts them.

mod count;
mod entries;
mod packed;
mod parts;
mod range;
mod reader;

pub(crate) use entries::{Entries, LentEntries};
pub(super) use parts::Parts;
pub(super) use range::PhysicalRange;
pub(crate) use reader::Reader;

use super::{
    blocks,
    layout::Layout,
    short::Packed,
    tables::{Index, Small},
};
use crate::{
    engine::{Count, Query, Read, Space},
    model::{
        entry::{ShortEntry, ShortKey},
        error::Result,
        reference::Referrer,
        schema::{Source, TableSchema},
    },
};

impl<'t> Reader<'t> {
    /// Returns the reference at this position to the table.
    #[inline]
    pub(crate) fn referrer(self, at: usize) -> Option<&'t Referrer> {
        self.tables.referrers.get(at).map(|link| &link.by)
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
            Layout::Unique | Layout::ShortUnique { .. } => {
                let parts = Parts::of(self.tables.schema, Source::Index(index));
                let own = |value: Option<&'t [u8]>| {
                    let (holder, data) = parts.first(value?)?;
                    holder.is(primary_key).then_some(data)
                };
                match own(self.value(database, key)?) {
                    None => Ok(own(self.value(database, &joined())?)),
                    own => Ok(own),
                }
            }
            Layout::Entries => self.value(database, &joined()),
            Layout::Blocks { .. } => {
                let block = self.at_or_below(database, &joined())?;
                let holds = |(physical, value): (&[u8], &[u8])| {
                    blocks::is_block_of(key, primary_key.len(), physical)
                        && Packed::read(value, primary_key.len())
                            .is_some_and(|packed| packed.place(primary_key).is_ok())
                };
                Ok(block.filter(|block| holds(*block)).map(|_| &[][..]))
            }
        }
    }

    #[inline]
    fn unique(self, index: usize, key: &[u8]) -> Result<Option<ShortEntry<'t>>> {
        let source = Source::Index(index);
        // LMDB's `get` returns no key, and the lifetime of the caller's key is shorter than that of the page.
        let (Index { database, layout, .. }, _) = self.index(index)?;
        let Some(value) = self.value(database, key)? else { return Ok(None) };
        if let Layout::ShortUnique { primary_key } = layout
            && let Some(zeros) = primary_key.checked_sub(value.len())
            && !value.is_empty()
        {
            let primary_key = ShortKey { bytes: value, zeros };
            return Ok(Some(ShortEntry { key: &[], primary_key, data: &[] }));
        }
        let parts = Parts::of(self.tables.schema, source);
        match parts.first(value) {
            Some((primary_key, data)) => Ok(Some(ShortEntry { key: &[], primary_key, data })),
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
        self.check_around(small.database, &from)?;
        let found = small.database.get_greater_than_or_equal_to(self.txn, &from);
        found.map(|found| small.own(found)).map_err(|error| self.engine.error(error))
    }

    fn below(self, space: Space, key: &[u8]) -> Result<Option<(&'t [u8], &'t [u8])>> {
        let Some(small) = self.tables.small(space) else { return Ok(None) };
        let below = self.tables.small_key(space, key);
        self.check_around(small.database, &below)?;
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
