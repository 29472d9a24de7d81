//! The iterators of a combination.

use std::{fmt, iter::FusedIterator, marker::PhantomData};

use super::run::Run;
use crate::{
    model::{
        entity::{Entity, Viewed},
        error::Result,
        key::{Key, KeyReader},
        row,
    },
    usage::Stats,
};

/// Defines an iterator. The iterators differ in their name, their item, its decoding and the bound on the
/// row.
macro_rules! iterator {
    ($(#[$docs:meta])* $name:ident, $row:ident, $item:ty, $decode:expr) => {
        $(#[$docs])*
        #[must_use = "iterators are lazy"]
        pub struct $name<'txn, R> {
            pub(super) run: Run<'txn>,
            row: PhantomData<fn() -> R>,
        }

        impl<'txn, R> $name<'txn, R> {
            pub(super) const fn new(run: Run<'txn>) -> Self {
                Self { run, row: PhantomData }
            }

            /// Returns the reads so far of all scans together.
            #[must_use]
            pub fn stats(&self) -> Stats {
                self.run.stats()
            }
        }

        impl<'txn, R: $row> Iterator for $name<'txn, R> {
            type Item = Result<$item>;

            fn next(&mut self) -> Option<Self::Item> {
                self.run.decode_next::<R, _>($decode)
            }
        }

        impl<R: $row> FusedIterator for $name<'_, R> {}

        impl<R> fmt::Debug for $name<'_, R> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name)).finish_non_exhaustive()
            }
        }
    };
}

iterator! {
    /// The rows of a [`Combined`](crate::Combined); see [`Combined::rows`](crate::Combined::rows).
    /// Ends after the first error.
    CombinedRows, Entity, R, |run, reader, primary_key| {
        let lists = run.meter.lists();
        run.look_up(reader, primary_key, |bytes| row::decode(lists, bytes))
    }
}

iterator! {
    /// The views of the rows of a [`Combined`](crate::Combined); see
    /// [`Combined::views`](crate::Combined::views). Ends after the first error.
    CombinedViews, Viewed, R::View<'txn>, |run, reader, primary_key| {
        let (lists, unescaped) = (run.meter.lists(), &run.meter.session().unescaped);
        run.look_up(reader, primary_key, |bytes| row::view::<R>(lists, bytes, unescaped))
    }
}

iterator! {
    /// The primary keys of a [`Combined`](crate::Combined); see
    /// [`Combined::keys`](crate::Combined::keys). Ends after the first error.
    CombinedKeys, Entity, R::Key, |run, _, primary_key| {
        run.meter.bytes(primary_key.len());
        let mut reader = KeyReader::new(primary_key, &run.meter.session().unescaped);
        Ok(R::Key::decode_owned(&mut reader))
    }
}
