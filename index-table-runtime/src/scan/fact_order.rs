//! The rows of a scan in the order of the fact table, batch by batch.

use std::{fmt, iter::FusedIterator, marker::PhantomData, vec};

use super::{Scan, iter::Raw};
use crate::{
    engine::RawEntry,
    entity::IndexEntry,
    error::{Error, Result},
};

/// Entries in a batch. `index-table-bench/src/bin/fact_order.rs` has the measurement.
const BATCH: usize = 16_384;

impl<'txn, E: IndexEntry<'txn>> Scan<'txn, E> {
    /// The rows, not in the order of the index but in one in which they are found sooner: for
    /// large answers of a normalized or partial index.
    pub fn rows_in_fact_order(self) -> FactOrderRows<'txn, E> {
        FactOrderRows {
            raw: self.into_raw(),
            batch: Vec::new().into_iter(),
            failure: None,
            entry: PhantomData,
        }
    }
}

/// The rows of a scan, batch by batch in the order of the fact table; see
/// [`Scan::rows_in_fact_order`]. Ends after the first error.
#[must_use = "iterators are lazy"]
pub struct FactOrderRows<'txn, E> {
    raw: Raw<'txn>,
    /// What is left of the batch, in the order of the primary keys.
    batch: vec::IntoIter<RawEntry<'txn>>,
    /// What ended the scan behind this batch.
    failure: Option<Error>,
    entry: PhantomData<fn() -> E>,
}

impl<E> FactOrderRows<'_, E> {
    /// Reads the next entries and sorts them; without any, it is over.
    fn fill(&mut self) {
        // The memory of the last batch would be lost in a `collect`.
        let mut batch = Vec::new();
        while batch.len() < BATCH {
            match self.raw.next() {
                Some(Ok(entry)) => batch.push(entry),
                Some(Err(error)) => {
                    self.failure = Some(error);
                    break;
                }
                None => break,
            }
        }
        batch.sort_unstable_by(|a, b| a.primary_key.cmp(b.primary_key));
        self.batch = batch.into_iter();
    }
}

impl<'txn, E: IndexEntry<'txn>> Iterator for FactOrderRows<'txn, E> {
    type Item = Result<E::Row>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.raw.carries_rows() {
            return self.raw.next_row().map(|next| next.map(|(_, row)| row));
        }
        if self.batch.as_slice().is_empty() {
            if self.failure.is_none() {
                self.fill();
            }
            if self.batch.as_slice().is_empty() {
                return self.failure.take().map(Err);
            }
        }
        let row = self.raw.row_of(self.batch.next()?);
        if row.is_err() {
            (self.batch, self.failure) = (Vec::new().into_iter(), None);
        }
        Some(row)
    }
}

impl<'txn, E: IndexEntry<'txn>> FusedIterator for FactOrderRows<'txn, E> {}

impl<E> fmt::Debug for FactOrderRows<'_, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FactOrderRows").finish_non_exhaustive()
    }
}
