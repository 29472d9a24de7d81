//! Committing with a journal. The record is made durable first, and then LMDB commits without a sync.

use super::{
    env::Engine,
    error::Failure,
    journal::{
        checkpoint::direct::Direct,
        log::AppendFailure,
        member::{Held, Member},
        recorder::Recorded,
        weaken,
    },
    turn::Writing,
};
use crate::{
    engine::{CommitFailure, Retry},
    model::error::{Error, StoreError as _},
};

/// A durable record of a transaction that LMDB has yet to commit. While this exists, no checkpoint of the
/// shard begins.
#[derive(Default)]
pub(super) struct Logged<'e> {
    recorded: Option<Recorded>,
    held: Option<Held<'e>>,
    /// LMDB makes the changes durable.
    direct: Option<Direct<'e>>,
}

impl<'e> Logged<'e> {
    pub(super) const fn new(recorded: Recorded, held: Option<Held<'e>>) -> Self {
        Self { recorded: Some(recorded), held, direct: None }
    }
}

impl Engine {
    /// Checks that the files are not lost, and makes the changes of the transaction durable in the journal. Without a
    /// journal, LMDB's commit makes them durable.
    #[inline]
    pub(super) fn log(&self, writing: &mut Writing) -> Result<Logged<'_>, CommitFailure> {
        Self::refuse_lost(writing).map_err(CommitFailure::Failed)?;
        if !writing.scratch.recorder.is_on() {
            return Ok(Logged::default());
        }
        self.append(writing)
    }

    #[cold]
    fn append(&self, writing: &mut Writing) -> Result<Logged<'_>, CommitFailure> {
        let direct = match self.journal.get() {
            Some(journal) if writing.scratch.recorder.is_direct() => {
                let begun = journal.begin_direct().map_err(|error| Error::io(&self.path, error));
                Some(begun.map_err(CommitFailure::Failed)?)
            }
            _ => None,
        };
        let held = self.journal.get().and_then(Member::hold);
        let appended = writing.scratch.recorder.append();
        if weaken::is("tail-first") {
            // So that kills leave records of transactions that LMDB has not committed.
            weaken::pause();
        }
        match appended {
            Ok(recorded) => Ok(Logged { recorded, held, direct }),
            Err(AppendFailure::Refused(error)) => {
                let error = Error::io(&self.path, error);
                writing.retry = Retry::after(&error);
                Err(CommitFailure::Failed(error))
            }
            Err(AppendFailure::Unknown(error)) => {
                self.fail_journal();
                Err(CommitFailure::Unknown(Error::io(&self.path, error)))
            }
        }
    }

    /// Reports to the journal that LMDB has committed the record, and that the commit is visible.
    #[inline]
    pub(super) fn logged(&self, logged: Logged<'_>, number: usize) {
        let Logged { recorded: Some(recorded), held: Some(held), direct } = logged else { return };
        match (self.journal.get(), direct) {
            (Some(journal), Some(direct)) => {
                journal.committed_directly(direct, held, number as u64);
            }
            (Some(journal), None) => journal.committed(held, recorded, number as u64),
            (None, _) => {}
        }
    }

    /// Removes the record of a transaction that LMDB could not commit from the journal.
    #[cold]
    pub(super) fn take_back(
        &self,
        writing: &mut Writing,
        Logged { recorded, direct, .. }: &Logged<'_>,
        error: heed::Error,
    ) -> CommitFailure {
        let is_disk = matches!(error, heed::Error::Io(_));
        let error = self.write_error(&mut writing.retry, error);
        if recorded.is_none() || writing.scratch.recorder.take_back().is_ok() {
            if let (Some(journal), Some(direct), true) = (self.journal.get(), direct, is_disk) {
                journal.fail_direct(direct);
            }
            return CommitFailure::Failed(error);
        }
        self.fail_journal();
        CommitFailure::Unknown(error)
    }

    /// Does the same for a transaction that opens or drops databases. Its failure may also be an error of the
    /// closure, before the commit.
    pub(super) fn not_committed(
        &self,
        writing: &mut Writing,
        logged: Option<&Logged<'_>>,
        failure: Failure,
    ) -> Failure {
        match (logged, failure) {
            (Some(logged), Failure::Heed(error)) => {
                self.take_back(writing, logged, error).into_error().into()
            }
            (_, failure) => failure,
        }
    }

    /// Ends a transaction that empties or drops databases, and calls `committed` if it was committed.
    ///
    /// # Errors
    ///
    /// Its failure, if it was not committed; [`Error::FileReplaced`] if a file was lost during the commit.
    pub(super) fn conclude<T>(
        &self,
        writing: &mut Writing,
        (number, logged): (usize, Option<Logged<'_>>),
        outcome: Result<T, Failure>,
        committed: impl FnOnce(),
    ) -> Result<(), (Error, Option<Retry>)> {
        if let Err(failure) = outcome {
            let failure = self.not_committed(writing, logged.as_ref(), failure);
            return Err(self.ended(failure, writing.retry));
        }
        if let Some(logged) = logged {
            self.logged(logged, number);
        }
        committed();
        let synced = self.sync_state();
        synced
            .and_then(|()| Self::refuse_lost_meanwhile(writing))
            .map_err(|lost| (lost.into_error(), None))
    }

    pub(super) fn fail_journal(&self) {
        if let Some(journal) = self.journal.get() {
            journal.fail();
        }
    }

    /// Refuses all further writes to the journal, for this reason.
    pub(super) fn refuse_journal(&self, reason: &'static str) {
        if let Some(journal) = self.journal.get() {
            journal.refuse(reason);
        }
    }
}
