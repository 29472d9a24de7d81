//! Running a closure again in a new transaction. The transaction, not the error that the closure returns, has the
//! reason, so that the closure can't hide it.

use super::{Store, Waiting, WriteTxn};
use crate::{
    engine::{Conflicts, Engine, Retry},
    model::error::{Error, Result},
};

/// The reason to run a closure again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rerun {
    /// The engine requires it.
    Engine(Retry),
    /// A write was refused because the queue of this table's eventual indexes was full.
    Queue(&'static str),
}

impl WriteTxn<'_> {
    /// Returns the reason to run the closure of this transaction again, with any result.
    pub(super) fn rerun(&self) -> Option<Rerun> {
        self.refused().map(Rerun::Queue).or_else(|| self.retry().map(Rerun::Engine))
    }
}

/// The state that the attempts of one closure share.
#[derive(Debug, Default)]
pub(super) struct Attempts {
    waiting: Waiting,
    conflicts: Conflicts,
}

impl Attempts {
    /// Returns the state of a closure whose waiting time starts now.
    pub(super) fn begun() -> Self {
        Self { waiting: Waiting::begun(), conflicts: Conflicts::default() }
    }

    /// Prepares another run of the closure. Returns false if it would fail in the same way. This thread must have no
    /// transaction.
    pub(super) fn prepare(&mut self, store: &Store, rerun: Rerun) -> Result<bool> {
        match rerun {
            Rerun::Engine(retry) => prepare(&store.inner.engine, retry, &mut self.conflicts),
            Rerun::Queue(table) => self.waiting.wait_for_room(store, table),
        }
    }
}

/// Prepares another attempt of a closure, or of work of an engine.
pub(crate) fn prepare(engine: &Engine, retry: Retry, conflicts: &mut Conflicts) -> Result<bool> {
    if retry == Retry::Conflict {
        return conflicts.back_off(engine.retry_for()).map(|()| true);
    }
    engine.prepare(retry)
}

/// Runs `attempt` until it succeeds, fails without a reason to run again, or `prepare` can't prepare another
/// attempt.
pub(crate) fn run<T, E: From<Error>, R: Copy>(
    mut attempt: impl FnMut() -> Result<T, (E, Option<R>)>,
    mut prepare: impl FnMut(R) -> Result<bool>,
) -> Result<T, E> {
    loop {
        let (error, reason) = match attempt() {
            Ok(value) => return Ok(value),
            Err(failed) => failed,
        };
        match reason {
            Some(reason) if prepare(reason)? => {}
            _ => return Err(error),
        }
    }
}
