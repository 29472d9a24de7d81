//! What a write transaction changes, for the journal.

use std::{
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{
    changes::{Changes, Mark, Operation},
    frame::{Kind, Section},
    log::{self, Log},
};

/// How much of a transaction is kept in memory before it is appended as a part.
const PART: usize = 1 << 20;

/// Records changes, in a store with a journal. In others, each call is one comparison.
#[derive(Default)]
pub(in crate::engine::lmdb) struct Recorder {
    journal: Option<Box<Recording>>,
}

struct Recording {
    log: Arc<Mutex<Log>>,
    changes: Changes,
    /// The number of LMDB's transaction.
    number: u64,
    /// How many nested transactions are open: their changes may be removed again.
    nested: u32,
    /// A part could not be appended.
    failed: bool,
}

/// How much a transaction has changed.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::engine::lmdb) struct Recorded {
    pub(in crate::engine::lmdb) operations: u64,
    /// The bytes of the segment.
    pub(in crate::engine::lmdb) length: u64,
}

/// How a commit fails before LMDB knows of it.
pub(in crate::engine::lmdb) enum AppendFailure {
    /// Nothing has changed.
    Refused(io::Error),
    /// The record may be on the disk or not.
    Unknown(io::Error),
}

pub(super) fn lock(log: &Mutex<Log>) -> MutexGuard<'_, Log> {
    log.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Recorder {
    pub(super) fn new(log: Arc<Mutex<Log>>) -> Self {
        let changes = Changes::default();
        let recording = Recording { log, changes, number: 0, nested: 0, failed: false };
        Self { journal: Some(Box::new(recording)) }
    }

    #[inline]
    pub(in crate::engine::lmdb) const fn is_on(&self) -> bool {
        self.journal.is_some()
    }

    /// Begins a transaction. What was recorded of another one is removed: it was rolled back.
    #[inline]
    pub(in crate::engine::lmdb) fn begin(&mut self, number: usize) {
        if let Some(recording) = &mut self.journal {
            recording.begin(number as u64);
        }
    }

    #[inline]
    pub(in crate::engine::lmdb) fn add(
        &mut self,
        database: &str,
        operation: Operation<'_>,
    ) -> heed::Result<()> {
        match &mut self.journal {
            None => Ok(()),
            Some(recording) => recording.add(database, operation),
        }
    }

    #[inline]
    pub(in crate::engine::lmdb) fn put(
        &mut self,
        database: &str,
        key: &[u8],
        value: &[u8],
    ) -> heed::Result<()> {
        self.add(database, Operation::Put { key, value })
    }

    #[inline]
    pub(in crate::engine::lmdb) fn delete(
        &mut self,
        database: &str,
        key: &[u8],
    ) -> heed::Result<()> {
        self.add(database, Operation::Delete { key })
    }

    /// Begins a nested transaction.
    pub(in crate::engine::lmdb) fn nest(&mut self) -> Option<Mark> {
        let recording = self.journal.as_mut()?;
        recording.nested += 1;
        Some(recording.changes.mark())
    }

    /// Ends a nested transaction. With its mark: it was rolled back.
    pub(in crate::engine::lmdb) fn unnest(&mut self, rolled_back: Option<Mark>) {
        if let Some(recording) = &mut self.journal {
            recording.nested = recording.nested.saturating_sub(1);
            if let Some(mark) = rolled_back {
                recording.changes.back_to(mark);
            }
        }
    }

    /// Makes what was recorded durable. `None`: there is nothing.
    pub(in crate::engine::lmdb) fn append(&mut self) -> Result<Option<Recorded>, AppendFailure> {
        match &mut self.journal {
            Some(recording) if recording.changes.operations() > 0 => recording.append().map(Some),
            _ => Ok(None),
        }
    }

    /// Appends and syncs the notice that LMDB has not committed the last record.
    pub(in crate::engine::lmdb) fn take_back(&mut self) -> io::Result<()> {
        self.journal.as_ref().map_or(Ok(()), |recording| lock(&recording.log).take_back())
    }
}

impl Recording {
    fn begin(&mut self, number: u64) {
        self.changes.clear();
        self.number = number;
        self.nested = 0;
        self.failed = false;
        lock(&self.log).roll_back();
    }

    fn add(&mut self, database: &str, operation: Operation<'_>) -> heed::Result<()> {
        if self.failed {
            return Err(heed::MdbError::BadTxn.into());
        }
        self.changes.add(database, operation);
        if self.changes.bytes().len() < PART || self.nested > 0 {
            return Ok(());
        }
        let appended = lock(&self.log).append(Kind::Part, self.section(), log::now());
        self.failed = appended.is_err();
        self.changes.forget_bytes();
        appended.map_err(heed::Error::Io)
    }

    fn section(&self) -> Section<'_> {
        Section { shard: 0, number: self.number, changes: self.changes.bytes() }
    }

    fn append(&mut self) -> Result<Recorded, AppendFailure> {
        let mut log = lock(&self.log);
        if self.failed {
            let reason = "an earlier part of the transaction could not be written";
            return Err(AppendFailure::Refused(io::Error::other(reason)));
        }
        if let Err(error) = log.append(Kind::Commit, self.section(), log::now()) {
            // It may be in the file as a whole, and must not be read.
            return Err(match log.erase() {
                Ok(()) => AppendFailure::Refused(error),
                Err(_) => AppendFailure::Unknown(error),
            });
        }
        log.sync().map_err(AppendFailure::Unknown)?;
        let recorded = Recorded { operations: self.changes.operations(), length: log.length() };
        drop(log);
        self.changes.clear();
        Ok(recorded)
    }
}
