//! Verification and repair: whether the indexes of a table are what its rows say.
//!
//! [`walk`] goes through a table and says what is wrong, in bytes, and how it would be repaired;
//! [`Verify`] shows that and [`Repair`] does it. Whether pieces of an index lie as they should is
//! asked of the engine.

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
    engine::Reader,
    model::{
        entity::Entity,
        error::{Error, Result},
    },
    query::Cursor,
    store::Unreadable,
    usage::{Progress, ProgressReporter, trace::span},
};
use resume_point::ResumePoint;
use walk::TableCheck;

/// Compares the indexes of a table with its rows, in the snapshot of a transaction, and yields what
/// is wrong. From the `verify` of a repository; see [`Repair`] for what to do about it.
///
/// [`run`](Verify::run) goes through everything and gives a [`VerifyReport`]. As an iterator, it yields
/// each [`Finding`] when it is met; it ends after the first error. In between, or with a
/// [`limit`](Verify::limit), [`rows`](Verify::rows) and [`entries`](Verify::entries) say how much
/// has been looked at, and [`cursor`](Verify::cursor) where [`after`](Verify::after) continues, in
/// this transaction or a later one, and in another process if need be.
///
/// An index that lacks entries, because it is being built or is disabled, is passed over. The duplicates of
/// a [violated](crate::IndexState::Violated) index are no findings. Every other index is read as it is
/// stored, and then entry by entry: each is compared with the row that it refers to. Then every row is read,
/// and each of its entries has to be there. What is wrong inside of
/// LMDB's own pages is not looked for: LMDB itself may fail at it.
///
/// Cost: all rows are decoded once, and once more for each index, and the entries that they should have
/// are compared with those of the index by hashes. Only where the hashes differ is an entry compared with
/// its row, and looked up. With a [`limit`](Verify::limit), and in the index in which
/// [`after`](Verify::after) continues, this is done for each entry, without hashes. Memory does not grow
/// with the number of rows.
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
pub struct Verify<'txn, R> {
    /// `None` once it has failed.
    walk: Option<TableCheck<'txn, R>>,
    /// What the next item is, instead of a finding.
    failure: Option<Error>,
    /// Steps that are left.
    left: Option<u64>,
    reporter: Option<ProgressReporter<'txn>>,
}

impl<'txn, R: Entity> Verify<'txn, R> {
    /// `reader`: with the indexes that are not readable.
    pub(crate) fn new(reader: Result<(Reader<'txn>, Unreadable)>) -> Self {
        let (walk, failure) = match reader {
            Ok((reader, unreadable)) => {
                (Some(TableCheck::new(reader, unreadable, ResumePoint::first::<R>())), None)
            }
            Err(error) => (None, Some(error)),
        };
        Self { walk, failure, left: None, reporter: None }
    }

    /// Only what comes behind the place at which another verification of the table stopped. A
    /// cursor of anything else is [`Error::InvalidCursor`].
    ///
    /// The rows may have changed since: what was written behind the place is looked at, and what
    /// was written before it is not. Counts of entries ([`FindingKind::WrongCount`]) are compared where
    /// one verification has gone through the whole index.
    pub fn after(mut self, cursor: &Cursor) -> Self {
        if let Some(walk) = self.walk.take() {
            match ResumePoint::of::<R>(cursor.clone()) {
                Ok(place) => self.walk = Some(walk.at(place)),
                Err(error) => self.failure = Some(error),
            }
        }
        self
    }

    /// Ends after this many steps: a row, an entry or a block of entries is one.
    pub fn limit(mut self, steps: u64) -> Self {
        self.left = Some(steps);
        self.walk = self.walk.map(TableCheck::in_parts);
        self
    }

    /// Calls `progress` every few thousand steps, and at the end. A row, an entry or a block of entries is a step,
    /// and so is the end of a part. Reading all rows before the entries of an index are compared is none.
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

    /// Goes through the table, or as far as the [`limit`](Verify::limit) says.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidCursor`], [`Error::SchemaMismatch`] when another process has declared one of the
    /// indexes otherwise, and errors of the engine. What is wrong with the table is in the
    /// report.
    pub fn run(mut self) -> Result<VerifyReport> {
        span!(DEBUG, "verify", table = R::TABLE.name);
        let mut report = VerifyReport::new(R::TABLE);
        for finding in &mut self {
            report.add(finding?);
        }
        (report.rows, report.entries, report.next) = (self.rows(), self.entries(), self.cursor());
        Ok(report)
    }

    /// How many rows have been read so far in the order of the table.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.walk.as_ref().map_or(0, |walk| walk.rows)
    }

    /// How many entries have been compared with their rows so far.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.walk.as_ref().map_or(0, |walk| walk.entries)
    }

    /// Behind what has been looked at so far, for [`after`](Verify::after); `None`: that is
    /// everything, or it has failed.
    ///
    /// It holds keys of the table, and it is not signed, as any [`Cursor`].
    #[must_use]
    pub fn cursor(&self) -> Option<Cursor> {
        self.walk.as_ref()?.place().map(ResumePoint::cursor::<R>)
    }
}

impl<R: Entity> Iterator for Verify<'_, R> {
    type Item = Result<Finding>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let Some(walk) = &mut self.walk else { return self.failure.take().map(Err) };
            if let Some(found) = walk.next_raw() {
                return Some(Ok(Finding::new(R::TABLE, &found)));
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

impl<R: Entity> FusedIterator for Verify<'_, R> {}

impl<R> fmt::Debug for Verify<'_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verify").finish_non_exhaustive()
    }
}
