//! Verification and repair: comparing the indexes of a table with its rows.
//!
//! [`walk`] goes through a table and finds differences, in bytes, with their fixes. [`Verify`] displays the
//! differences, and [`Repair`] applies the fixes. The engine checks the physical pieces of an index.

mod compare;
mod finding;
mod images;
mod raw_finding;
mod repair;
mod resume_point;
mod row;
mod sums;
mod walk;

use std::{fmt, iter::FusedIterator};

pub use finding::{Finding, FindingKind, VerifyReport};
pub use repair::Repair;

use crate::{
    model::{
        error::{Error, Result},
        row_vtable::RowVtable,
    },
    query::Cursor,
    store::{OpenTable, ReadTxn},
    usage::{Progress, ProgressReporter, trace::span},
};
use resume_point::ResumePoint;
use walk::TableCheck;

/// Compares the indexes of a table with its rows, in the snapshot of a transaction, and yields the
/// differences. From the `verify` of a repository; [`Repair`] corrects them.
///
/// [`run`](Verify::run) reads the whole table and returns a [`VerifyReport`]. As an iterator, it yields each
/// [`Finding`]; it ends after the first error. [`rows`](Verify::rows) and [`entries`](Verify::entries) have
/// the progress, and [`cursor`](Verify::cursor) the position where [`after`](Verify::after) continues, in
/// this transaction or a later one, and even in another process.
///
/// An index that is under construction or disabled is skipped. The duplicates of a
/// [violated](crate::IndexState::Violated) index are not findings. For every other index, the physical pieces
/// are checked first; then each entry is compared with its row. At the end, every row is read, and each of its
/// entries is looked up. The verification does not search for damage inside LMDB's pages, which can make LMDB
/// fail.
///
/// Cost: all rows are decoded once, and once more for each index. The expected entries of all rows are compared
/// with the actual entries by hashes. An entry is compared with its row, and looked up, only if the hashes
/// differ. With a [`limit`](Verify::limit), and in the index in which [`after`](Verify::after) continues, each
/// entry is compared, without hashes. Memory does not grow with the number of rows.
///
/// # Examples
///
/// ```
/// use index_table::{IndexTable, Store};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize, IndexTable)]
/// #[index(town)]
/// struct Person {
///     #[primary_key]
///     id: u32,
///     town: String,
/// }
///
/// # fn main() -> index_table::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let store = Store::open(dir.path())?;
/// let people = PersonRepository::open(&store)?;
/// store.transaction(|txn| people.insert(txn, &Person { id: 1, town: "Redmond".into() }))?;
///
/// let report = people.verify(&store.read()?).run()?;
/// assert!(report.is_clean(), "{report}");
/// assert_eq!((report.rows, report.entries), (1, 1));
/// # Ok(())
/// # }
/// ```
#[must_use = "a verification does nothing until it is run"]
pub struct Verify<'txn> {
    rows: &'static RowVtable,
    /// The walk; `None` after an error.
    walk: Option<TableCheck<'txn>>,
    /// An error of an earlier method, which the iterator returns as its only item.
    failure: Option<Error>,
    /// The remaining steps.
    left: Option<u64>,
    reporter: Option<ProgressReporter<'txn>>,
}

impl<'txn> Verify<'txn> {
    pub(crate) fn of(table: &'txn OpenTable, txn: &'txn ReadTxn<'_>) -> Self {
        let rows = table.rows;
        let reader = txn.reader(table).and_then(|reader| Ok((reader, txn.unreadable(table)?)));
        let (walk, failure) = match reader {
            Ok((reader, unreadable)) => {
                let first = ResumePoint::first(rows.schema);
                (Some(TableCheck::new(rows, reader, unreadable, first)), None)
            }
            Err(error) => (None, Some(error)),
        };
        Self { rows, walk, failure, left: None, reporter: None }
    }

    /// Continues at the position at which another verification of the table stopped. Any other cursor is
    /// [`Error::InvalidCursor`].
    ///
    /// If rows have changed since then, changes after the position are verified, and changes before it are not.
    /// Counts of entries ([`FindingKind::WrongCount`]) are compared if one verification has read the whole
    /// index.
    pub fn after(mut self, cursor: &Cursor) -> Self {
        if let Some(walk) = self.walk.take() {
            match ResumePoint::of(self.rows.schema, cursor.clone()) {
                Ok(resume_point) => self.walk = Some(walk.start_at(resume_point)),
                Err(error) => self.failure = Some(error),
            }
        }
        self
    }

    /// Ends after this many steps: a step is a row, an entry or a block of entries.
    pub fn limit(mut self, steps: u64) -> Self {
        self.left = Some(steps);
        self.walk = self.walk.map(TableCheck::in_parts);
        self
    }

    /// Calls `progress` every few thousand steps, and at the end. A step is a row, an entry, a block of entries
    /// or the end of a stage. Reading all rows before the entries of an index does not count.
    ///
    /// Cost: the entries are counted first, as by [`Scan::count`](crate::Scan::count).
    pub fn progress(mut self, progress: impl FnMut(Progress) + 'txn) -> Self {
        if let Some(walk) = &self.walk {
            match walk.total() {
                Ok(total) => {
                    let progress: Box<dyn FnMut(Progress) + 'txn> = Box::new(progress);
                    self.reporter =
                        Some(ProgressReporter::new(Some(progress), "steps", Some(total)));
                }
                Err(error) => (self.walk, self.failure) = (None, Some(error)),
            }
        }
        self
    }

    /// Verifies the table, up to the [`limit`](Verify::limit).
    ///
    /// # Errors
    ///
    /// [`Error::InvalidCursor`], [`Error::SchemaMismatch`] if another process has changed the declaration of
    /// an index, and the [errors of reading](crate::Error#common-errors). The findings are in the report.
    pub fn run(mut self) -> Result<VerifyReport> {
        span!(DEBUG, "verify", table = self.rows.schema.name);
        let mut report = VerifyReport::new(self.rows.schema);
        for finding in &mut self {
            report.add(finding?);
        }
        (report.rows, report.entries, report.next) = (self.rows(), self.entries(), self.cursor());
        Ok(report)
    }

    /// The number of rows that were read so far in the order of the table.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.walk.as_ref().map_or(0, |walk| walk.rows)
    }

    /// The number of entries that were compared with their rows so far.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.walk.as_ref().map_or(0, |walk| walk.entries)
    }

    /// The current position, for [`after`](Verify::after); `None` at the end, or after an error.
    ///
    /// Like every [`Cursor`], it contains keys of the table and is not signed.
    #[must_use]
    pub fn cursor(&self) -> Option<Cursor> {
        self.walk.as_ref()?.resume_point().map(|it| it.cursor(self.rows.schema))
    }
}

impl Iterator for Verify<'_> {
    type Item = Result<Finding>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let Some(walk) = &mut self.walk else { return self.failure.take().map(Err) };
            if let Some(found) = walk.next_raw() {
                return Some(Ok(Finding::new(self.rows.schema, &found)));
            }
            if self.left == Some(0) {
                return None;
            }
            match walk.step() {
                Ok(true) => {
                    self.left = self.left.map(|left| left - 1);
                    if let Some(reporter) = &mut self.reporter {
                        reporter.add(1);
                    }
                }
                Ok(false) => {
                    if let Some(mut reporter) = self.reporter.take() {
                        reporter.report();
                    }
                    return None;
                }
                Err(error) => {
                    self.walk = None;
                    return Some(Err(error));
                }
            }
        }
    }
}

impl FusedIterator for Verify<'_> {}

impl fmt::Debug for Verify<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verify").finish_non_exhaustive()
    }
}
