//! What a table and its indexes are used for: counters that are always on, and the report of them.

mod advice;
mod counters;
mod progress;
mod session;
mod show;
mod stats;
#[cfg(test)]
mod tests;
pub(crate) mod trace;

pub(crate) use counters::{Counting, ReadCounters, RowWrite, TableCounters, Tally};
pub use progress::Progress;
pub(crate) use progress::ProgressReporter;
pub(crate) use session::Session;
pub(crate) use show::lines;
pub use stats::Stats;
pub(crate) use stats::{Ledger, Meter};

use serde::Serialize;

use crate::model::schema::Strategy;

/// What a table and its indexes have been used for, in this process and since the table was opened:
/// a report. From the `usage` of a repository.
///
/// Printed, it is a table. Serialized, it is for whoever collects figures.
///
/// A query counts when it is over, that is when its iterator is dropped; a write counts when it is
/// committed. A table is open as long as a clone of one of its repositories is there; opened again
/// after that, it begins at 0. Counting is always on: a `get` costs one addition to a counter that
/// threads share, a query two or three, and an entry none.
///
/// # Examples
///
/// ```
/// use index_table::{IndexTable, Store};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize, IndexTable)]
/// #[index(town)]
/// #[index(name)]
/// struct Person {
///     #[primary_key]
///     id: u32,
///     town: String,
///     name: String,
/// }
///
/// # fn main() -> index_table::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let store = Store::open(dir.path())?;
/// let people = PersonRepository::open(&store)?;
/// store.transaction(|txn| {
///     people.insert(txn, &Person { id: 1, town: "Redmond".into(), name: "Smith".into() })
/// })?;
/// people.find_by_town(&store.read()?, "Redmond").first()?;
///
/// assert_eq!(people.usage().to_string(), "\
/// table `person`
///   gets  scans  scanned  inserts  puts  updates  deletes
///      0      0        0        1     0        0        0
///
///   index  strategy    queries  entries  facts  written
///   town   normalized        1        1      1        1
///   name   normalized        0        0      0        1
/// ");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Usage {
    /// The name of the table.
    pub table: &'static str,
    /// Rows that were looked up by their primary key alone: by `get`, `get_many` and the rows of a
    /// [`Combined`](crate::Combined). Those that an index led to are with the index.
    pub gets: u64,
    /// Queries of the table itself, in the order of the primary key.
    pub scans: u64,
    /// Rows that these queries stepped on.
    pub scanned: u64,
    /// Rows that were inserted.
    pub inserts: u64,
    /// Rows that were put; not those that were in the table already, byte for byte.
    pub puts: u64,
    /// Rows that were updated, without those that stayed as they were.
    pub updates: u64,
    /// Rows that were deleted.
    pub deletes: u64,
    /// What its indexes were used for, in the order of their declaration.
    pub indexes: Vec<IndexUsage>,
}

/// What an index was used for; see [`Usage`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct IndexUsage {
    /// The name of the index.
    pub name: &'static str,
    /// `"normalized"`, `"partial"` or `"full"`.
    pub strategy: &'static str,
    /// Queries that were run: one for each scan, also within a [`Combined`](crate::Combined), and
    /// for each [`Distinct`](crate::Distinct). The check of a `unique` index in a write is none.
    pub queries: u64,
    /// Entries that these stepped on, as in [`Stats::entries`](crate::Stats::entries).
    pub entries: u64,
    /// References that were followed to their rows.
    pub facts: u64,
    /// Entries that writes of rows have written or removed.
    pub written: u64,
    /// What these counts and the declaration suggest, each with its reason.
    pub advice: Vec<String>,
}

impl Usage {
    /// Reads the counters. Other threads may add to them meanwhile, so that the figures of a
    /// moment need not fit together exactly.
    pub(crate) fn of(counters: &TableCounters) -> Self {
        let [scans, scanned, gets] = counters.facts.get();
        let mut usage = Self {
            table: counters.schema.name,
            gets,
            scans,
            scanned,
            inserts: counters.writes(RowWrite::Insert),
            puts: counters.writes(RowWrite::Put),
            updates: counters.writes(RowWrite::Update),
            deletes: counters.writes(RowWrite::Delete),
            indexes: Vec::new(),
        };
        let schema = counters.schema;
        let indexes = schema.indexes.iter().zip(&counters.indexes).enumerate();
        let indexes = indexes.map(|(position, (index, reads))| {
            let [queries, entries, facts] = reads.get();
            let strategy = match index.strategy {
                Strategy::Normalized => "normalized",
                Strategy::Partial(_) => "partial",
                Strategy::Full => "full",
            };
            let written = counters.written(position);
            let advice = Vec::new();
            let mut of_index =
                IndexUsage { name: index.name, strategy, queries, entries, facts, written, advice };
            of_index.advice = advice::of(index, &usage, &of_index);
            of_index
        });
        usage.indexes = indexes.collect();
        usage
    }
}
