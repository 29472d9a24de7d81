//! The entries of a scan, in every layout.

use super::{packed::BlockEntries, parts::Parts, range::PhysicalRange, reader::Reader};
use crate::{
    engine::{Cursor, EntryResult, LongLived, Query, lmdb::layout::Layout},
    model::{
        entry::{KeyBuffer, RawEntry, ShortEntry},
        error::{Boxed, Error, Result},
        schema::Source,
    },
};

/// The result of a scan.
pub(crate) struct Entries<'t>(Kind<'t>);

pub(super) enum Kind<'t> {
    /// Entries that are stored separately.
    Single { source: Source, parts: Parts, range: PhysicalRange<'t> },
    /// Entries packed in blocks.
    Blocks(BlockEntries<'t>),
}

impl<'t> Entries<'t> {
    pub(super) fn new(reader: Reader<'t>, query: Query) -> Result<Self> {
        Kind::of(reader, query).map(Self)
    }
}

impl<'t> Kind<'t> {
    pub(super) fn of(reader: Reader<'t>, query: Query) -> Result<Self> {
        let source = query.source;
        Ok(match reader.layout(source) {
            Some(Layout::Blocks { primary_key }) => {
                let Source::Index(position) = source else {
                    return Err(Error::internal("blocks were expected in the fact table"));
                };
                let (_, index) = reader.index(position)?;
                Self::Blocks(BlockEntries::new(reader, index, primary_key, query)?)
            }
            _ => Self::Single {
                source,
                parts: Parts::of(reader.tables.schema, source),
                range: reader.walk(query)?,
            },
        })
    }
}

impl<'t> Iterator for Entries<'t> {
    type Item = EntryResult<'t>;

    #[expect(clippy::inline_always, reason = "the entry would be copied once more")]
    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.0 {
            Kind::Single { source, parts, range } => match range.next()? {
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

impl<'t> LongLived<'t> for Entries<'t> {}

/// The entries of a scan, each lent until the next step.
pub(crate) struct LentEntries<'t> {
    entries: Entries<'t>,
    /// The current entry.
    entry: ShortEntry<'t>,
    /// The primary key of the current entry, if it lacks bytes in the page.
    primary_key: KeyBuffer,
}

impl<'t> LentEntries<'t> {
    pub(super) fn new(reader: Reader<'t>, query: Query) -> Result<Self> {
        let entries = Entries::new(reader, query)?;
        Ok(Self { entries, entry: ShortEntry::NOWHERE, primary_key: KeyBuffer::new() })
    }
}

impl Cursor for LentEntries<'_> {
    #[expect(clippy::inline_always, reason = "it would cost a call for each entry")]
    #[inline(always)]
    fn advance(&mut self) -> Result<bool, Boxed> {
        match self.entries.next() {
            Some(Ok(entry)) => {
                self.entry = entry;
                if entry.primary_key.zeros > 0 {
                    self.primary_key.fill(entry.primary_key);
                }
                Ok(true)
            }
            Some(Err(error)) => Err(error),
            None => Ok(false),
        }
    }

    #[inline]
    fn entry(&self) -> RawEntry<'_> {
        self.entry.after_fill(&self.primary_key)
    }
}
