//! Reading: a [`Reader`] of one table, and the [`Entries`] of a scan.

use std::{collections::btree_map, ops::Bound};

use super::{Databases, Map, Tables};
use crate::{
    engine::{Count, Cursor, EntryResult, LongLived, Query, Read, Space},
    model::{
        KeyRange,
        entry::{RawEntry, ShortEntry},
        error::{Boxed, Result},
        reference::Referrer,
        schema::{Source, Strategy, TableSchema},
    },
};

/// The number of facts that a caller looks up at once. It does not make this engine faster, but tests the callers
/// with a number greater than 1.
const FACTS_AT_ONCE: usize = 3;

/// A reader of one table in one transaction.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader<'t> {
    pub(super) databases: &'t Databases,
    pub(super) tables: &'t Tables,
}

impl<'t> Reader<'t> {
    /// Returns the reference at this position to the table.
    pub(crate) fn referrer(self, at: usize) -> Option<&'t Referrer> {
        self.tables.referrers.get(at).map(|link| &link.by)
    }

    fn space(self, space: Space) -> Option<&'t Map> {
        self.databases.get(&self.tables.space(space)?).map(AsRef::as_ref)
    }

    fn map(self, source: Source) -> Option<&'t Map> {
        self.databases.get(self.tables.name(source)).map(AsRef::as_ref)
    }

    /// Returns both keys of the entry with this key in a unique index, if it is the only entry of the key.
    fn only(self, source: Source, key: &[u8]) -> Option<Vec<u8>> {
        self.tables.schema.index(source).filter(|index| index.has_one_entry_per_key())?;
        let entries = self.map(source)?.range::<[u8], _>((Bound::Included(key), Bound::Unbounded));
        let mut entries = entries.take_while(|(bytes, (len, _))| bytes.get(..*len) == Some(key));
        let (bytes, _) = entries.next()?;
        entries.next().is_none().then(|| bytes.clone())
    }
}

impl<'t> Read<'t> for Reader<'t> {
    type Entries = Entries<'t>;
    type Cursor = LentEntries<'t>;

    fn table(self) -> &'static TableSchema {
        self.tables.schema
    }

    fn fact(self, primary_key: &[u8]) -> Result<Option<&'t [u8]>> {
        let row = self.map(Source::Facts).and_then(|facts| facts.get(primary_key));
        Ok(row.map(|(_, row)| row.as_slice()))
    }

    fn facts_at_once(self) -> usize {
        FACTS_AT_ONCE
    }

    fn entry(self, index: usize, key: &[u8], primary_key: &[u8]) -> Result<Option<&'t [u8]>> {
        let Some(map) = self.map(Source::Index(index)) else { return Ok(None) };
        let found = map.get(&[key, primary_key].concat());
        Ok(found.filter(|(len, _)| *len == key.len()).map(|(_, data)| data.as_slice()))
    }

    fn unique(self, index: usize, key: &[u8]) -> Result<Option<ShortEntry<'t>>> {
        let Some(map) = self.map(Source::Index(index)) else { return Ok(None) };
        let next = map.range::<[u8], _>((Bound::Included(key), Bound::Unbounded)).next();
        Ok(next.map(entry).filter(|entry| entry.key == key).map(Into::into))
    }

    fn scan(self, query: Query) -> Result<Entries<'t>> {
        let Query { source, bounds, reverse, position, inclusive, rows, .. } = query;
        // The position of the only entry of a unique key is the position of the key, for any primary key.
        let place = position.map(|position| {
            let only = self.only(source, &position.key);
            let mut bytes = only.unwrap_or_else(|| position.bytes());
            if inclusive == reverse {
                bytes.push(0);
            }
            bytes
        });
        let range = self.map(source).map(|map| {
            // A range with reversed bounds would panic, so the map gets only one bound.
            if reverse {
                let end = place.or_else(|| bounds.end());
                let to = end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
                map.range::<[u8], _>((Bound::Unbounded, to))
            } else {
                let from = place.as_deref().unwrap_or(bounds.start());
                map.range::<[u8], _>((Bound::Included(from), Bound::Unbounded))
            }
        });
        let range = range.unwrap_or_default();
        let index = self.tables.schema.index(source);
        let joins = rows && index.is_some_and(|index| !matches!(index.strategy, Strategy::Full));
        Ok(Entries { range, bounds, reverse, joined: joins.then_some(self), row: None })
    }

    fn count(self, query: &Query) -> Result<Count> {
        let limit = usize::try_from(query.limit.unwrap_or(u64::MAX)).unwrap_or(usize::MAX);
        let found = self
            .scan(query.clone())?
            .take(limit)
            .try_fold(0, |count, entry| entry.map(|_| count + 1))?;
        Ok(Count { found, seeks: 1, steps: found })
    }

    fn cursor(self, query: Query) -> Result<LentEntries<'t>> {
        Ok(LentEntries { entries: self.scan(query)?, entry: RawEntry::NOWHERE })
    }

    fn stored(self, source: Source) -> Result<Option<u64>> {
        Ok(Some(self.map(source).map_or(0, |map| map.len() as u64)))
    }

    fn get(self, space: Space, key: &[u8]) -> Result<Option<&'t [u8]>> {
        Ok(self.space(space).and_then(|records| records.get(key)).map(|(_, it)| it.as_slice()))
    }

    fn at_or_above(self, space: Space, key: &[u8]) -> Result<Option<(&'t [u8], &'t [u8])>> {
        let range = (Bound::Included(key), Bound::Unbounded);
        let range = self.space(space).map(|records| records.range::<[u8], _>(range));
        Ok(range.and_then(|mut range| range.next()).map(record))
    }

    fn below(self, space: Space, key: &[u8]) -> Result<Option<(&'t [u8], &'t [u8])>> {
        let range = (Bound::Unbounded, Bound::Excluded(key));
        let range = self.space(space).map(|records| records.range::<[u8], _>(range));
        Ok(range.and_then(|mut range| range.next_back()).map(record))
    }

    fn len(self, space: Space) -> Result<u64> {
        Ok(self.space(space).map_or(0, |records| records.len() as u64))
    }
}

