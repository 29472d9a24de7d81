//! `tracing` spans and events, which are compiled only with the feature `tracing`.

#[cfg(feature = "tracing")]
mod on {
    use std::{fmt, path::Path};

    use tracing::{Span, field::Empty};

    use crate::{
        model::{error::Error, lists::CopyFault, schema::Source},
        usage::{Stats, TableCounters},
    };

    /// The span of a query. Its cost is recorded when it ends.
    pub(crate) struct Trace(Span);

    impl Trace {
        pub(crate) fn scan(usage: &TableCounters, source: Source) -> Self {
            let (table, index) = (usage.schema.name, usage.schema.index_name(source));
            Self(tracing::debug_span!(
                target: "index_table", "scan", table, index, entries = Empty, facts = Empty
            ))
        }

        pub(crate) fn get_many(usage: &TableCounters) -> Self {
            let table = usage.schema.name;
            Self(tracing::debug_span!(target: "index_table", "get_many", table, facts = Empty))
        }

        /// Returns no span, for work whose parts have spans.
        pub(crate) const fn none() -> Self {
            Self(Span::none())
        }

        pub(crate) fn record(&self, stats: Stats) {
            self.0.record("entries", stats.entries).record("facts", stats.facts);
        }
    }

    /// Logs that a new table resembles a table that is not in use.
    pub(crate) fn similar_table(table: &str, other: &str) {
        tracing::warn!(
            target: "index_table", table, other,
            "table `{table}` is new and empty, and has the primary key and the fields of table `{other}`, which this process \
             has not opened; if it is the same table with a new name, declare `#[table(name = \"{table}\", was = \"{other}\")]`"
        );
    }

    /// Logs that an expired row could not be deleted.
    pub(crate) fn refused_expiry(table: &str, error: &Error) {
        tracing::warn!(
            target: "index_table", table,
            "expired rows of table `{table}` can't be deleted; the first: {error}"
        );
    }

    /// Logs that a write transaction with changes of these tables was dropped without a commit.
    pub(crate) fn uncommitted<'t>(tables: impl Iterator<Item = &'t str>) {
        let tables = tables.map(|table| format!("`{table}`")).collect::<Vec<_>>().join(", ");
        tracing::warn!(
            target: "index_table", %tables,
            "a write transaction was dropped without `commit`, so its changes of {tables} are lost"
        );
    }

    /// Logs the first error of a worker that has succeeded before.
    pub(crate) fn failing_worker(error: &Error) {
        tracing::warn!(
            target: "index_table",
            "the index worker can't apply messages, and tries it again: {error}"
        );
    }

    /// Logs that the thread of a worker has panicked.
    pub(crate) fn stopped_worker() {
        tracing::warn!(
            target: "index_table",
            "the index worker has panicked and stopped; start another one with `Store::start_index_worker`"
        );
    }

    /// Logs that a move has stopped before its end.
    pub(crate) fn stopped_move(id: &dyn fmt::Display, error: &Error) {
        tracing::warn!(
            target: "index_table", %id,
            "move {id} has stopped; `Store::resume_move` continues it, and `Store::cancel_move` gives it up: {error}"
        );
    }

    /// Logs that one copy of the record of a table's lists can't be used.
    pub(crate) fn damaged_lists(table: &str, fault: &CopyFault) {
        tracing::warn!(
            target: "index_table", table,
            "the lists of the rows of table `{table}`: {fault}; opening the table for writing writes that copy again"
        );
    }

    /// Logs that an index is not built yet.
    pub(crate) fn announced_index(table: &str, index: &str) {
        tracing::info!(
            target: "index_table", table, index,
            "the index `{index}` of table `{table}` is built when the clients of an earlier release, which don't declare it, \
             have ended"
        );
    }

    /// Logs that the pages of the second copies of lists are damaged.
    pub(crate) fn damaged_list_copies(path: &Path, damage: &str) {
        let path = path.display();
        tracing::warn!(
            target: "index_table", %path,
            "`{path}` has lost the second copies of the lists of its rows: {damage}; the first copies are used, and are \
             the only ones until the rows are in another file; load a dump into a new store, or restore a copy"
        );
    }

    /// Enters a span until the end of the block.
    macro_rules! span {
        ($level:ident, $name:literal $(, $($fields:tt)*)?) => {
            let _entered = tracing::span!(
                target: "index_table", tracing::Level::$level, $name $(, $($fields)*)?
            ).entered();
        };
    }
    pub(crate) use span;
}

#[cfg(not(feature = "tracing"))]
mod off {
    use std::{fmt, path::Path};

    use crate::{
        model::{error::Error, lists::CopyFault, schema::Source},
        usage::{Stats, TableCounters},
    };

    pub(crate) struct Trace;

    impl Trace {
        #[inline]
        pub(crate) const fn scan(_: &TableCounters, _: Source) -> Self {
            Self
        }

        #[inline]
        pub(crate) const fn get_many(_: &TableCounters) -> Self {
            Self
        }

        #[inline]
        pub(crate) const fn none() -> Self {
            Self
        }

        #[inline]
        #[expect(clippy::unused_self, reason = "as with the feature")]
        pub(crate) const fn record(&self, _: Stats) {}
    }

    #[inline]
    pub(crate) const fn similar_table(_: &str, _: &str) {}

    #[inline]
    pub(crate) const fn refused_expiry(_: &str, _: &Error) {}

    #[inline]
    pub(crate) fn uncommitted<'t>(_: impl Iterator<Item = &'t str>) {}

    #[inline]
    pub(crate) const fn failing_worker(_: &Error) {}

    #[inline]
    pub(crate) const fn stopped_worker() {}

    #[inline]
    pub(crate) const fn stopped_move(_: &dyn fmt::Display, _: &Error) {}

    #[inline]
    pub(crate) const fn damaged_lists(_: &str, _: &CopyFault) {}

    #[inline]
    pub(crate) const fn announced_index(_: &str, _: &str) {}

    #[inline]
    pub(crate) const fn damaged_list_copies(_: &Path, _: &str) {}

    macro_rules! span {
        ($($span:tt)*) => {};
    }
    pub(crate) use span;
}

#[cfg(not(feature = "tracing"))]
pub(crate) use off::{
    Trace, announced_index, damaged_list_copies, damaged_lists, failing_worker, refused_expiry,
    similar_table, span, stopped_move, stopped_worker, uncommitted,
};
#[cfg(feature = "tracing")]
pub(crate) use on::{
    Trace, announced_index, damaged_list_copies, damaged_lists, failing_worker, refused_expiry,
    similar_table, span, stopped_move, stopped_worker, uncommitted,
};
