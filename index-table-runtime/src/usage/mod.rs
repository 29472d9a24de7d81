//! The usage of a table and its indexes: counters that are always enabled, and their report.

mod advice;
mod counters;
mod inspections;
mod latency;
mod progress;
mod show;
mod stats;
#[cfg(test)]
mod tests;
pub(crate) mod trace;

pub(crate) use counters::{ReadCounters, Requests, RowWrite, TableCounters, Tally};
pub use inspections::Inspection;
pub(crate) use inspections::Inspections;
pub use latency::Latency;
pub(crate) use latency::{Durations, begin_commit};
pub use progress::Progress;
pub(crate) use progress::ProgressReporter;
pub(crate) use show::lines;
pub use stats::Stats;

use serde::Serialize;

use crate::model::schema::Strategy;

/// A report of the usage of a table and its indexes, in this process since the table was opened. From the
/// `usage` of a repository.
///
/// The report is displayed as a table, and can be serialized for monitoring.
///
/// A query counts when its iterator is dropped, and a write when it is committed. A table is open as long as
/// one of its repositories exists. When it is opened again after that, the counters start at 0. Counting is
/// always enabled: a `get` costs one addition to a counter that threads share, a query two or three, and an
/// entry none.
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
    /// [`Combined`](crate::Combined). Rows that were found through an index are counted for that index.
    pub gets: u64,
    /// Queries of the table itself, in the order of the primary key.
    pub scans: u64,
    /// Rows that these queries read.
    pub scanned: u64,
    /// Rows that were inserted.
    pub inserts: u64,
    /// Rows that were put, except for rows with unchanged bytes.
    pub puts: u64,
    /// Rows that were updated, except for unchanged rows.
    pub updates: u64,
    /// Rows that were deleted.
    pub deletes: u64,
    /// How often an expired row could not be deleted; see [`Expired::refused`](crate::Expired::refused). The same row counts again
    /// each time.
    pub refused_expiries: u64,
    /// Transactions with changed rows that were dropped without a commit; see [`WriteTxn`](crate::WriteTxn).
    pub uncommitted: u64,
    /// The usage of the indexes, in the order of their declaration.
    pub indexes: Vec<IndexUsage>,
}

/// The usage of an index; see [`Usage`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct IndexUsage {
    /// The name of the index.
    pub name: &'static str,
    /// `"normalized"`, `"partial"` or `"full"`.
    pub strategy: &'static str,
    /// Queries that were run: one for each scan, including scans within a [`Combined`](crate::Combined), and one for
    /// each [`Distinct`](crate::Distinct). The check of a `unique` index in a write is not counted.
    pub queries: u64,
    /// Entries that these queries read, as in [`Stats::entries`](crate::Stats::entries).
    pub entries: u64,
    /// References that were followed to their rows.
    pub facts: u64,
    /// Entries that were written or removed by writes of rows.
    pub written: u64,
    /// Advice from these counts and the declaration, each with its reason.
    pub advice: Vec<String>,
}

impl Usage {
    /// Reads the counters. Other threads may change them at the same time, so the numbers may not match each
    /// other exactly.
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
            refused_expiries: counters.refused_expiries(),
            uncommitted: counters.uncommitted(),
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
