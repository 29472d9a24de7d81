//! Checks the pieces of an index against the rules of their layout, independent of the rows.
//!
//! `docs/FORMAT.md` has the rules. They allow a block of any fill, and a separator that is in no block.

use std::ops::Bound;

use super::{
    layout::Layout,
    read::{Parts, PhysicalRange, Reader},
    short::Packed,
};
use crate::{
    engine::{Piece, PieceFault},
    model::{
        KeyRange,
        entry::{LONGEST_SHORT_KEY, ShortEntry, ShortKey},
        error::Result,
        schema::{IndexSchema, Source},
    },
};

/// The pieces of an index: its physical entries in LMDB.
pub(crate) struct Pieces<'t> {
    walk: PhysicalRange<'t>,
    rules: Rules<'t>,
}

enum Rules<'t> {
    /// Each entry is a piece.
    Single(Parts),
    /// Each entry is a piece. A key has one entry, or several [`shared`](super::shared) entries.
    Unique(UniqueRules<'t>),
    /// Each block is a piece.
    Blocks(BlockRules<'t>),
}

impl<'t> Pieces<'t> {
    fn new(reader: Reader<'t>, index: usize, after: Option<&[u8]>) -> Result<Self> {
        let source = Source::Index(index);
        let (own, declared) = reader.index(index)?;
        let rules = match own.layout {
            Layout::Blocks { primary_key } => {
                let mut rules = BlockRules { index: declared, primary_key, last: None };
                // The first block after the position must be after the block before it.
                if let Some(after) = after
                    && let Some((physical, packed)) = reader.at_or_below(&own.database, after)?
                {
                    rules.fault(physical, packed);
                }
                Rules::Blocks(rules)
            }
            Layout::Unique | Layout::ShortUnique { .. } => {
                let mut rules =
                    UniqueRules { parts: Parts::of(reader.tables.schema, source), last: None };
                if let Some(after) = after
                    && let Some((physical, value)) = reader.at_or_below(&own.database, after)?
                {
                    rules.fault(physical, value);
                }
                Rules::Unique(rules)
            }
            Layout::Entries => Rules::Single(Parts::of(reader.tables.schema, source)),
        };
        let walk = reader.walk_from(source, false, KeyRange::ALL, after.map(Bound::Excluded))?;
        Ok(Self { walk, rules })
    }
}

impl<'t> Reader<'t> {
    /// Returns the pieces of an index after a position.
    pub(crate) fn pieces(self, index: usize, after: Option<&[u8]>) -> Result<Pieces<'t>> {
        Pieces::new(self, index, after)
    }
}

impl<'t> Iterator for Pieces<'t> {
    type Item = Result<Piece<'t>>;

    fn next(&mut self) -> Option<Self::Item> {
        let (at, value) = match self.walk.next()? {
            Ok(physical) => physical,
            Err(error) => return Some(Err(error.into())),
        };
        let fault = match &mut self.rules {
            Rules::Single(parts) => parts.entry(at, value).is_none().then_some(UNREADABLE),
            Rules::Unique(rules) => rules.fault(at, value),
            Rules::Blocks(rules) => rules.fault(at, value),
        };
        Some(Ok(Piece { at, fault }))
    }
}

const UNREADABLE: PieceFault =
    PieceFault { reason: "the entry ends too early, or its keys can't be separated", key: None };

/// The rules of entries that are stored under their key, or after another entry of their key.
struct UniqueRules<'t> {
    parts: Parts,
    /// The key and the primary key of the last entry.
    last: Option<(&'t [u8], ShortKey<'t>)>,
}

impl<'t> UniqueRules<'t> {
    /// Returns the damage of the next entry.
    fn fault(&mut self, at: &'t [u8], value: &'t [u8]) -> Option<PieceFault> {
        let Some(ShortEntry { key, primary_key, .. }) = self.parts.entry(at, value) else {
            return Some(UNREADABLE);
        };
        let last = self.last.replace((key, primary_key));
        let is_next_of_key = |(last, before): (&[u8], ShortKey<'_>)| {
            last == key && before.compare(primary_key).is_lt()
        };
        if key.len() == at.len() || last.is_some_and(is_next_of_key) {
            return None;
        }
        let reason = "a further entry of its key, and the entry before it is not one of the key with a \
                      smaller primary key";
        Some(PieceFault { reason, key: Some(key.len()) })
    }
}

/// The rules of blocks, which are checked in order.
struct BlockRules<'t> {
    index: &'static IndexSchema,
    /// The length of a primary key.
    primary_key: usize,
    /// The index key of the last block, and its greatest primary key; `None` if the block can't be read.
    last: Option<(&'t [u8], Option<ShortKey<'t>>)>,
}

impl<'t> BlockRules<'t> {
    /// Returns the damage of the next block.
    fn fault(&mut self, physical: &'t [u8], value: &'t [u8]) -> Option<PieceFault> {
        let key = self.index.key_len(physical).ok();
        let key = key.filter(
            |key| matches!(physical.len() - key, rest if rest == 0 || rest == self.primary_key),
        );
        let Some((key, separator)) = key.and_then(|key| physical.split_at_checked(key)) else {
            let reason = "its LMDB key is neither a key, nor a key and a primary key";
            return Some(PieceFault { reason, key: None });
        };
        let before = self.last.filter(|(last, _)| *last == key);
        let (reason, greatest) = if before.is_none() && !separator.is_empty() {
            (Some("the first block of its key is not stored under the key alone"), None)
        } else {
            self.fault_in(before.and_then(|(_, greatest)| greatest), separator, value)
        };
        self.last = Some((physical.get(..key.len()).unwrap_or_default(), greatest));
        reason.map(|reason| PieceFault { reason, key: Some(key.len()) })
    }

    /// Returns the damage of a block, and its greatest primary key. `greatest` is the greatest primary key of the blocks
    /// of its key before it.
    fn fault_in(
        &self,
        greatest: Option<ShortKey<'t>>,
        separator: &'t [u8],
        value: &'t [u8],
    ) -> (Option<&'static str>, Option<ShortKey<'t>>) {
        let Some(mut keys) = Packed::read(value, self.primary_key) else {
            let reason = match value {
                [] | [_] => "the block is empty",
                [1..=u8::MAX, ..] if self.primary_key > LONGEST_SHORT_KEY => {
                    "the block leaves out bytes of long primary keys"
                }
                [zeros, ..] if usize::from(*zeros) >= self.primary_key => {
                    "the block leaves out as many bytes as a primary key has"
                }
                _ => "the block has an incomplete primary key",
            };
            return (Some(reason), greatest);
        };
        let separator = ShortKey::whole(separator);
        if greatest.is_some_and(|before| before.compare(separator).is_ge()) {
            let reason = "the block before it has primary keys at or above its separator";
            return (Some(reason), greatest);
        }
        let (mut reason, mut last) = (None, None::<ShortKey<'t>>);
        while let Some(key) = keys.next() {
            if last.is_none() && key.compare(separator).is_lt() {
                reason = Some("the block has a primary key below its separator");
            } else if last.is_some_and(|last| last.bytes >= key.bytes) {
                reason =
                    reason.or(Some("the primary keys in the block are not in order, each once"));
            }
            last = Some(key);
        }
        (reason, last)
    }
}
