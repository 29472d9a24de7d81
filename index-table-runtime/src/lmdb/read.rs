use std::ops::Bound;

use heed::{AnyTls, RoRange, RoRevRange, RoTxn, types::Bytes};

use super::{
    Database, Layout, Pieces,
    blocks::{self, Block},
    env::{Engine, Index, Tables},
    record_name,
};
use crate::{
    engine::{Count, RawEntry, Read, Step},
    error::{Boxed, Error, Result},
    key::{DecodeError, MAX_KEY_LEN},
    scan::{Bounds, Position, Query},
    schema::{IndexSchema, Source, TableSchema},
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

    fn get(self, database: &Database<'_>, key: &[u8]) -> Result<Option<&'t [u8]>> {
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

    /// What a queue has, with its number.
    fn numbered(
        self,
        found: heed::Result<Option<(&'t [u8], &'t [u8])>>,
    ) -> Result<Option<(u64, &'t [u8])>> {
        let Some((number, message)) = found.map_err(|error| self.engine.error(error))? else {
            return Ok(None);
        };
        let number = number.try_into().map(u64::from_be_bytes);
        number.map(|number| Some((number, message))).map_err(|_| Error::Corrupt {
            table: self.tables.schema.name,
            index: None,
            key: "of a message in its queue".to_owned(),
            reason: "it is no number".to_owned(),
        })
    }

    pub(super) fn index(self, position: usize) -> Result<(&'t Index<'t>, &'static IndexSchema)> {
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

    pub(super) fn sequence(self) -> Result<Option<&'t [u8]>> {
        self.get(&self.tables.sequences, self.tables.schema.name.as_bytes())
    }

    pub(super) fn len(self, source: Source) -> Result<u64> {
        self.database(source)?.len(self.txn).map_err(|error| self.engine.error(error))
    }

    fn scan_kind(self, query: Query) -> Result<Kind<'t>> {
        let source = query.source;
        Ok(match source_layout(self, source) {
            Some(Layout::Blocks { primary_key }) => {
                let Source::Index(position) = source else {
                    return Err(Error::Engine("the fact table has no blocks".to_owned()));
                };
                let (_, index) = self.index(position)?;
                Kind::Blocks(BlockEntries::new(self, index, primary_key, query)?)
            }
            _ => Kind::Single {
                source,
                parts: Parts::of(self.tables.schema, source),
                walk: self.walk(query)?,
            },
        })
    }

    /// Counts the primary keys in whole blocks, behind so many in `first`, a part of one: the length
    /// of a block says how many it has.
    fn count_blocks(
        self,
        source: Source,
        primary_key: usize,
        first: usize,
        mut blocks: impl Iterator<Item = Physical<'t>>,
        limit: u64,
    ) -> Result<Count> {
        let mut count = Count { found: first as u64, seeks: 1, steps: u64::from(first > 0) };
        while count.found < limit {
            let Some(next) = blocks.next() else { break };
            let (physical, packed) = next?;
            let Some(more) = blocks::count(packed, primary_key) else {
                return Err(self.tables.schema.corrupt(source, physical, DecodeError::Short));
            };
            count.found += more as u64;
            count.steps += 1;
        }
        count.found = count.found.min(limit);
        Ok(count)
    }

    fn walk(self, query: Query) -> Result<Walk<'t>> {
        let position = query.position.map(|position| match source_layout(self, query.source) {
            // The primary key is in the value.
            Some(Layout::Unique) => position.key,
            _ => position.bytes(),
        });
        let position = position.as_deref().map(|at| place(at, query.inclusive));
        self.walk_from(query.source, query.reverse, query.bounds, position)
    }

    pub(super) fn walk_from(
        self,
        source: Source,
        reverse: bool,
        bounds: Bounds,
        position: Option<Bound<&[u8]>>,
    ) -> Result<Walk<'t>> {
        let database = self.database(source)?;
        let steps = if reverse {
            let end = bounds.end();
            let end = end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
            match upper(position.unwrap_or(end)) {
                Some(end) => {
                    database.rev_range(self.txn, &(Bound::Unbounded, end)).map(Steps::Reverse)
                }
                None => Ok(Steps::None),
            }
        } else {
            let start = match position {
                Some(Bound::Excluded(position)) => after(position),
                Some(Bound::Included(position)) => lower(position),
                Some(Bound::Unbounded) | None => lower(bounds.start()),
            };
            database.range(self.txn, &(start, Bound::Unbounded)).map(Steps::Forward)
        };
        let steps = steps.map_err(|error| self.engine.error(error))?;
        Ok(Walk { engine: self.engine, steps, bounds })
    }
}

