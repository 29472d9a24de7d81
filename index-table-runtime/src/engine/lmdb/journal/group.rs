//! The log of a journal, and its syncs, which threads share.
//!
//! A thread appends its record under the lock. Then it waits until a sync has covered the record. If no other
//! thread is syncing the file, this thread syncs all records appended so far, and the other threads wait.

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering::SeqCst},
};

use super::{
    archive::Bound,
    block::room_of,
    frame::{Kind, Place, Section},
    log::{self, AppendFailure, Log, Switched},
    spilled::Stored,
    weaken,
};
use crate::locks::{Condvar, Mutex, MutexGuard, rank};

/// The bytes of changes in a frame, if there is more than one section.
const FRAME: usize = 1 << 20;

/// The changes of one shard in a record that is about to be appended.
#[derive(Clone, Copy)]
pub(super) struct Pending<'c> {
    pub(super) shard: u32,
    /// The number of LMDB's transaction.
    pub(super) number: u64,
    pub(super) changes: Stored<'c>,
}

/// How the changes of a transaction get into the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Strategy {
    /// The journal has one member. Only the thread with its turn to write appends, so parts of a record are appended before
    /// its commit.
    Streamed,
    /// Other threads append records of other members. So the changes of a transaction wait for its commit, and then all
    /// frames of its record are appended under one lock.
    Gathered,
}

impl Strategy {
    /// Returns the number of states in the blocks of a journal that is started with this number of members.
    pub(super) fn room(self, members: usize) -> usize {
        match self {
            Self::Streamed => members,
            Self::Gathered => room_of(members),
        }
    }
}

pub(super) struct Group {
    /// The directory of the journal.
    directory: PathBuf,
    pub(super) strategy: Strategy,
    state: Mutex<State, rank::JournalLog>,
    synced: Condvar,
    /// Whether a sync has failed or a record could not be erased, so that nothing more is appended.
    failed: AtomicBool,
}

struct State {
    log: Log,
    /// Whether a thread is syncing the file.
    is_syncing: bool,
    /// The commits, for an archive.
    archived: Option<Commits>,
}

/// The records that the archive of the journal needs to distinguish.
#[derive(Default)]
struct Commits {
    /// The numbers and the starts of the records that LMDB has not committed in all of their shards, in order.
    open: Vec<(u64, Place)>,
    taken_back: Vec<u64>,
    /// The ends of earlier segments.
    ends: Vec<Place>,
    /// The greatest number of a commit in the archive's numbering: that of LMDB for one data file, otherwise of the record.
    last: u64,
}

impl Group {
    /// For an archive, `last` is the number of its last commit.
    pub(super) fn new(log: Log, directory: PathBuf, strategy: Strategy, last: Option<u64>) -> Self {
        let archived = last.map(|last| Commits { last, ..Commits::default() });
        let state = Mutex::new(State { log, is_syncing: false, archived });
        Self { directory, strategy, state, synced: Condvar::new(), failed: AtomicBool::new(false) }
    }

    /// Returns the directory of the journal.
    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Records for an archive that LMDB has committed a record in all of its shards. The commit has the number `last`.
    pub(super) fn committed(&self, record: u64, last: u64) {
        if let Some(archived) = &mut self.lock().archived {
            archived.open.retain(|(open, _)| *open != record);
            archived.last = archived.last.max(last);
        }
    }

    /// Returns the committed part of the journal after this position. All records before its end are committed or
    /// taken back.
    pub(super) fn bound(&self, after: Place) -> Bound {
        let mut state = self.lock();
        let end = state.log.end();
        let Some(archived) = &mut state.archived else {
            return Bound { committed: after, ends: Vec::new(), taken_back: Vec::new() };
        };
        archived.ends.retain(|end| end.sequence >= after.sequence);
        let committed = archived.open.first().map_or(end, |(_, start)| *start);
        let (ends, taken_back) = (archived.ends.clone(), archived.taken_back.clone());
        Bound { committed, ends, taken_back }
    }

