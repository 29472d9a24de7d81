use std::ops::Bound;

use heed::{AnyTls, RoRange, RoRevRange, RoTxn, types::Bytes};

use super::{
    Database, Layout,
    blocks::Block,
    env::{Engine, Index, Tables},
};
use crate::{
    engine::{RawEntry, Read},
    error::{Error, Result},
    key::{DecodeError, MAX_KEY_LEN},
    scan::{Bounds, Query},
    schema::{IndexSchema, Source, TableSchema},
};

/// Reads one table in one transaction.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'t> {
    engine: &'t Engine,
    txn: &'t RoTxn<'t, AnyTls>,
    tables: &'t Tables<'t>,
}

impl<'t> Reader<'t> {
    pub(super) const fn new(
        engine: &'t Engine,
        txn: &'t RoTxn<'t, AnyTls>,
        tables: &'t Tables<'t>,
    ) -> Self {
        Self { engine, txn, tables }
    }

    fn get(self, database: &Database<'_>, key: &[u8]) -> Result<Option<&'t [u8]>> {
        if key.is_empty() || key.len() > MAX_KEY_LEN {
            // LMDB has no such key, and answers with an error.
            return Ok(None);
        }
        database.get(self.txn, key).map_err(|error| self.engine.error(error))
    }

    fn index(self, position: usize) -> Result<(&'t Index<'t>, &'static IndexSchema)> {
        let index = self.tables.indexes.get(position);
        index.zip(self.tables.schema.indexes.get(position)).ok_or_else(|| {
            Error::Engine(format!("`{}` has no index {position}", self.tables.schema.name))
        })
    }

    pub(super) fn database(self, source: Source) -> Result<&'t Database<'t>> {
        match source {
            Source::Facts => Ok(&self.tables.facts),
            Source::Index(position) => self.index(position).map(|(index, _)| &index.database),
        }
    }

    pub(super) fn record(self) -> Result<Option<&'t [u8]>> {
        self.get(&self.tables.catalog, self.tables.schema.name.as_bytes())
    }

    pub(super) fn sequence(self) -> Result<Option<&'t [u8]>> {
        self.get(&self.tables.sequences, self.tables.schema.name.as_bytes())
    }

    pub(super) fn len(self, source: Source) -> Result<u64> {
        self.database(source)?.len(self.txn).map_err(|error| self.engine.error(error))
    }

    fn walk(self, query: Query) -> Result<Walk<'t>> {
        let position = query.position.map(|position| match source_layout(self, query.source) {
            // The primary key is in the value.
            Some(Layout::Unique) => position.key,
            _ => position.bytes(),
        });
        self.walk_from(query.source, query.reverse, query.bounds, position.as_deref())
    }

    fn walk_from(
        self,
        source: Source,
        reverse: bool,
        bounds: Bounds,
        position: Option<&[u8]>,
    ) -> Result<Walk<'t>> {
        let database = self.database(source)?;
        let steps = if reverse {
            let end = position.map(<[u8]>::to_vec).or_else(|| bounds.end());
            match upper(end.as_deref()) {
                Some(end) => {
                    database.rev_range(self.txn, &(Bound::Unbounded, end)).map(Steps::Reverse)
                }
                None => Ok(Steps::None),
            }
        } else {
            let start = match position {
                Some(position) => after(position),
                None => lower(bounds.start()),
            };
            database.range(self.txn, &(start, Bound::Unbounded)).map(Steps::Forward)
        };
        let steps = steps.map_err(|error| self.engine.error(error))?;
        Ok(Walk { engine: self.engine, steps, bounds })
    }

    #[cold]
    fn corrupt(self, source: Source, key: &[u8], error: DecodeError) -> Error {
        let schema = self.tables.schema;
        error.at(schema.name, schema.index_name(source), schema.show_key(source, key))
    }
}

/// How the parts of an entry that is stored by itself are told from one another: what is the same
/// for all entries of a scan, looked up once.
#[derive(Clone, Copy)]
struct Parts {
    schema: &'static TableSchema,
    /// `None`: the fact table.
    index: Option<&'static IndexSchema>,
    /// The length of a primary key, where it is fixed.
    primary_key: Option<usize>,
}

impl Parts {
    fn of(schema: &'static TableSchema, source: Source) -> Self {
        Self { schema, index: schema.index(source), primary_key: schema.fixed_primary_key() }
    }

