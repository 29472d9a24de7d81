//! Writes of any engine.

#[cfg(feature = "memory")]
use crate::engine::memory;
#[cfg(feature = "postgres")]
use crate::engine::postgres;
use crate::{
    engine::{
        Ascending, Space, Write,
        dispatch::Reader,
        forward::{forward, of_each_engine, unlikely},
        lmdb,
        shards::{self},
        write,
    },
    model::{
        aggregate::Totals,
        error::{Error, Result},
        maintain::{Change, Sink},
        numbering::Numbering,
        schema::{IndexSchema, Source},
        shard::ShardNumber,
        stream::Place,
    },
};

of_each_engine! {
    /// The [`Write`] of any engine.
    enum Writer<'t, 's> { lmdb::Writer<'t, 's>, shards::Writer<'t>, memory::Writer<'t>, postgres::Writer<'t> }
}

impl<'t, 's> Writer<'t, 's> {
    /// Returns a reader that sees the transaction's own writes.
    pub(crate) fn reader(&self) -> Reader<'_> {
        match self {
            Self::Lmdb(writer) => Reader::Lmdb(writer.reader()),
            Self::Sharded(writer) => {
                unlikely();
                Reader::Sharded(writer.reader())
            }
            #[cfg(feature = "memory")]
            Self::Memory(writer) => Reader::Memory(writer.reader()),
            #[cfg(feature = "postgres")]
            Self::Postgres(writer) => Reader::Postgres(writer.reader()),
        }
    }

    /// Returns a number of the transaction, and the number of earlier calls in this transaction; `None` if the engine's
    /// transactions write one after the other.
    #[cfg_attr(not(feature = "postgres"), expect(clippy::unused_self, reason = "of one engine"))]
    pub(crate) fn numbered(&self) -> Option<(u64, u64)> {
        #[cfg(feature = "postgres")]
        if let Self::Postgres(writer) = self {
            return Some(writer.numbered());
        }
        None
    }

    /// Returns the next number of a block that the engine has taken; `None` if the record of the sequence is changed by the
    /// transaction.
    #[inline]
    #[cfg_attr(
        not(feature = "postgres"),
        expect(
            clippy::unused_self,
            clippy::unnecessary_wraps,
            unused_variables,
            reason = "of one engine"
        )
    )]
    pub(crate) fn next_number(&self, numbering: &Numbering<'_>) -> Result<Option<u128>> {
        #[cfg(feature = "postgres")]
        if let Self::Postgres(writer) = self {
            return writer.next_number(numbering);
        }
        Ok(None)
    }

    /// Ends the block of numbers after `error` of an insertion, if another row has the assigned number. With `reruns`, the
    /// transaction runs again.
    #[cold]
    #[cfg_attr(
        not(feature = "postgres"),
        expect(clippy::unused_self, unused_variables, reason = "of one engine")
    )]
    pub(crate) fn after_number(&self, reruns: bool, error: Error) -> Error {
        #[cfg(feature = "postgres")]
        if let (Self::Postgres(writer), Error::DuplicateKey { .. }) = (self, &error) {
            if reruns {
                return writer.number_is_taken();
            }
            writer.end_numbers();
            let reason = "another client has inserted a row with the assigned number, and the closure can be called once: \
                          repeat the call";
            return Error::TransactionFailed { reason: reason.to_owned() };
        }
        error
    }

    /// Whether changes of totals are added by [`add_totals`](Writer::add_totals), without reading the totals.
    #[inline]
    pub(crate) const fn adds_totals(&self) -> bool {
        match self {
            Self::Lmdb(_) | Self::Sharded(_) => false,
            #[cfg(feature = "memory")]
            Self::Memory(_) => false,
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => true,
        }
    }

    /// Adds a change of the totals of a group.
    #[cfg_attr(
        not(feature = "postgres"),
        expect(clippy::unused_self, unused_variables, reason = "of one engine")
    )]
    pub(crate) fn add_totals(
        &mut self,
        aggregate: usize,
        group: &[u8],
        change: &Totals,
    ) -> Result<()> {
        #[cfg(feature = "postgres")]
        if let Self::Postgres(writer) = self {
            return writer.add_totals(aggregate, group, change);
        }
        Err(Error::internal("an engine without stripes"))
    }

    /// Notes that a row has a new primary key.
    #[inline]
    #[cfg_attr(
        not(feature = "postgres"),
        expect(clippy::unused_self, unused_variables, reason = "of one engine")
    )]
    pub(crate) fn note_key(&self, primary_key: &[u8]) {
        #[cfg(feature = "postgres")]
        if let Self::Postgres(writer) = self {
            writer.note_key(primary_key);
        }
    }

    /// Returns the writer of a sharded store.
    pub(crate) const fn sharded(&mut self) -> Option<&mut shards::Writer<'t>> {
        match self {
            Self::Sharded(writer) => Some(writer),
            Self::Lmdb(_) => None,
            #[cfg(feature = "memory")]
            Self::Memory(_) => None,
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => None,
        }
    }

    /// Whether two rows are in the same shard.
    pub(crate) fn have_same_shard(&self, one: &[u8], other: &[u8]) -> bool {
        let Self::Sharded(writer) = self else { return true };
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
            (Self::Sharded(writer), _) => writer.set_beside(primary_key, space, key, record),
            (writer, Some(record)) => writer.put(space, key, record),
            (writer, None) => writer.remove(space, key),
        }
    }

    /// Writes records that moves don't copy, in one shard. A store without shards has the shard 0.
    pub(crate) fn beside(
        &mut self,
        shard: ShardNumber,
        write: &mut dyn FnMut(&mut Writer<'_, '_>) -> Result<()>,
    ) -> Result<()> {
        if let Self::Sharded(writer) = self {
            return writer.beside(shard, write);
        }
        write(self)
    }

    /// Returns the shards that can have changes in the stream of the table, or the only shard of the transaction.
    pub(crate) fn with_changes(&self) -> Vec<ShardNumber> {
        if let Self::Sharded(writer) = self {
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
        if let Self::Sharded(writer) = self {
            return writer.in_shard_of(primary_key, write);
        }
        write(self)
    }

    /// Returns the writer of a sharded table with global indexes.
    #[inline]
    pub(crate) const fn with_global(&mut self) -> Option<&mut shards::Writer<'t>> {
        match self {
            Self::Sharded(writer) if writer.has_global() => Some(writer),
            _ => None,
        }
    }

    /// Returns the writer of LMDB, for physical entries, which other engines don't have.
    pub(crate) const fn lmdb(&mut self) -> Option<&mut lmdb::Writer<'t, 's>> {
        match self {
            Self::Lmdb(writer) => Some(writer),
            Self::Sharded(_) => None,
            #[cfg(feature = "memory")]
            Self::Memory(_) => None,
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => None,
        }
    }
}

