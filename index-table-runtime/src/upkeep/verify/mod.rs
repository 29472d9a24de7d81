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
mod stop;
mod sums;
mod walk;

use std::{fmt, iter::FusedIterator};

pub use finding::{Finding, FindingKind, VerifyReport};
pub use repair::Repair;

use crate::{
    model::{
        error::{Error, Result},
        row_vtable::TableRows,
    },
    query::Cursor,
    store::{OpenTable, ReadTxn},
    usage::{Progress, ProgressReporter, trace::span},
};
use resume_point::ResumePoint;
use stop::Stop;
use walk::TableCheck;

/// Compares the indexes of a table with its rows, in the snapshot of a transaction, and yields the
/// differences. From the `verify` of a repository; [`Repair`] corrects them.
///
/// [`run`](Verify::run) reads the whole table and returns a [`VerifyReport`]. As an iterator, it yields each
/// [`Finding`]; it ends after the first error. [`rows`](Verify::rows) and [`entries`](Verify::entries) have
/// the progress, and [`cursor`](Verify::cursor) the position where [`after`](Verify::after) continues, in
/// this transaction or a later transaction, and even in another process.
///
/// In a store with shards, the parts of the table in all shards are verified, one after
/// another, and each finding names its shard. In a transaction of one shard
/// ([`read_on`](crate::Store::read_on)), only the part in this shard is verified. Rows in a wrong
/// shard and copies of reference tables that differ are findings too.
///
/// An index that is under construction or disabled is skipped. The duplicates of a
/// [violated](crate::IndexState::Violated) index are not findings. For every other index, the physical pieces
/// are checked first; then each entry is compared with its row. At the end, every row is read, and each of
/// its entries is looked up. Each page of a data file is checked before LMDB reads it: a damaged page is
/// [`Error::Corrupt`] with the commands that help, and ends the verification. From the begin of the verification, the other reads
/// of its transaction check their pages too, for a few microseconds each.
///
/// Cost: all rows are decoded once, and again for each index. The expected entries of all rows are compared
/// with the actual entries by hashes. An entry is compared with its row, and looked up, only if the hashes
/// differ. With a [`limit`](Verify::limit), and in the index in which [`after`](Verify::after) continues,
/// each entry is compared, without hashes. Memory does not grow with the number of rows.
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
    rows: &'txn TableRows,
    /// The walks: a walk for each shard of a sharded store. Empty after an error.
    walks: Vec<TableCheck<'txn>>,
    /// The position of the current walk.
    at: usize,
    /// An error of an earlier method, which the iterator returns as its only item.
    failure: Option<Error>,
    /// The remaining steps.
    left: Option<u64>,
    reporter: Option<ProgressReporter<'txn>>,
    stop: Stop<'txn>,
    is_stopped: bool,
}

impl<'txn> Verify<'txn> {
    pub(crate) fn of(table: &'txn OpenTable, txn: &'txn ReadTxn<'_>) -> Self {
        let rows = &table.rows;
        // On a server, this begins the snapshot, so the records that decide what is verified are those of the snapshot.
        let _ = txn.commit_number();
        let walks = txn.check_pages().and_then(|()| walks(table, txn));
        let (walks, failure) = match walks {
            Ok(walks) => (walks, None),
            Err(error) => (Vec::new(), Some(error)),
        };
        Self {
            rows,
            walks,
            at: 0,
            failure,
            left: None,
            reporter: None,
            stop: None,
            is_stopped: false,
        }
    }

    /// Ends with an error, which the iterator returns as its only item.
    fn fail(&mut self, error: Error) {
        self.walks.clear();
        self.failure = Some(error);
    }

    /// Continues at the position at which another verification of the table stopped. Any other cursor is
    /// [`Error::InvalidCursor`].
    ///
    /// If rows have changed since then, changes after the position are verified, and changes before it are
    /// not. Counts of entries ([`FindingKind::WrongCount`]) are compared if one verification has read the
    /// whole index.
    pub fn after(mut self, cursor: &Cursor) -> Self {
        if self.failure.is_some() {
            return self;
        }
        let shards = self.walks.iter().map(|walk| walk.shard.map(|shard| &**shard));
        match ResumePoint::of(self.rows.schema, self.rows.aggregates.len(), shards, cursor.clone())
        {
            Ok((at, resume_point)) => {
                let mut walks: Vec<_> = self.walks.drain(at..).collect();
                self.at = 0;
                if !walks.is_empty() {
                    let walk = walks.remove(0).start_at(resume_point);
                    walks.insert(0, walk);
                }
                self.walks = walks;
            }
            Err(error) => self.fail(error),
        }
        self
    }