    #[inline]
    fn entry<'t>(self, key: &'t [u8], value: &'t [u8]) -> Result<RawEntry<'t>, DecodeError> {
        let Some(index) = self.index else {
            return Ok(RawEntry { key: &[], primary_key: key, data: value });
        };
        if index.unique {
            let at = match self.primary_key {
                Some(len) => len,
                None => self.schema.primary_key_len(value)?,
            };
            let (primary_key, data) = value.split_at_checked(at).ok_or(DecodeError::Short)?;
            return Ok(RawEntry { key, primary_key, data });
        }
        let at = match self.primary_key {
            Some(len) => key.len().checked_sub(len).ok_or(DecodeError::Short)?,
            None => index.key_len(key)?,
        };
        let (key, primary_key) = key.split_at_checked(at).ok_or(DecodeError::Short)?;
        Ok(RawEntry { key, primary_key, data: value })
    }
}

fn source_layout(reader: Reader<'_>, source: Source) -> Option<Layout> {
    match source {
        Source::Facts => None,
        Source::Index(position) => reader.index(position).ok().map(|(index, _)| index.layout),
    }
}

impl<'t> Read<'t> for Reader<'t> {
    type Entries = Entries<'t>;

    fn fact(self, primary_key: &[u8]) -> Result<Option<&'t [u8]>> {
        self.get(&self.tables.facts, primary_key)
    }

    fn unique(self, index: usize, key: &[u8]) -> Result<Option<RawEntry<'t>>> {
        let source = Source::Index(index);
        // `get` gives no key back, and the caller's doesn't live as long as the page.
        let Some(value) = self.get(self.database(source)?, key)? else { return Ok(None) };
        let parts = Parts::of(self.tables.schema, source);
        parts.entry(&[], value).map(Some).map_err(|error| self.corrupt(source, key, error))
    }

    fn scan(self, query: Query) -> Result<Entries<'t>> {
        let source = query.source;
        Ok(Entries(match source_layout(self, source) {
            Some(Layout::Blocks { primary_key }) => {
                let Source::Index(position) = source else {
                    return Err(Error::Engine("the fact table has no blocks".to_owned()));
                };
                let (_, index) = self.index(position)?;
                Kind::Blocks(BlockEntries::new(self, index, primary_key, query)?)
            }
            _ => Kind::Single {
                reader: self,
                source,
                parts: Parts::of(self.tables.schema, source),
                walk: self.walk(query)?,
            },
        }))
    }

    fn count(self, query: Query) -> Result<u64> {
        let size = match source_layout(self, query.source) {
            Some(Layout::Blocks { primary_key }) => Some(primary_key as u64),
            _ => None,
        };
        if size.is_none() && query.bounds.is_everything() {
            return self.len(query.source);
        }
        let mut count = 0;
        for entry in self.walk(query)? {
            let (_, value) = entry?;
            count += size.map_or(1, |size| value.len() as u64 / size);
        }
        Ok(count)
    }
}

/// Steps through physical entries within bounds.
struct Walk<'t> {
    engine: &'t Engine,
    steps: Steps<'t>,
    bounds: Bounds,
}

enum Steps<'t> {
    Forward(RoRange<'t, Bytes, Bytes>),
    Reverse(RoRevRange<'t, Bytes, Bytes>),
    None,
}

impl<'t> Iterator for Walk<'t> {
    type Item = Result<(&'t [u8], &'t [u8])>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let (entry, forward) = match &mut self.steps {
            Steps::Forward(range) => (range.next()?, true),
            Steps::Reverse(range) => (range.next()?, false),
            Steps::None => return None,
        };
        match entry {
            Ok((key, value)) => {
                let inside =
                    if forward { self.bounds.ends_behind(key) } else { key >= self.bounds.start() };
                inside.then_some(Ok((key, value)))
            }
            Err(error) => Some(Err(self.engine.error(error))),
        }
    }
}

/// From `start` on. LMDB refuses empty keys and those above its limit, which a bound may well
/// be: a key that is cut is before all that it could have been.
fn lower(start: &[u8]) -> Bound<&[u8]> {
    match start.get(..MAX_KEY_LEN) {
        _ if start.is_empty() => Bound::Unbounded,
        Some(cut) if cut.len() < start.len() => Bound::Excluded(cut),
        _ => Bound::Included(start),
    }
}

