//! The iterators of a scan.

use std::{fmt, iter::FusedIterator, marker::PhantomData};

use super::{Scan, entry_scan::EntryScan};
use crate::{
    model::{
        entity::{Entity, EntryReader, IndexEntry, Viewed},
        error::Result,
        row::{self, Body},
    },
    placement::{self, LentEntries},
    usage::Stats,
};

/// The [rows](Scan::rows) of the scan.
impl<'txn, E: IndexEntry<'txn>> IntoIterator for Scan<'txn, E> {
    type Item = Result<E::Row>;
    type IntoIter = Rows<'txn, E>;

    fn into_iter(self) -> Rows<'txn, E> {
        self.rows()
    }
}

/// Defines an iterator. The iterators differ in their name, their item, the entries that they read, the
/// conversion to an item and the bound on the row.
macro_rules! iterator {
    (
        $(#[$docs:meta])* $name:ident, $item:ty, $entries:ty, $scan:ident => $next:expr
        $(, where $row:ident)?
    ) => {
        $(#[$docs])*
        #[must_use = "iterators are lazy"]
        pub struct $name<'txn, E> {
            scan: EntryScan<'txn, $entries>,
            entry: PhantomData<fn() -> E>,
        }

        impl<'txn, E> $name<'txn, E> {
            pub(super) const fn new(scan: EntryScan<'txn, $entries>) -> Self {
                Self { scan, entry: PhantomData }
            }

            /// Returns the reads of this scan so far.
            #[must_use]
            pub fn stats(&self) -> Stats {
                self.scan.stats()
            }
        }

        impl<'txn, E: IndexEntry<'txn $(, Row: $row)?>> Iterator for $name<'txn, E> {
            type Item = Result<$item>;

            #[inline]
            fn next(&mut self) -> Option<Self::Item> {
                let $scan = &mut self.scan;
                $next
            }
        }

        impl<'txn, E: IndexEntry<'txn $(, Row: $row)?>> FusedIterator for $name<'txn, E> {}

        impl<E> fmt::Debug for $name<'_, E> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name)).finish_non_exhaustive()
            }
        }
    };
}

iterator! {
    /// The rows of a scan; see [`Scan::rows`](crate::Scan::rows). Ends after the first error.
    Rows, E::Row, LentEntries<'txn>, scan => scan.next_row()
}

iterator! {
    /// The views of a scan's rows; see [`Scan::views`](crate::Scan::views). Ends after the first
    /// error.
    Views, <E::Row as Viewed>::View<'txn>, placement::Entries<'txn>, scan => scan.decode_next(
        |scan, entry| Ok((scan.row_bytes(entry)?, scan.lists(), scan.unescaped())),
        |(bytes, lists, unescaped)| row::view::<E::Row>(lists, bytes, unescaped),
    ), where Viewed
}

iterator! {
    /// The entries of a scan; see [`Scan::entries`](crate::Scan::entries). Ends after the first
    /// error.
    Entries, E, placement::Entries<'txn>, scan => scan.decode_next(
        |scan, entry| scan.entry_to_read(entry, E::SOURCE, const { Body::of::<E::Row>() }),
        |(entry, form, context)| EntryReader::read(entry, form, context, E::decode),
    )
}

iterator! {
    /// The primary keys of a scan; see [`Scan::keys`](crate::Scan::keys). Ends after the first
    /// error.
    Keys, <E::Row as Entity>::Key, LentEntries<'txn>, scan => scan.next_key::<E::Row>()
}