/// How the parts of an entry that is stored by itself are told from one another: what is the same
/// for all entries of a scan, looked up once.
#[derive(Clone, Copy)]
pub(super) struct Parts {
    schema: &'static TableSchema,
    /// `None`: the fact table.
    index: Option<&'static IndexSchema>,
    /// A key has one entry, which has the primary key in its value.
    unique: bool,
    /// The length of a primary key, where it is fixed.
    primary_key: Option<usize>,
}

impl Parts {
    pub(super) fn of(schema: &'static TableSchema, source: Source) -> Self {
        let index = schema.index(source);
        let unique = index.is_some_and(IndexSchema::has_one_entry_per_key);
        Self { schema, index, unique, primary_key: schema.fixed_primary_key() }
    }

    /// `None`: it is [`damaged`](Parts::damaged).
    #[inline]
    pub(super) fn entry<'t>(&self, key: &'t [u8], value: &'t [u8]) -> Option<RawEntry<'t>> {
        let Some(index) = self.index else {
            return Some(RawEntry { key: &[], primary_key: key, data: value });
        };
        if self.unique {
            let at = match self.primary_key {
                Some(len) => len,
                None => self.schema.primary_key_len(value).ok()?,
            };
            let (primary_key, data) = value.split_at_checked(at)?;
            return Some(RawEntry { key, primary_key, data });
        }
        let at = match self.primary_key {
            Some(len) => key.len().checked_sub(len)?,
            None => index.key_len(key).ok()?,
        };
        let (key, primary_key) = key.split_at_checked(at)?;
        Some(RawEntry { key, primary_key, data: value })
    }

    /// Why an entry is none.
    #[cold]
    fn damaged(&self, source: Source, key: &[u8], value: &[u8]) -> Error {
        let len = match self.index {
            Some(index) if !self.unique => index.key_len(key),
            _ => self.schema.primary_key_len(value),
        };
        self.schema.corrupt(source, key, len.err().unwrap_or(DecodeError::Short))
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
    type Pieces = Pieces<'t>;

    fn fact(self, primary_key: &[u8]) -> Result<Option<&'t [u8]>> {
        self.get(&self.tables.facts, primary_key)
    }

    fn entry(self, index: usize, key: &[u8], primary_key: &[u8]) -> Result<Option<&'t [u8]>> {
        let Index { database, layout, .. } = self.index(index)?.0;
        let joined = || [key, primary_key].concat();
        match layout {
            Layout::Unique => {
                Ok(self.get(database, key)?.and_then(|value| value.strip_prefix(primary_key)))
            }
            Layout::Entries => self.get(database, &joined()),
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
        let Some(value) = self.get(self.database(source)?, key)? else { return Ok(None) };
        let parts = Parts::of(self.tables.schema, source);
        match parts.entry(&[], value) {
            Some(entry) => Ok(Some(entry)),
            None => Err(parts.damaged(source, key, value)),
        }
    }

