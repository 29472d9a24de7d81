//! The log of all shards, and its syncs, which threads share.
//! A thread appends its record under the lock. Then it waits until a sync has covered the record. If no other
//! thread is syncing the file, this thread syncs all records appended so far, and the other threads wait.

use std::{
    fs::File,
    io,
    sync::{
        Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};

use super::super::{
    frame::{Kind, Section},
    log::{self, AppendFailure, Log, Switched},
    weaken,
};

/// The bytes of changes in a frame, if there is more than one section.
const FRAME: usize = 1 << 20;

pub(in super::super) struct Group {
    state: Mutex<State>,
    synced: Condvar,
    /// Whether a sync has failed or a record could not be erased, so that nothing more is appended.
    failed: AtomicBool,
}

struct State {
    log: Log,
    /// Whether a thread is syncing the file.
    is_syncing: bool,
}

impl Group {
    pub(super) fn new(log: Log) -> Self {
        let state = Mutex::new(State { log, is_syncing: false });
        Self { state, synced: Condvar::new(), failed: AtomicBool::new(false) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn has_failed(&self) -> bool {
        self.failed.load(SeqCst)
    }

    /// Appends a record with these sections, of one shard or several. Returns its number and the length
    /// of the segment when the record is durable.
    pub(in super::super) fn append(
        &self,
        sections: &[Section<'_>],
    ) -> Result<(u64, u64), AppendFailure> {
        let mut state = self.lock();
        if self.has_failed() {
            return Err(AppendFailure::Refused(failed()));
        }
        let record = state.log.next();
        if let Err(error) = append(&mut state.log, sections) {
            // The whole record may be in the file, and must not be read.
            if state.log.erase().is_ok() {
                return Err(AppendFailure::Refused(error));
            }
            self.fail();
            return Err(AppendFailure::Unknown(error));
        }
        let length = state.log.length();
        if weaken::is("unsynced-recovery") {
            // Gives a kill time to leave records that are not synced.
            weaken::pause();
        }
        self.sync(state).map_err(AppendFailure::Unknown)?;
        Ok((record, length))
    }

    /// Appends the notice that a record is taken back, and returns when it is durable.
    pub(in super::super) fn take_back(&self, record: u64) -> io::Result<()> {
        let mut state = self.lock();
        state.log.take_back(record).inspect_err(|_| self.fail())?;
        self.sync(state)
    }

    /// Returns when all earlier records are durable.
    fn sync<'g>(&'g self, mut state: MutexGuard<'g, State>) -> io::Result<()> {
        let end = state.log.end();
        loop {
            if state.log.durable() >= end {
                return Ok(());
            }
            if self.has_failed() {
                return Err(failed());
            }
            if state.is_syncing {
                state = self.synced.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            state.is_syncing = true;
            let (covered, (files, at)) = (state.log.end(), state.log.unsynced());
            drop(state);
            let outcome = files.get(at).map_or(Ok(()), File::sync_data);
            state = self.lock();
            state.is_syncing = false;
            match &outcome {
                Ok(()) => state.log.synced(covered),
                // The appended bytes may be in the cache only, and a second sync would not fail.
                Err(_) => self.fail(),
            }
            self.synced.notify_all();
            outcome?;
        }
    }

    fn fail(&self) {
        self.failed.store(true, SeqCst);
        self.synced.notify_all();
    }

    /// Continues in the next segment. The previous segment is then durable.
    pub(super) fn switch(&self, longest: u64) -> io::Result<Switched> {
        let mut state = self.lock();
        if self.has_failed() {
            return Err(failed());
        }
        // Records that were rolled back are not in the log, so its end is the end of the last record.
        state.log.sync().inspect_err(|_| self.fail())?;
        Ok(state.log.switch(longest))
    }

    /// Records that the last started segment has a durable checkpoint.
    pub(super) fn set_checkpoint(&self, sequence: u64) {
        self.lock().log.set_checkpoint(sequence);
    }
}

/// Appends the sections as the frames of one record.
fn append(log: &mut Log, sections: &[Section<'_>]) -> io::Result<()> {
    let time = log::now();
    let (mut first, mut bytes) = (0, 0);
    for (at, section) in sections.iter().enumerate() {
        bytes += section.changes.len();
        if bytes >= FRAME && at + 1 < sections.len() {
            let frame = sections.get(first..=at).unwrap_or_default();
            log.append(Kind::Part, frame, time)?;
            (first, bytes) = (at + 1, 0);
        }
    }
    log.append(Kind::Commit, sections.get(first..).unwrap_or_default(), time)
}

fn failed() -> io::Error {
    io::Error::other("the journal could not be written to the disk")
}
