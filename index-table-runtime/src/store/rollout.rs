//! The thread that builds indexes which the records of their tables lacked.
//!
//! It uses a table like the program does, so a table that the program no longer uses stays open until the thread has ended its batch. An
//! opening of this table waits for that, so that it finds what the thread has built, and may have another declaration.

use std::{
    sync::{Arc, OnceLock, Weak},
    thread,
    time::{Duration, Instant},
};

use super::OpenTable;
use crate::{
    background::Job,
    locks::{Mutex, rank},
};

/// The maximum time for which an opening waits for the end of a batch.
const LONGEST_BATCH: Duration = Duration::from_secs(10);

/// The time between two looks whether the batch has ended.
const LOOK: Duration = Duration::from_millis(5);

/// Starts the job.
type StartJob = Box<dyn Fn() -> Option<Job> + Send + Sync>;

/// The job of a store. The thread takes a table only while the store exists.
#[derive(Default)]
pub(crate) struct Rollout {
    start: OnceLock<StartJob>,
    job: Mutex<Option<Job>, rank::Rollout>,
    /// The table that the thread uses.
    used: Mutex<Option<(&'static str, Weak<OpenTable>)>>,
}

impl Rollout {
    /// Sets how the job is started.
    pub(crate) fn set(&self, start: StartJob) {
        let _ = self.start.set(start);
    }

    /// Starts the job, or lets it run soon: a record lacks an index.
    pub(crate) fn watch(&self) {
        let Some(start) = self.start.get() else { return };
        let mut own = self.job.lock();
        match own.take().filter(|job| !job.has_ended()) {
            Some(job) => {
                job.wake();
                *own = Some(job);
            }
            // Without a thread, the next opening of the table builds the index.
            None => *own = start(),
        }
    }

    /// Ends the job.
    pub(super) fn end(&self) {
        let job = self.job.lock().take();
        drop(job);
    }

    /// Uses a table in the thread. Returns `None` if the program does not use it.
    pub(crate) fn with_table<T>(
        &self,
        (name, table): (&'static str, Weak<OpenTable>),
        work: impl FnOnce(&Arc<OpenTable>) -> T,
    ) -> Option<T> {
        /// Ends the use, also if a method of a row panics.
        struct InUse<'r>(&'r Rollout);

        impl Drop for InUse<'_> {
            fn drop(&mut self) {
                *self.0.used.lock() = None;
            }
        }

        *self.used.lock() = Some((name, Weak::clone(&table)));
        let _in_use = InUse(self);
        table.upgrade().map(|table| work(&table))
    }

    /// Waits while only the thread uses the table with this name, at most for [`LONGEST_BATCH`].
    pub(super) fn wait_for(&self, name: &str) {
        let began = Instant::now();
        // Without an owner, it is being closed.
        let is_unused =
            |(own, table): &(&str, Weak<OpenTable>)| *own == name && table.strong_count() <= 1;
        while self.used.lock().as_ref().is_some_and(is_unused) && began.elapsed() < LONGEST_BATCH {
            thread::sleep(LOOK);
        }
    }
}