/// Behind `position`.
fn after(position: &[u8]) -> Bound<&[u8]> {
    match lower(position) {
        Bound::Included(position) => Bound::Excluded(position),
        bound => bound,
    }
}

/// Before `end`, or to the last key. `None`: nothing is before it.
fn upper(end: Option<&[u8]>) -> Option<Bound<&[u8]>> {
    let Some(end) = end else { return Some(Bound::Unbounded) };
    match end.get(..MAX_KEY_LEN) {
        _ if end.is_empty() => None,
        Some(cut) if cut.len() < end.len() => Some(Bound::Included(cut)),
        _ => Some(Bound::Excluded(end)),
    }
}

/// The answer to a scan.
pub(crate) struct Entries<'t>(Kind<'t>);

enum Kind<'t> {
    /// Each entry by itself.
    Single { reader: Reader<'t>, source: Source, parts: Parts, walk: Walk<'t> },
    /// Entries packed in blocks.
    Blocks(BlockEntries<'t>),
}

impl<'t> Iterator for Entries<'t> {
    type Item = Result<RawEntry<'t>>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.0 {
            Kind::Single { reader, source, parts, walk } => match walk.next()? {
                Ok((key, value)) => Some(
                    parts.entry(key, value).map_err(|error| reader.corrupt(*source, key, error)),
                ),
                Err(error) => Some(Err(error)),
            },
            Kind::Blocks(entries) => entries.next(),
        }
    }
}

/// Goes through blocks, and through the primary keys in each.
struct BlockEntries<'t> {
    reader: Reader<'t>,
    source: Source,
    index: &'static IndexSchema,
    primary_key: usize,
    reverse: bool,
    walk: Walk<'t>,
    /// What is left of the current block.
    block: Block<'t>,
    /// The place that a reverse scan resumes at, until the first block is read.
    resume: Option<(Vec<u8>, Vec<u8>)>,
}

impl<'t> BlockEntries<'t> {
    fn new(
        reader: Reader<'t>,
        index: &'static IndexSchema,
        primary_key: usize,
        query: Query,
    ) -> Result<Self> {
        let Query { source, bounds, reverse, position, .. } = query;
        let mut block = Block::EMPTY;
        let mut resume = None;
        let mut from = None;
        if let Some(position) = position {
            let at = position.bytes();
            if reverse {
                resume = Some((position.key, position.primary_key));
                from = Some(at);
            } else {
                // The block that holds the place is the last one at or below it.
                let found = match at.len() {
                    1..=MAX_KEY_LEN => reader
                        .database(source)?
                        .get_lower_than_or_equal_to(reader.txn, &at)
                        .map_err(|error| reader.engine.error(error))?,
                    _ => None,
                };
                if let Some((physical, packed)) = found
                    && let Some(own) = Block::of(&position.key, primary_key, physical, packed)
                {
                    block = own.behind(&position.primary_key);
                    from = Some(physical.to_vec());
                } else {
                    from = Some(at);
                }
            }
        }
        let walk = reader.walk_from(source, reverse, bounds, from.as_deref())?;
        Ok(Self { reader, source, index, primary_key, reverse, walk, block, resume })
    }

    fn next_block(&mut self, physical: &'t [u8], packed: &'t [u8]) -> Result<(), DecodeError> {
        let key = physical.get(..self.index.key_len(physical)?).unwrap_or_default();
        let block = Block::of(key, self.primary_key, physical, packed).ok_or(DecodeError::Long)?;
        if packed.is_empty() || !packed.len().is_multiple_of(self.primary_key) {
            return Err(DecodeError::Short);
        }
        self.block = match self.resume.take() {
            Some((key, primary_key)) if key == block.key() => block.before(&primary_key),
            _ => block,
        };
        Ok(())
    }
}

impl<'t> Iterator for BlockEntries<'t> {
    type Item = Result<RawEntry<'t>>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let next = if self.reverse { self.block.next_back() } else { self.block.next() };
            if let Some(primary_key) = next {
                return Some(Ok(RawEntry { key: self.block.key(), primary_key, data: &[] }));
            }
            match self.walk.next()? {
                Ok((physical, packed)) => {
                    if let Err(error) = self.next_block(physical, packed) {
                        return Some(Err(self.reader.corrupt(self.source, physical, error)));
                    }
                }
                Err(error) => return Some(Err(error)),
            }
        }
    }
}
