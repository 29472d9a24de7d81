use std::time::{Duration, Instant};

/// How far work that goes through the rows of a table has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct RowProgress {
    /// The rows that are done.
    pub rows: u64,
    /// The rows of the table, by the last count.
    pub total: u64,
    /// How long the rest takes at the pace so far; `None`: there is none to go by.
    pub left: Option<Duration>,
}

impl RowProgress {
    /// So many of so many rows, the first of them at `begun`.
    pub(crate) fn new(rows: u64, total: u64, begun: Instant) -> Self {
        // Rows that were written meanwhile may be behind, or be counted no more.
        let total = total.max(rows);
        let rest = begun.elapsed().as_nanos().checked_mul(u128::from(total - rows));
        let rest = rest.and_then(|rest| rest.checked_div(u128::from(rows)));
        let left = rest.and_then(|rest| u64::try_from(rest).ok()).map(Duration::from_nanos);
        Self { rows, total, left }
    }
}
