//! The entries of an index that packs them into blocks.

use super::{
    range::{Physical, PhysicalRange, place},
    reader::Reader,
};
use crate::{
    engine::{
        Count, EntryResult, Query,
        lmdb::{
            blocks::Block,
            short::{Counter, Packed},
        },
    },
    model::{
        entry::{Position, ShortEntry},
        error::Result,
        key::DecodeError,
        schema::{IndexSchema, Source},
    },
};

/// An iterator over the primary keys of blocks.
pub(super) struct BlockEntries<'t> {
    reader: Reader<'t>,
    source: Source,
    index: &'static IndexSchema,
    primary_key: usize,
    reverse: bool,
    range: PhysicalRange<'t>,
    /// The rest of the current block.
    block: Block<'t>,
    /// The position of a reverse scan, until the first block is read.
    resume: Option<Position>,
    /// Whether the entry at the position is included.
    inclusive: bool,
}

impl<'t> BlockEntries<'t> {
    // It has one caller. Without inlining, the entries are copied once more for each page.
    #[inline]
    pub(super) fn new(
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
                // The block with the position is the last one at or below it.
                let found = reader.at_or_below(reader.database(source)?, &at)?;
                if let Some((physical, value)) = found
                    && let Some(packed) = Packed::read(value, primary_key)
                    && let Some(own) = Block::of(&position.key, primary_key, physical, packed)
                {
                    block = own.after(&position.primary_key, inclusive);
                    (from, from_inclusive) = (Some(physical.to_vec()), false);
                } else {
                    from = Some(at);
                }
            }
        }
        let from = from.as_deref().map(|from| place(from, from_inclusive));
        let range = reader.walk_from(source, reverse, bounds, from)?;
        Ok(Self { reader, source, index, primary_key, reverse, range, block, resume, inclusive })
    }

    /// Counts the remaining entries, block by block.
    pub(super) fn count_up_to(mut self, limit: u64) -> Result<Count> {
        // The part of the block after the position.
        if self.resume.is_some()
            && let Some(first) = self.range.next()
        {
            let (physical, value) = first?;
            self.read_block(physical, value)?;
        }
        let Self { reader, source, primary_key, block, range, .. } = self;
        count_blocks(reader, source, primary_key, block.len(), range, limit)
    }

    fn read_block(&mut self, physical: &'t [u8], value: &'t [u8]) -> Result<()> {
        let next = self.next_block(physical, value);
        next.map_err(|error| self.reader.tables.schema.corrupt(self.source, physical, error))
    }

    fn next_block(&mut self, physical: &'t [u8], value: &'t [u8]) -> Result<(), DecodeError> {
        // Every LMDB key that starts with the last block's key belongs to that key, since keys are
        // self-delimiting.
        let last = self.block.key();
        let len = match last.len() {
            len @ 1.. if physical.starts_with(last) => len,
            _ => self.index.key_len(physical)?,
        };
        let key = physical.get(..len).unwrap_or_default();
        let packed = Packed::read(value, self.primary_key).ok_or(DecodeError::Short)?;
        let block = Block::of(key, self.primary_key, physical, packed).ok_or(DecodeError::Long)?;
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
    type Item = EntryResult<'t>;

    #[expect(clippy::inline_always, reason = "the entry would be copied once more")]
    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let next = if self.reverse { self.block.next_back() } else { self.block.next() };
            if let Some(primary_key) = next {
                return Some(Ok(ShortEntry { key: self.block.key(), primary_key, data: &[] }));
            }
            match self.range.next()? {
                Ok((physical, value)) => {
                    if let Err(error) = self.read_block(physical, value) {
                        return Some(Err(error.into()));
                    }
                }
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

/// Counts the primary keys in whole blocks by the lengths of the blocks, and adds the count of `first`, a part of a
/// block.
pub(super) fn count_blocks<'t>(
    reader: Reader<'t>,
    source: Source,
    primary_key: usize,
    first: usize,
    mut blocks: impl Iterator<Item = Physical<'t>>,
    limit: u64,
) -> Result<Count> {
    let mut count = Count { found: first as u64, seeks: 1, steps: u64::from(first > 0) };
    let mut counter = Counter::new(primary_key);
    while count.found < limit {
        let Some(next) = blocks.next() else { break };
        let (physical, value) = next?;
        let Some(more) = counter.count(value) else {
            return Err(reader.tables.schema.corrupt(source, physical, DecodeError::Short));
        };
        count.found += u64::from(more);
        count.steps += 1;
    }
    count.found = count.found.min(limit);
    Ok(count)
}
