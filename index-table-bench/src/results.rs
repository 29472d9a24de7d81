//! The results of a run.

use serde::{Deserialize, Serialize};

/// The measures, in the order of the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Measure {
    /// The load of all rows in one transaction, for a row.
    Load,
    /// The same load on a disk.
    LoadToDisk,
    /// The library's bulk load of all rows, for a row.
    BulkLoad,
    /// The same bulk load on a disk.
    BulkLoadToDisk,
    /// Inserts in a transaction each, on a disk.
    InsertOneByOne,
    /// The same inserts in memory.
    InsertOneByOneInMemory,
    /// Inserts in one transaction, into a table with rows.
    Insert,
    /// Point gets by primary key in one transaction.
    Get,
    /// Point gets by primary key, in a transaction each.
    GetOneByOne,
    /// Point gets by unique index.
    GetByEmail,
    /// One key to rows, for a row.
    RowsOfTown,
    /// One key to covered entries, for an entry.
    EntriesOfTown,
    /// Prefix and range to rows, for a row.
    RowsInRange,
    /// A page of twenty rows.
    Page,
    /// A count of the rows of a key.
    Count,
    /// Update of a field in no index.
    SetFirstName,
    /// Update of a field in two indexes.
    SetTown,
    /// The deletion of a row.
    Delete,
    /// Opening the store and getting one row by primary key.
    Reopen,
    /// The bytes of the files after the load, for a row.
    Space,
    /// The bytes of the files after [`Measure::BulkLoad`], for a row.
    BulkSpace,
    /// Allocations for an entry of [`Measure::EntriesOfTown`], without the allocations of the query.
    Allocations,
}

/// The figures of a run. Times are in nanoseconds.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Results {
    /// The figures of all sizes, measures and contenders.
    pub figures: Vec<Figure>,
    /// The numbers of loads and of rounds of the other operations.
    pub rounds: (usize, usize),
}

/// The figure of a size, a measure and a contender.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Figure {
    /// The number of rows of the table.
    pub rows: usize,
    /// The measure.
    pub measure: Measure,
    /// The name of the contender.
    pub contender: String,
    /// The median of the rounds; `None` if the contender lacks the operation.
    pub median: Option<f64>,
    /// The lowest and the highest figure of a round.
    pub spread: Option<(f64, f64)>,
    /// The median of the ratios to the first contender, each within its round.
    pub ratio: Option<f64>,
}

impl Results {
    /// Returns the figure of a size, a measure and a contender.
    #[must_use]
    pub fn figure(&self, rows: usize, measure: Measure, contender: &str) -> Option<&Figure> {
        self.figures.iter().find(|figure| {
            figure.rows == rows && figure.measure == measure && figure.contender == contender
        })
    }

    /// Returns the sizes of the table, in ascending order.
    #[must_use]
    pub fn sizes(&self) -> Vec<usize> {
        let mut sizes: Vec<usize> = self.figures.iter().map(|figure| figure.rows).collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }

    /// Returns the contenders, in their order.
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
