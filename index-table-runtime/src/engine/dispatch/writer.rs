//! Writes of any engine.

#[cfg(feature = "memory")]
use crate::engine::memory;
#[cfg(feature = "postgres")]
use crate::engine::postgres;
use crate::{
    engine::{
        Ascending, Space, Write,
        dispatch::Reader,
        forward::{forward, forward_write, of_each_engine, on_engine},
        lmdb, write,
    },
    model::{
        aggregate::Totals,
        error::{Error, Result},
        maintain::{Change, Sink},
        numbering::Numbering,
        schema::{IndexSchema, Source},
        stream::Place,
    },
};

of_each_engine! {
    /// The [`Write`] of any engine.
    enum Writer<'t, 's> { lmdb::Writer<'t, 's>, memory::Writer<'t>, postgres::Writer<'t> }
}

impl<'t, 's> Writer<'t, 's> {
    /// Returns a reader that sees the transaction's own writes.
    pub(crate) fn reader(&self) -> Reader<'_> {
        match self {
            Self::Lmdb(writer) => Reader::Lmdb(writer.reader()),
            #[cfg(feature = "memory")]
            Self::Memory(writer) => Reader::Memory(writer.reader()),
            #[cfg(feature = "postgres")]
            Self::Postgres(writer) => Reader::Postgres(writer.reader()),
        }
    }

    /// Returns a number of the transaction, and a random number plus the number of earlier calls in this transaction; `None` if the engine's
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
            Self::Lmdb(_) => false,
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

    /// Returns the writer of LMDB, for physical entries, which other engines don't have.
    #[cfg_attr(
        not(any(feature = "memory", feature = "postgres")),
        expect(clippy::unnecessary_wraps, reason = "other engines have none")
    )]
    pub(crate) const fn lmdb(&mut self) -> Option<&mut lmdb::Writer<'t, 's>> {
        match self {
            Self::Lmdb(writer) => Some(writer),
            #[cfg(feature = "memory")]
            Self::Memory(_) => None,
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => None,
        }
    }
}

impl Sink for Writer<'_, '_> {
    forward! {
        on_engine:
        fn change(&mut self, change: Change<'_>) -> Result<()>;
    }
}

impl Write for Writer<'_, '_> {
    forward_write!(on_engine);

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

    fn put_new(&mut self, space: Space, key: &[u8], record: &[u8]) -> Result<()> {
        #[cfg(feature = "postgres")]
        if let Self::Postgres(writer) = self {
            return writer.put_new(space, key, record);
        }
        self.put(space, key, record)
    }

    fn place_of_change(&mut self) -> Option<Place> {
        #[cfg(feature = "postgres")]
        if let Self::Postgres(writer) = self {
            return writer.place_of_change();
        }
        None
    }
}