fn record<'t>((key, (_, record)): (&'t Vec<u8>, &'t (usize, Vec<u8>))) -> (&'t [u8], &'t [u8]) {
    (key, record)
}

fn entry<'t>((bytes, (len, data)): (&'t Vec<u8>, &'t (usize, Vec<u8>))) -> RawEntry<'t> {
    let (key, primary_key) = bytes.split_at_checked(*len).unwrap_or_default();
    RawEntry { key, primary_key, data }
}

/// The entries of a scan.
#[derive(Debug)]
pub(crate) struct Entries<'t> {
    range: btree_map::Range<'t, Vec<u8>, (usize, Vec<u8>)>,
    bounds: KeyRange,
    reverse: bool,
    /// The reader of the rows, if they are joined.
    joined: Option<Reader<'t>>,
    /// The row of the last entry.
    row: Option<&'t [u8]>,
}

impl<'t> Entries<'t> {
    fn step(&mut self) -> Option<Result<RawEntry<'t>, Boxed>> {
        self.row = None;
        let next = if self.reverse { self.range.next_back() } else { self.range.next() };
        let inside = |bytes: &[u8]| {
            if self.reverse { bytes >= self.bounds.start() } else { self.bounds.ends_after(bytes) }
        };
        let entry = next.filter(|(bytes, _)| inside(bytes)).map(entry)?;
        if let Some(reader) = self.joined {
            match reader.fact(entry.primary_key) {
                Ok(row) => self.row = row,
                Err(error) => return Some(Err(error.into())),
            }
        }
        Some(Ok(entry))
    }
}

impl<'t> Iterator for Entries<'t> {
    type Item = EntryResult<'t>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step().map(|entry| entry.map(Into::into))
    }
}

impl<'t> LongLived<'t> for Entries<'t> {
    fn row(&self) -> Option<&'t [u8]> {
        self.row
    }
}

/// The entries of a scan, each borrowed until the next step.
#[derive(Debug)]
pub(crate) struct LentEntries<'t> {
    entries: Entries<'t>,
    /// The entry of the last step.
    entry: RawEntry<'t>,
}

impl Cursor for LentEntries<'_> {
    fn advance(&mut self) -> Result<bool, Boxed> {
        let next = self.entries.step().transpose()?;
        self.entry = next.unwrap_or(RawEntry::NOWHERE);
        Ok(next.is_some())
    }

    fn entry(&self) -> RawEntry<'_> {
        self.entry
    }

    fn row(&self) -> Option<&[u8]> {
        self.entries.row
    }
}
