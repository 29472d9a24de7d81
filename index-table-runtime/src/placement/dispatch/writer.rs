//! Writes in one engine or in several shards.

use super::{Reader, on_each};
use crate::{
    engine::{self, Ascending, Space, Write, forward, forward_write, lmdb},
    model::{
        aggregate::Totals,
        error::{Error, Result},
        maintain::{Change, Sink},
        numbering::Numbering,
        schema::{IndexSchema, Source},
        shard::ShardNumber,
        stream::Place,
    },
    placement::shards,
};

/// The [`Write`] of one engine or of several shards.
pub(crate) enum Writer<'t, 's> {
    One(engine::Writer<'t, 's>),
    Several(shards::Writer<'t>),
}

impl<'t, 's> Writer<'t, 's> {
    /// Returns a reader that sees the transaction's own writes.
    pub(crate) fn reader(&self) -> Reader<'_> {
        match self {
            Self::One(writer) => Reader::One(writer.reader()),
            Self::Several(writer) => Reader::Several(writer.reader()),
        }
    }

    /// Returns a number of the transaction, and the number of earlier calls in this transaction; `None` if the engine's
    /// transactions write one after the other.
    pub(crate) fn numbered(&self) -> Option<(u64, u64)> {
        self.one().and_then(engine::Writer::numbered)
    }

    /// Returns the next number of a block that the engine has taken; `None` if the record of the sequence is changed by the
    /// transaction.
    #[inline]
    pub(crate) fn next_number(&self, numbering: &Numbering<'_>) -> Result<Option<u128>> {
        self.one().map_or(Ok(None), |writer| writer.next_number(numbering))
    }

    /// Ends the block of numbers after `error` of an insertion, if another row has the assigned number. With `reruns`, the
    /// transaction runs again.
    #[cold]
    pub(crate) fn after_number(&self, reruns: bool, error: Error) -> Error {
        match self {
            Self::One(writer) => writer.after_number(reruns, error),
            Self::Several(_) => error,
        }
    }

    /// Whether changes of totals are added by [`add_totals`](Writer::add_totals), without reading the totals.
    #[inline]
    pub(crate) const fn adds_totals(&self) -> bool {
        match self {
            Self::One(writer) => writer.adds_totals(),
            Self::Several(_) => false,
        }
    }

    /// Adds a change of the totals of a group.
    pub(crate) fn add_totals(
        &mut self,
        aggregate: usize,
        group: &[u8],
        change: &Totals,
    ) -> Result<()> {
        match self {
            Self::One(writer) => writer.add_totals(aggregate, group, change),
            Self::Several(_) => Err(Error::internal("shards without stripes")),
        }
    }

    /// Notes that a row has a new primary key.
    #[inline]
    pub(crate) fn note_key(&self, primary_key: &[u8]) {
        if let Self::One(writer) = self {
            writer.note_key(primary_key);
        }
    }

    const fn one(&self) -> Option<&engine::Writer<'t, 's>> {
        match self {
            Self::One(writer) => Some(writer),
            Self::Several(_) => None,
        }
    }

    /// Checks the pages of the table, in each shard that the transaction can write; see [`lmdb::Writer::check_pages`].
    pub(crate) fn check_pages(&mut self) -> Result<()> {
        match self {
            Self::One(engine::Writer::Lmdb(writer)) => writer.check_pages(),
            #[cfg(any(feature = "memory", feature = "postgres"))]
            Self::One(_) => Ok(()),
            Self::Several(writer) => writer
                .parts()
                .into_iter()
                .try_for_each(|shard| writer.part(shard, &mut |part| part.check_pages())),
        }
    }

    /// Returns the writer of several shards.
    pub(crate) const fn several(&mut self) -> Option<&mut shards::Writer<'t>> {
        match self {
            Self::One(_) => None,
            Self::Several(writer) => Some(writer),
        }
    }

    /// Whether two rows are in the same shard.
    pub(crate) fn have_same_shard(&self, one: &[u8], other: &[u8]) -> bool {
        let Self::Several(writer) = self else { return true };
        one == other || writer.have_same_shard(one, other)
    }

    /// Replaces or removes a small record in the shard of a row, or in each copy of a reference table.
    pub(crate) fn set_beside(
        &mut self,
        primary_key: &[u8],
        space: Space,
        key: &[u8],
        record: Option<&[u8]>,
    ) -> Result<()> {
        match (self, record) {
            (Self::Several(writer), _) => writer.set_beside(primary_key, space, key, record),
            (Self::One(writer), Some(record)) => writer.put(space, key, record),
            (Self::One(writer), None) => writer.remove(space, key),
        }
    }

    /// Writes records that moves don't copy, in one shard. One engine is the shard 0.
    pub(crate) fn beside(
        &mut self,
        shard: ShardNumber,
        write: &mut dyn FnMut(&mut Writer<'_, '_>) -> Result<()>,
    ) -> Result<()> {
        if let Self::Several(writer) = self {
            return writer.beside(shard, write);
        }
        write(self)
    }

    /// Returns the shards that can have changes in the stream of the table, or the only shard of the transaction.
    pub(crate) fn with_changes(&self) -> Vec<ShardNumber> {
        if let Self::Several(writer) = self {
            return writer.with_changes();
        }
        vec![0]
    }

    /// Writes in the shard of a row.
    pub(crate) fn in_shard_of(
        &mut self,
        primary_key: &[u8],
        write: &mut dyn FnMut(&mut Writer<'_, '_>) -> Result<()>,
    ) -> Result<()> {
        if let Self::Several(writer) = self {
            return writer.in_shard_of(primary_key, write);
        }
        write(self)
    }

    /// Returns the writer of several shards, for a table with global indexes.
    #[inline]
    pub(crate) const fn with_global(&mut self) -> Option<&mut shards::Writer<'t>> {
        match self {
            Self::Several(writer) if writer.has_global() => Some(writer),
            _ => None,
        }
    }

    /// Returns the writer of LMDB, for physical entries, which other engines don't have.
    pub(crate) const fn lmdb(&mut self) -> Option<&mut lmdb::Writer<'t, 's>> {
        match self {
            Self::One(writer) => writer.lmdb(),
            Self::Several(_) => None,
        }
    }
}

impl Sink for Writer<'_, '_> {
    forward! {
        on_each:
        fn change(&mut self, change: Change<'_>) -> Result<()>;
    }
}

impl Write for Writer<'_, '_> {
    forward_write!(on_each);

    fn exchange(
        &mut self,
        space: Space,
        removed: &[Vec<u8>],
        written: &[(Vec<u8>, Vec<u8>)],
    ) -> Result<()> {
        match self {
            Self::One(writer) => writer.exchange(space, removed, written),
            Self::Several(_) => engine::write_one_by_one(self, space, removed, written),
        }
    }

    fn put_new(&mut self, space: Space, key: &[u8], record: &[u8]) -> Result<()> {
        match self {
            Self::One(writer) => writer.put_new(space, key, record),
            Self::Several(_) => self.put(space, key, record),
        }
    }

    fn place_of_change(&mut self) -> Option<Place> {
        match self {
            Self::One(writer) => writer.place_of_change(),
            Self::Several(_) => None,
        }
    }
}