    fn scan(self, query: Query) -> Result<Entries<'t>> {
        self.scan_kind(query).map(Entries)
    }

    fn count(self, query: Query) -> Result<Count> {
        let limit = query.limit.unwrap_or(u64::MAX);
        let whole = query.bounds.is_everything() && query.position.is_none();
        if let Some(Layout::Blocks { primary_key }) = source_layout(self, query.source)
            && query.position.is_none()
        {
            let source = query.source;
            // What most counts ask for, without keeping the bounds.
            if let Some(prefix @ [_, ..]) = query.bounds.as_prefix()
                && prefix.len() <= MAX_KEY_LEN
            {
                let blocks = self.database(source)?.prefix_iter(self.txn, prefix);
                let blocks = blocks.map_err(|error| self.engine.error(error))?;
                let blocks =
                    blocks.map(|block| Ok(block.map_err(|error| self.engine.error(error))?));
                return self.count_blocks(source, primary_key, 0, blocks, limit);
            }
            let walk = self.walk_from(source, false, query.bounds, None)?;
            return self.count_blocks(source, primary_key, 0, walk, limit);
        }
        match self.scan_kind(query)? {
            Kind::Blocks(entries) => entries.count_up_to(limit),
            Kind::Single { source, .. } if whole => {
                Ok(Count { found: self.len(source)?.min(limit), seeks: 0, steps: 0 })
            }
            Kind::Single { walk, .. } => {
                let mut found = 0;
                for entry in walk.take(usize::try_from(limit).unwrap_or(usize::MAX)) {
                    entry?;
                    found += 1;
                }
                Ok(Count { found, seeks: 1, steps: found })
            }
        }
    }

    fn pieces(self, index: usize, behind: Option<&[u8]>) -> Result<Pieces<'t>> {
        Pieces::new(self, index, behind)
    }

    fn stored(self, source: Source) -> Result<u64> {
        self.len(source)
    }

    fn record(self, part: &str) -> Result<Option<&'t [u8]>> {
        self.get(&self.tables.catalog, &record_name(self.tables.schema, part))
    }

    fn recorded_parts(self) -> Result<Vec<String>> {
        let prefix = [self.tables.schema.name.as_bytes(), b"."].concat();
        let records = self.tables.catalog.prefix_iter(self.txn, &prefix);
        let names = records.map_err(|error| self.engine.error(error))?.map(|record| {
            let (name, _) = record.map_err(|error| self.engine.error(error))?;
            Ok(String::from_utf8_lossy(name.get(prefix.len()..).unwrap_or_default()).into_owned())
        });
        names.collect()
    }

    fn message(self, from: u64) -> Result<Option<(u64, &'t [u8])>> {
        let Some(queue) = &self.tables.queue else { return Ok(None) };
        let found = queue.get_greater_than_or_equal_to(self.txn, &from.to_be_bytes());
        self.numbered(found)
    }

    fn message_below(self, below: u64) -> Result<Option<(u64, &'t [u8])>> {
        let Some(queue) = &self.tables.queue else { return Ok(None) };
        self.numbered(queue.get_lower_than(self.txn, &below.to_be_bytes()))
    }

    fn messages(self) -> Result<u64> {
        let queue = self.tables.queue.as_ref();
        queue.map_or(Ok(0), |queue| queue.len(self.txn)).map_err(|error| self.engine.error(error))
    }
}

/// A key and a value as LMDB has them.
type Physical<'t> = Result<(&'t [u8], &'t [u8]), Boxed>;

/// Steps through physical entries within bounds.
pub(super) struct Walk<'t> {
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
    type Item = Physical<'t>;

    #[expect(clippy::inline_always, reason = "what it yields would be copied for each entry")]
    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        let Steps::Forward(range) = &mut self.steps else { return self.next_reverse() };
        match range.next()? {
            Ok((key, value)) if self.bounds.ends_behind(key) => Some(Ok((key, value))),
            Ok(_) => None,
            Err(error) => Some(Err(self.failed(error))),
        }
    }
}

impl<'t> Walk<'t> {
    /// Not inlined: forward is the way of most scans, and the quicker the less is beside it.
    #[inline(never)]
    fn next_reverse(&mut self) -> Option<Physical<'t>> {
        let Steps::Reverse(range) = &mut self.steps else { return None };
        match range.next()? {
            Ok((key, value)) if key >= self.bounds.start() => Some(Ok((key, value))),
            Ok(_) => None,
            Err(error) => Some(Err(self.failed(error))),
        }
    }

    #[cold]
    fn failed(&self, error: heed::Error) -> Boxed {
        self.engine.error(error).into()
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

/// Up to `end`. `None`: nothing is.
fn upper(end: Bound<&[u8]>) -> Option<Bound<&[u8]>> {
    let (Bound::Included(bytes) | Bound::Excluded(bytes)) = end else { return Some(end) };
    match bytes.get(..MAX_KEY_LEN) {
        _ if bytes.is_empty() => None,
        Some(cut) if cut.len() < bytes.len() => Some(Bound::Included(cut)),
        _ => Some(end),
    }
}

/// A position, with or without the entry at it.
fn place(position: &[u8], inclusive: bool) -> Bound<&[u8]> {
    if inclusive { Bound::Included(position) } else { Bound::Excluded(position) }
}

/// The answer to a scan.
pub(crate) struct Entries<'t>(Kind<'t>);

