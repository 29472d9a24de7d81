//! Verification of all tables in the background.

use std::{
    fmt,
    path::PathBuf,
    sync::{Arc, Weak},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use super::StoreReport;
use crate::{
    locks::{Condvar, Mutex, MutexGuard, Origin},
    model::error::{Error, Result},
    query::Cursor,
    store::{Inner, OpenTable, Store},
    upkeep::verify::{Verify, VerifyReport},
};

/// The name of the thread.
const NAME: &str = "scrub";

/// The number of transactions in a second.
const SLICES: u64 = 10;

/// The maximum number of steps in a transaction.
const LARGEST: u64 = 10_000;

/// A verification of all tables in the background. From [`Store::scrub`].
///
/// When this handle is dropped, the verification ends. The thread doesn't keep the store open, and ends when
/// the store is closed.
#[must_use = "the verification ends when this is dropped"]
pub struct Scrub {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// The directory of the store, for errors.
    path: PathBuf,
    /// The process that started the thread. A forked process doesn't have the thread.
    origin: Origin,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    stopped: Condvar,
}

#[derive(Default)]
struct State {
    reports: Vec<VerifyReport>,
    error: Option<Error>,
    is_stopped: bool,
    is_done: bool,
}

impl Store {
    /// Starts a thread that verifies all tables that are in use, with at most `rate` steps in a second, and
    /// at least one. A step is a row, an entry or a block of entries, as in [`Verify`].
    ///
    /// Every tenth of a second, a part is verified in its own transaction, so the pages of old snapshots can
    /// be reused. Rows that change during the verification are verified before or after the change. If rows are added
    /// to the end of a table faster than `rate`, its verification continues until fewer rows are added. On a
    /// [`Store`](crate::Store), the shards are verified one after another.
    ///
    /// Cost: the cost of [`Verify`] with a [`limit`](Verify::limit), which compares each entry with its row.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`], and [`Error::Thread`] if the thread can't be started.
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
    /// store.transaction(|txn| people.insert(txn, &Person { id: 1, town: "Oslo".into() }))?;
    ///
    /// let scrub = store.scrub(100_000)?;
    /// // Other work, and then:
    /// let report = scrub.wait()?;
    /// assert!(report.is_clean(), "{report}");
    /// assert_eq!(report.tables[0].rows, 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn scrub(&self, rate: u64) -> Result<Scrub> {
        self.inner.engines.refuse_forked()?;
        let tables = self.inner.tables_in_use();
        let shared = Arc::new(Shared::default());
        shared.state().reports =
            tables.iter().map(|table| VerifyReport::new(table.schema)).collect();
        let tables = tables.iter().map(Arc::downgrade).collect();
        let store = Arc::downgrade(&self.inner);
        let thread = {
            let shared = Arc::clone(&shared);
            let work = Work { shared, store, tables, rate: rate.max(1) };
            thread::Builder::new()
                .name(NAME.to_owned())
                .spawn(move || work.run())
                .map_err(|source| Error::Thread { name: NAME, source })?
        };
        let (path, origin) = (self.inner.engines.location(), Origin::here());
        Ok(Scrub { shared, thread: Some(thread), path, origin })
    }
}

impl Scrub {
    /// Returns the report so far. A table that is not verified to its end has a [`next`](VerifyReport::next)
    /// position, or no rows yet. In a forked process, which doesn't have the thread, the report is empty.
    #[must_use]
    pub fn report(&self) -> StoreReport {
        if self.origin.is_inherited() {
            return StoreReport::new(Vec::new());
        }
        StoreReport::new(self.shared.state().reports.clone())
    }

    /// Whether the verification has ended. In a forked process, it has.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.origin.is_inherited() || self.shared.state().is_done
    }

    /// Waits until all tables are verified, and returns the report. If the store is closed earlier, or a table
    /// is no longer in use, the report covers only the verified part.
    ///
    /// # Errors
    ///
    /// The errors of [`Store::read`] and of [`Verify::run`], such as [`Error::Forked`]. The findings are in the report.
    pub fn wait(mut self) -> Result<StoreReport> {
        if self.origin.is_inherited() {
            return Err(Error::Forked { path: self.path.clone() });
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let error = self.shared.state().error.take();
        error.map_or_else(|| Ok(self.report()), Err)
    }
}

impl Drop for Scrub {
    fn drop(&mut self) {
        if self.origin.is_inherited() {
            return;
        }
        self.shared.state().is_stopped = true;
        self.shared.stopped.notify_all();
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != thread::current().id()
        {
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Scrub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scrub").field("is_done", &self.is_done()).finish_non_exhaustive()
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Waits, unless the verification has to end. Returns true if it has to end.
    fn rest(&self, pause: Duration) -> bool {
        self.stopped.wait_timeout_while(self.state(), pause, |state| !state.is_stopped).is_stopped
    }
}

/// The work of the thread.
struct Work {
    shared: Arc<Shared>,
    store: Weak<Inner>,
    tables: Vec<Weak<OpenTable>>,
    rate: u64,
}

impl Work {
    fn run(self) {
        let outcome = self.verify();
        if let Some(store) = self.store.upgrade().filter(|_| !self.shared.state().is_stopped) {
            let report = StoreReport::new(self.shared.state().reports.clone());
            store.inspections.note("scrub", &outcome, |()| report.finding());
        }
        let mut state = self.shared.state();
        state.error = outcome.err();
        state.is_done = true;
    }

    fn verify(&self) -> Result<()> {
        for (position, table) in self.tables.iter().enumerate() {
            let mut after = None;
            loop {
                let started = Instant::now();
                let (Some(inner), Some(table)) = (self.store.upgrade(), table.upgrade()) else {
                    break;
                };
                let part = self.part(&Store { inner }, &table, after.as_ref())?;
                drop(table);
                after.clone_from(&part.next);
                if let Some(report) = self.shared.state().reports.get_mut(position) {
                    report.continue_with(part);
                }
                let took = self.steps().saturating_mul(1_000_000) / self.rate;
                let pause = Duration::from_micros(took).saturating_sub(started.elapsed());
                if self.shared.rest(pause) {
                    return Ok(());
                }
                if after.is_none() {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Returns the number of steps in a transaction.
    fn steps(&self) -> u64 {
        (self.rate / SLICES).clamp(1, LARGEST)
    }

    fn part(
        &self,
        store: &Store,
        table: &OpenTable,
        after: Option<&Cursor>,
    ) -> Result<VerifyReport> {
        let txn = store.read()?;
        let verify = Verify::of(table, &txn).limit(self.steps());
        match after {
            Some(after) => verify.after(after).run(),
            None => verify.run(),
        }
    }
}