    /// Ends after this many steps: a step is a row, an entry or a block of entries.
    pub fn limit(mut self, steps: u64) -> Self {
        self.left = Some(steps);
        self.walks = self.walks.into_iter().map(TableCheck::in_parts).collect();
        self
    }

    /// Ends when `stop` returns true. Call it after [`after`](Verify::after) and [`limit`](Verify::limit).
    pub(crate) fn stop_when(mut self, stop: &'txn dyn Fn() -> bool) -> Self {
        self.stop = Some(stop);
        self.walks = self.walks.into_iter().map(|walk| walk.stop_when(Some(stop))).collect();
        self
    }

    /// Calls `progress` every few thousand steps, and at the end. A step is a row, an entry, a block of
    /// entries or the end of a stage. Reading all rows before the entries of an index does not count.
    ///
    /// Cost: the entries are counted first, as by [`Scan::count`](crate::Scan::count).
    pub fn progress(mut self, progress: impl FnMut(Progress) + 'txn) -> Self {
        if self.failure.is_some() {
            return self;
        }
        let mut totals = self.walks.iter().map(TableCheck::total);
        match totals.try_fold(0, |sum, total| Ok(sum + total?)) {
            Ok(total) => {
                let progress: Box<dyn FnMut(Progress) + 'txn> = Box::new(progress);
                self.reporter = Some(ProgressReporter::new(Some(progress), "steps", Some(total)));
            }
            Err(error) => self.fail(error),
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

    /// Returns the number of rows read so far in the order of the table.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.walks.iter().map(|walk| walk.rows).sum()
    }

    /// Returns the number of entries compared with their rows so far.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.walks.iter().map(|walk| walk.entries).sum()
    }

    /// Returns the current position, for [`after`](Verify::after); `None` at the end, or after an error.
    ///
    /// Like every [`Cursor`], it contains keys of the table and is not signed.
    #[must_use]
    pub fn cursor(&self) -> Option<Cursor> {
        let mut walks = self.walks.iter().skip(self.at);
        walks.find_map(|walk| {
            let shard = walk.shard.map(|shard| &**shard);
            walk.resume_point().map(|it| it.cursor(self.rows.schema, shard))
        })
    }
}

/// Returns the walks through a table, before their first steps.
fn walks<'t>(table: &'t OpenTable, txn: &'t ReadTxn<'_>) -> Result<Vec<TableCheck<'t>>> {
    let (rows, reader) = (&table.rows, txn.reader(table)?);
    if let Some(parts) = reader.parts() {
        let parts = parts?;
        let of_parts = parts.iter().map(|part| TableCheck::of_part(rows, part));
        let routing = reader.global_routing();
        let of_global = routing.map(|routing| TableCheck::of_global(rows, reader, routing));
        return of_parts.chain(of_global).collect();
    }
    let (unreadable, first) = (txn.unreadable(table)?, ResumePoint::first(rows.schema));
    Ok(vec![TableCheck::new(rows, reader, unreadable, first)])
}

impl Iterator for Verify<'_> {
    type Item = Result<Finding>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(error) = self.failure.take() {
                return Some(Err(error));
            }
            let is_last = self.at + 1 >= self.walks.len();
            let walk = self.walks.get_mut(self.at)?;
            if let Some(found) = walk.next_raw() {
                let shard = walk.shard.map(|shard| &**shard);
                return Some(Ok(Finding::new(self.rows.schema, shard, &found)));
            }
            if self.left == Some(0) || self.is_stopped {
                return None;
            }
            match walk.step() {
                Ok(true) => {
                    self.left = self.left.map(|left| left - 1);
                    if let Some(reporter) = &mut self.reporter {
                        reporter.add(1);
                    }
                }
                Ok(false) if !is_last => self.at += 1,
                Ok(false) => {
                    if let Some(mut reporter) = self.reporter.take() {
                        reporter.report();
                    }
                    return None;
                }
                // The position stays.
                Err(_) if self.stop.is_some_and(|stop| stop()) => self.is_stopped = true,
                Err(error) => {
                    self.walks.clear();
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
