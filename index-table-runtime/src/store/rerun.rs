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

/// A reason to run a closure again.
pub(crate) trait Reason: Copy {
    /// Returns the reason of the engine, if it is one.
    fn of_engine(self) -> Option<Retry>;
}

impl Reason for Retry {
    fn of_engine(self) -> Option<Retry> {
        Some(self)
    }
}

impl Reason for Rerun {
    fn of_engine(self) -> Option<Retry> {
        match self {
            Self::Engine(retry) => Some(retry),
            Self::Queue(_) => None,
        }
    }
}

/// The last failure for lack of room.
#[derive(Debug, Default)]
struct Room(Option<Retry>);

impl Room {
    /// Whether the last failure had the same reason. So the number of attempts has a limit, even if other writers use up all
    /// room that is made.
    fn is_exhausted(&mut self, reason: impl Reason) -> bool {
        let lacking = reason.of_engine().filter(|retry| retry.lacks_room());
        let before = lacking.and_then(|retry| self.0.replace(retry));
        before.is_some() && before == lacking
    }
}

/// The state that the attempts of one closure share.
#[derive(Debug, Default)]
pub(super) struct Attempts {
    waiting: Waiting,
    conflicts: Conflicts,
    room: Room,
}

impl Attempts {
    /// Returns the state of a closure whose waiting time starts now.
    pub(super) fn begun() -> Self {
        Self { waiting: Waiting::begun(), ..Self::default() }
    }

    /// Prepares another run of the closure. Returns false if it would fail in the same way. This thread must have no
    /// transaction.
    pub(super) fn prepare(&mut self, store: &Store, rerun: Rerun) -> Result<bool> {
        if self.room.is_exhausted(rerun) {
            return Ok(false);
        }
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
pub(crate) fn run<T, E: From<Error>, R: Reason>(
    mut attempt: impl FnMut() -> Result<T, (E, Option<R>)>,
    mut prepare: impl FnMut(R) -> Result<bool>,
) -> Result<T, E> {
    let mut room = Room::default();
    loop {
        let (error, reason) = match attempt() {
            Ok(value) => return Ok(value),
            Err(failed) => failed,
        };
        match reason {
            Some(reason) if !room.is_exhausted(reason) && prepare(reason)? => {}
            _ => return Err(error),
        }
    }
}