impl Sink for Writer<'_, '_> {
    forward! {
        fn change(&mut self, change: Change<'_>) -> Result<()>;
    }
}

impl Write for Writer<'_, '_> {
    forward! {
        fn append(&mut self, source: Source, entries: &mut dyn Ascending) -> Result<u64>;
        #[inline]
        fn defer_new(&mut self) -> bool;
        fn settle_new(&mut self) -> Result<bool>;
        fn abandon_new(&mut self) -> ();
        fn insert_fact(&mut self, primary_key: &[u8], row: &[u8]) -> Result<bool>;
        fn insert_entry(
            &mut self,
            index: usize,
            key: &[u8],
            primary_key: &[u8],
            data: &[u8],
        ) -> Result<bool>;
        fn put_shared(
            &mut self,
            index: usize,
            key: &[u8],
            primary_key: &[u8],
            data: &[u8],
        ) -> Result<()>;
        fn remove_shared(&mut self, index: usize, key: &[u8], primary_key: &[u8]) -> Result<()>;
        fn flush(&mut self) -> Result<()>;
        fn clear(&mut self, index: usize) -> Result<()>;
        fn put(&mut self, space: Space, key: &[u8], record: &[u8]) -> Result<()>;
        fn remove(&mut self, space: Space, key: &[u8]) -> Result<()>;
        fn clear_space(&mut self, space: Space) -> Result<()>;
        fn layout(&self, index: &IndexSchema) -> &'static str;
    }

    fn exchange(
        &mut self,
        space: Space,
        removed: &[Vec<u8>],
        written: &[(Vec<u8>, Vec<u8>)],
    ) -> Result<()> {
        #[cfg(feature = "postgres")]
        if let Self::Postgres(writer) = self {
            return writer.exchange(space, removed, written);
        }
        write::one_by_one(self, space, removed, written)
    }

    fn place_of_change(&mut self) -> Option<Place> {
        #[cfg(feature = "postgres")]
        if let Self::Postgres(writer) = self {
            return writer.place_of_change();
        }
        None
    }
}