enum Kind<'t> {
    /// Each entry by itself.
    Single { source: Source, parts: Parts, walk: Walk<'t> },
    /// Entries packed in blocks.
    Blocks(BlockEntries<'t>),
}

impl<'t> Iterator for Entries<'t> {
    type Item = Step<'t>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.0 {
            Kind::Single { source, parts, walk } => match walk.next()? {
                Ok((key, value)) => match parts.entry(key, value) {
                    Some(entry) => Some(Ok(entry)),
                    None => Some(Err(parts.damaged(*source, key, value).into())),
                },
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
    resume: Option<Position>,
    /// The entry at that place as well.
    inclusive: bool,
}

impl<'t> BlockEntries<'t> {
    fn new(
        reader: Reader<'t>,
        index: &'static IndexSchema,
        primary_key: usize,
        query: Query,
    ) -> Result<Self> {
        let Query { source, bounds, reverse, position, inclusive, .. } = query;
        let mut block = Block::EMPTY;
        let mut resume = None;
        let mut from = None;
        let mut from_inclusive = inclusive;
        if let Some(position) = position {
            let at = position.bytes();
            if reverse {
                resume = Some(position);
                from = Some(at);
            } else {
                // The block that holds the place is the last one at or below it.
                let found = reader.at_or_below(reader.database(source)?, &at)?;
                if let Some((physical, packed)) = found
                    && let Some(own) = Block::of(&position.key, primary_key, physical, packed)
                {
                    block = own.behind(&position.primary_key, inclusive);
                    (from, from_inclusive) = (Some(physical.to_vec()), false);
                } else {
                    from = Some(at);
                }
            }
        }
        let from = from.as_deref().map(|from| place(from, from_inclusive));
        let walk = reader.walk_from(source, reverse, bounds, from)?;
        Ok(Self { reader, source, index, primary_key, reverse, walk, block, resume, inclusive })
    }

    /// Counts what is left, block by block.
    fn count_up_to(mut self, limit: u64) -> Result<Count> {
        // Of the block with the place, what is behind it.
        if self.resume.is_some()
            && let Some(first) = self.walk.next()
        {
            let (physical, packed) = first?;
            self.read_block(physical, packed)?;
        }
        let Self { reader, source, primary_key, block, walk, .. } = self;
        reader.count_blocks(source, primary_key, block.len(), walk, limit)
    }

    fn read_block(&mut self, physical: &'t [u8], packed: &'t [u8]) -> Result<()> {
        let next = self.next_block(physical, packed);
        next.map_err(|error| self.reader.tables.schema.corrupt(self.source, physical, error))
    }

    fn next_block(&mut self, physical: &'t [u8], packed: &'t [u8]) -> Result<(), DecodeError> {
        // What begins with the last block's key is of that key: a key ends by itself.
        let last = self.block.key();
        let len = match last.len() {
            len @ 1.. if physical.starts_with(last) => len,
            _ => self.index.key_len(physical)?,
        };
        let key = physical.get(..len).unwrap_or_default();
        let block = Block::of(key, self.primary_key, physical, packed).ok_or(DecodeError::Long)?;
        if blocks::count(packed, self.primary_key).is_none() {
            return Err(DecodeError::Short);
        }
        self.block = match self.resume.take() {
            Some(Position { key, primary_key }) if key == block.key() => {
                block.before(&primary_key, self.inclusive)
            }
            _ => block,
        };
        Ok(())
    }
}

impl<'t> Iterator for BlockEntries<'t> {
    type Item = Step<'t>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let next = if self.reverse { self.block.next_back() } else { self.block.next() };
            if let Some(primary_key) = next {
                return Some(Ok(RawEntry { key: self.block.key(), primary_key, data: &[] }));
            }
            match self.walk.next()? {
                Ok((physical, packed)) => {
                    if let Err(error) = self.read_block(physical, packed) {
                        return Some(Err(error.into()));
                    }
                }
                Err(error) => return Some(Err(error)),
            }
        }
    }
}