    /// Returns the number of the last commit, for an archive.
    pub(super) fn last_commit(&self) -> u64 {
        self.lock().archived.as_ref().map_or(0, |archived| archived.last)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    pub(super) fn has_failed(&self) -> bool {
        self.failed.load(SeqCst)
    }

    /// Calls `body` with the log, whose record is [streamed](Strategy::Streamed). The calling thread has the turn to write.
    pub(super) fn stream<T>(&self, body: impl FnOnce(&mut Log) -> T) -> T {
        body(&mut self.lock().log)
    }

    /// Appends a record with these sections, of one shard or several. Returns its number and the length
    /// of the segment when the record is durable.
    pub(super) fn append(&self, sections: &[Pending<'_>]) -> Result<(u64, u64), AppendFailure> {
        self.append_with(|log| append(log, sections))
    }

    /// Appends a record, or the end of a record that is streamed. Returns the same.
    pub(super) fn append_with(
        &self,
        append: impl FnOnce(&mut Log) -> io::Result<()>,
    ) -> Result<(u64, u64), AppendFailure> {
        let mut state = self.lock();
        if self.has_failed() {
            return Err(AppendFailure::Refused(failed()));
        }
        let (record, start) = (state.log.next(), state.log.end());
        if let Err(error) = append(&mut state.log) {
            // The whole record may be in the file, and must not be read.
            if state.log.erase().is_ok() {
                return Err(AppendFailure::Refused(error));
            }
            self.fail();
            return Err(AppendFailure::Unknown(error));
        }
        let length = state.log.length();
        if let Some(archived) = &mut state.archived {
            archived.open.push((record, start));
        }
        if weaken::is("unsynced-recovery") {
            // Gives a kill time to leave records that are not synced.
            weaken::pause();
        }
        self.sync(state).map_err(AppendFailure::Unknown)?;
        Ok((record, length))
    }

    /// Appends the notice that a record is taken back, and returns when it is durable.
    pub(super) fn take_back(&self, record: u64) -> io::Result<()> {
        let mut state = self.lock();
        state.log.take_back(record).inspect_err(|_| self.fail())?;
        self.sync(state)?;
        if let Some(archived) = &mut self.lock().archived {
            archived.taken_back.push(record);
            archived.open.retain(|(open, _)| *open != record);
        }
        Ok(())
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
                state = self.synced.wait(state);
                continue;
            }
            state.is_syncing = true;
            let (covered, file) = (state.log.end(), state.log.unsynced());
            drop(state);
            let outcome = file.sync_data();
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

    /// Opens the file of the next segment.
    pub(super) fn next_file(&self) -> io::Result<File> {
        self.lock().log.next_file()
    }

    /// Continues in the next segment, in its [file](Self::next_file). The previous segment is then durable.
    pub(super) fn switch(&self, file: File, longest: u64) -> io::Result<Switched> {
        let mut state = self.lock();
        if self.has_failed() {
            return Err(failed());
        }
        // Records that were rolled back are not in the log, so its end is the end of the last record.
        let end = state.log.end();
        if state.log.durable() < end {
            state.log.sync().inspect_err(|_| self.fail())?;
        }
        if let Some(archived) = &mut state.archived {
            archived.ends.push(end);
        }
        Ok(state.log.switch(file, longest))
    }

    /// Returns the number of bytes of records in the current segment.
    pub(super) fn length(&self) -> u64 {
        self.lock().log.length()
    }

    /// Whether a file is longer than this.
    pub(super) fn is_longer(&self, longest: u64) -> bool {
        self.lock().log.is_longer(longest)
    }

    /// Truncates the files of earlier segments, which are not needed.
    pub(super) fn shrink(&self, longest: u64) {
        self.lock().log.shrink(longest);
    }

    /// Records that the last started segment has a durable checkpoint.
    pub(super) fn set_checkpoint(&self, sequence: u64) {
        self.lock().log.set_checkpoint(sequence);
    }
}

/// Appends the sections as the frames of one record.
fn append(log: &mut Log, sections: &[Pending<'_>]) -> io::Result<()> {
    let time = log::nanoseconds();
    let (mut first, mut bytes) = (0, 0);
    for (at, section) in sections.iter().enumerate() {
        bytes += section.changes.len();
        if bytes >= FRAME && at + 1 < sections.len() {
            let frame = sections.get(first..=at).unwrap_or_default();
            append_frame(log, Kind::Part, frame, time)?;
            (first, bytes) = (at + 1, 0);
        }
    }
    append_frame(log, Kind::Commit, sections.get(first..).unwrap_or_default(), time)
}

fn append_frame(log: &mut Log, kind: Kind, sections: &[Pending<'_>], time: u64) -> io::Result<()> {
    // Most records have one section.
    if let [Pending { shard, number, changes }] = *sections {
        let changes = &*changes.read()?;
        return log.append(kind, &[Section { shard, number, changes }], time);
    }
    let read = sections.iter().map(|section| section.changes.read());
    let read = read.collect::<io::Result<Vec<_>>>()?;
    let sections = sections.iter().zip(&read).map(|(section, changes)| {
        let Pending { shard, number, .. } = *section;
        Section { shard, number, changes }
    });
    log.append(kind, &sections.collect::<Vec<_>>(), time)
}

fn failed() -> io::Error {
    io::Error::other("the journal could not be written to the disk")
}
