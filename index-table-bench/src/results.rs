//! The results of a run.

use serde::{Deserialize, Serialize};

/// The measures, in the order of the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Measure {
    /// All rows in one transaction, for a row.
    Load,
    /// The same on a disk.
    LoadToDisk,
    /// All rows by the library's bulk load, for a row.
    BulkLoad,
    /// The same on a disk.
    BulkLoadToDisk,
    /// Rows in transactions of their own, on a disk.
    InsertOneByOne,
    /// The same in memory.
    InsertOneByOneInMemory,
    /// Rows in one transaction, into a table that has rows.
    Insert,
    /// By primary key, many in one transaction.
    Get,
    /// By primary key, a transaction each.
    GetOneByOne,
    /// By unique index.
    GetByEmail,
    /// One key to rows, for a row.
    RowsOfTown,
    /// One key to covered entries, for an entry.
    EntriesOfTown,
    /// Prefix and range to rows, for a row.
    RowsInRange,
    /// For a page of twenty rows.
    Page,
    /// For a count.
    Count,
    /// Update of a field in no index.
    SetFirstName,
    /// Update of a field in two indexes.
    SetTown,
    /// Of a row.
    Delete,
    /// Open, and one row by primary key.
    Reopen,
    /// Bytes of the files after the load, for a row.
    Space,
    /// The same after [`Measure::BulkLoad`].
    BulkSpace,
    /// Allocations for an entry of [`Measure::EntriesOfTown`], without the allocations of the query.
    Allocations,
}

/// The figures of a run. Times are in nanoseconds.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Results {
    /// Rows of the table, measure, contender → figure and its rounds; without one: `N/A`.
    pub figures: Vec<Figure>,
    /// Rounds of loads and of the other operations.
    pub rounds: (usize, usize),
}

/// One of the figures.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Figure {
    /// Of the table.
    pub rows: usize,
    /// What it is.
    pub measure: Measure,
    /// Whose it is.
    pub contender: String,
    /// The median of the rounds.
    pub median: Option<f64>,
    /// The lowest and the highest of the rounds.
    pub spread: Option<(f64, f64)>,
    /// The median of the ratios to the first contender, each within its round.
    pub ratio: Option<f64>,
}

impl Results {
    /// One of the figures.
    #[must_use]
    pub fn figure(&self, rows: usize, measure: Measure, contender: &str) -> Option<&Figure> {
        self.figures.iter().find(|figure| {
            figure.rows == rows && figure.measure == measure && figure.contender == contender
        })
    }

    /// The sizes of the table, in ascending order.
    #[must_use]
    pub fn sizes(&self) -> Vec<usize> {
        let mut sizes: Vec<usize> = self.figures.iter().map(|figure| figure.rows).collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }

    /// The contenders, in their order.
    #[must_use]
    pub fn contenders(&self) -> Vec<&str> {
        let mut names = Vec::new();
        for figure in &self.figures {
            if !names.contains(&figure.contender.as_str()) {
                names.push(figure.contender.as_str());
            }
        }
        names
    }
}
