//! Transactions that run a closure, and run it again if necessary: the loop of every store.
//!
//! The transaction, not the error that the closure returns, has the reason to run it again, so that the closure can't hide it.

use super::{ReadTxn, Store, Waiting, WriteTxn, WriterGuard, inner::ALL_OPENED};
use crate::{
    engine::{Conflicts, Retry},
    model::{
        error::{Error, Result},
        shard::ShardNumber,
    },
    placement::{Txn, shards::Locks},
    store::Engines,
};

impl Store {
    /// Begins a write transaction. In a sharded store, it locks these shards at once, and others when it uses them.
    pub(crate) fn write_with(&self, locks: &Locks) -> Result<WriteTxn<'_>> {
        let Some(engine) = self.inner.engines.several() else { return self.begin_write() };
        self.inner.refuse_nested_write()?;
        Ok(self.writing(Txn::Several(engine.write_with(locks)?)))
    }

    /// Begins a write transaction that has locked one shard, and locks further shards when it uses them.
    pub(super) fn write_from(&self, shard: ShardNumber) -> Result<WriteTxn<'_>> {
        let Some(engine) = self.inner.engines.several() else { return self.begin_write() };
        self.inner.refuse_nested_write()?;
        Ok(self.writing(Txn::Several(engine.write_from(shard)?)))
    }

    /// Returns a write transaction of this thread.
    pub(super) fn writing<'s>(&'s self, txn: Txn<'s>) -> WriteTxn<'s> {
        let inner = &self.inner;
        WriteTxn::new(ReadTxn::new(txn, inner.id, ALL_OPENED), WriterGuard::new(inner))
    }

    /// Runs `body` in a transaction that `begin` starts. Repeats this until a transaction is committed, or fails with
    /// an error that another attempt can't avoid.
    pub(crate) fn run_transaction<'s, T, E: From<Error>>(
        &self,
        begin: impl Fn(&Locks) -> Result<WriteTxn<'s>>,
        mut body: impl FnMut(&mut WriteTxn<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut locks = Locks::default();
        let attempt = || {
            let mut txn = begin(&locks).map_err(|error| (error.into(), None))?;
            let outcome = body(&mut txn);
            let rerun = txn.rerun();
            if rerun == Some(Rerun::Engine(Retry::Shards)) {
                txn.note_locks(&mut locks);
            }
            let value = outcome.map_err(|error| (error, rerun))?;
            txn.try_commit().map_err(|failure| {
                let rerun = rerun.or_else(|| failure.retry().map(Rerun::Engine));
                (Error::from(failure).into(), rerun)
            })?;
            Ok(value)
        };
        let mut attempts = Attempts::default();
        run(attempt, |rerun| attempts.prepare(self, rerun))
    }
}

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
            Rerun::Engine(retry) => prepare(&store.inner.engines, retry, &mut self.conflicts),
            Rerun::Queue(table) => self.waiting.wait_for_room(store, table),
        }
    }
}

/// Prepares another attempt of a closure, or of work of an engine.
pub(crate) fn prepare(engines: &Engines, retry: Retry, conflicts: &mut Conflicts) -> Result<bool> {
    if retry == Retry::Conflict {
        conflicts.back_off(engines.retry_for())?;
        engines.note_retry();
        return Ok(true);
    }
    engines.prepare(retry)
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
