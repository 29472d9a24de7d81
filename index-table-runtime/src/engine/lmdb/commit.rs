//! Committing with a journal. The record is made durable first, and then LMDB commits without a sync.

use super::{
    env::Engine,
    error::Failure,
    journal::{
        active::Active, log::AppendFailure, recorder::Recorded, shared::checkpoint::Held, weaken,
    },
    turn::Writing,
};
use crate::{
    engine::CommitFailure,
    model::error::{Error, StoreError as _},
};

/// A durable record of a transaction that LMDB has yet to commit. While this exists, no checkpoint of the
/// shard begins.
pub(super) struct Logged<'e>(Option<Recorded>, Option<Held<'e>>);

impl<'e> Logged<'e> {
    pub(super) const fn new(recorded: Recorded, held: Option<Held<'e>>) -> Self {
        Self(Some(recorded), held)
    }
}

impl Engine {
    /// Checks that the files are not lost, and makes the changes of the transaction durable in the journal. Without a
    /// journal, LMDB's commit makes them durable.
    #[inline]
    pub(super) fn log(&self, writing: &mut Writing) -> Result<Logged<'_>, CommitFailure> {
        Self::refuse_lost(writing).map_err(CommitFailure::Failed)?;
        if !writing.scratch.recorder.is_on() {
            return Ok(Logged(None, None));
        }
        self.append(writing)
    }

    #[cold]
    fn append(&self, writing: &mut Writing) -> Result<Logged<'_>, CommitFailure> {
        let held = self.journal.get().and_then(Active::hold);
        let appended = writing.scratch.recorder.append();
        if weaken::is("tail-first") {
            // So that kills leave records of transactions that LMDB has not committed.
            weaken::pause();
        }
        match appended {
            Ok(recorded) => Ok(Logged(recorded, held)),
            Err(AppendFailure::Refused(error)) => {
                Err(CommitFailure::Failed(Error::io(&self.path, error)))
            }
            Err(AppendFailure::Unknown(error)) => {
                self.fail_journal();
                Err(CommitFailure::Unknown(Error::io(&self.path, error)))
            }
        }
    }

    /// Reports to the journal that LMDB has committed the record, and that the commit is visible.
    #[inline]
    pub(super) fn logged(&self, Logged(recorded, held): Logged<'_>, number: usize) {
        if let (Some(journal), Some(recorded)) = (self.journal.get(), recorded) {
            journal.committed(held, recorded, number as u64);
        }
    }

    /// Removes the record of a transaction that LMDB could not commit from the journal.
    #[cold]
    pub(super) fn take_back(
        &self,
        writing: &mut Writing,
        Logged(recorded, _): &Logged<'_>,
        error: heed::Error,
    ) -> CommitFailure {
        let error = self.error(error);
        if recorded.is_none() || writing.scratch.recorder.take_back().is_ok() {
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

    pub(super) fn fail_journal(&self) {
        if let Some(journal) = self.journal.get() {
            journal.fail();
        }
    }

    /// Refuses all further writes to the journal, for this reason.
    pub(super) fn refuse_journal(&self, reason: &'static str) {
        if let Some(Active::Shared(member)) = self.journal.get() {
            member.refuse(reason);
        }
    }
}
