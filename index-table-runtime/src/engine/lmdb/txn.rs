//! A transaction of LMDB, with its pass through the gate.

use std::{mem, sync::OnceLock};

use heed::{AnyTls, RoTxn, RwTxn, WithoutTls};

use super::{
    env::Engine,
    gate::Pass,
    opened::Files,
    pages::Guard,
    read::Reader,
    tables::Tables,
    turn::{Turn, Writing},
    write::Writer,
};
use crate::{
    engine::{CommitFailure, Retry, Stamp},
    model::error::Result,
};

/// A transaction.
pub(crate) struct Txn<'s> {
    inner: Inner<'s>,
    engine: &'s Engine,
    /// Checks pages before LMDB reads them, in a read transaction.
    guard: OnceLock<Box<Guard>>,
}

/// Fields are dropped in order: the transaction before its pass through the gate.
enum Inner<'s> {
    Read(RoTxn<'s, WithoutTls>, #[expect(dead_code, reason = "released on drop")] Pass<'s, Files>),
    Write(RwTxn<'s>, Turn<'s>),
    /// A nested transaction, with the buffers of the outer transaction.
    Nested(RwTxn<'s>, &'s mut Writing),
    Over,
}

impl<'s> Txn<'s> {
    pub(super) fn reading(
        engine: &'s Engine,
        txn: RoTxn<'s, WithoutTls>,
        pass: Pass<'s, Files>,
    ) -> Self {
        Self { inner: Inner::Read(txn, pass), engine, guard: OnceLock::new() }
    }

    /// Returns a transaction that has ended.
    pub(crate) fn over(engine: &'s Engine) -> Self {
        Self { inner: Inner::Over, engine, guard: OnceLock::new() }
    }

    pub(super) fn writing(engine: &'s Engine, txn: RwTxn<'s>, turn: Turn<'s>) -> Self {
        Self { inner: Inner::Write(txn, turn), engine, guard: OnceLock::new() }
    }

    /// From now on, checks the pages of a read transaction before LMDB reads them. Does nothing in a write transaction, whose
    /// pages are in memory.
    ///
    /// Cost: a few reads of the file; then, a read of each page, unless it is one of the last ones, which take up to 1 MiB of memory
    /// with pages of 4 KiB.
    ///
    /// # Errors
    ///
    /// [`Error::DamagedFile`](crate::Error::DamagedFile) if the names of the databases are damaged.
    pub(crate) fn check_pages(&self) -> Result<()> {
        let Inner::Read(txn, _) = &self.inner else { return Ok(()) };
        if self.guard.get().is_none() {
            let _ = self.guard.set(Box::new(self.engine.guard(txn)?));
        }
        Ok(())
    }

    /// Returns the stamp of the commit that this transaction reads.
    pub(crate) fn found(&self) -> Stamp {
        let id = match &self.inner {
            Inner::Read(txn, _) => txn.id(),
            // `id` is the number of the future commit.
            Inner::Write(txn, _) | Inner::Nested(txn, ..) => txn.id().saturating_sub(1),
            Inner::Over => 0,
        };
        Stamp::new(id as u64)
    }

    pub(crate) const fn engine(&self) -> &'s Engine {
        self.engine
    }

    /// Returns LMDB's transaction, with the turn to write, or `None` if this is not an outermost write
    /// transaction.
    pub(super) fn into_writing(mut self) -> Option<(&'s Engine, RwTxn<'s>, Turn<'s>)> {
        match mem::replace(&mut self.inner, Inner::Over) {
            Inner::Write(txn, turn) => Some((self.engine, txn, turn)),
            Inner::Read(..) | Inner::Nested(..) | Inner::Over => None,
        }
    }

    /// Begins a nested transaction; `None` for a read transaction.
    pub(crate) fn nested(&mut self) -> Option<Result<Txn<'_>>> {
        let engine = self.engine;
        let (txn, writing) = match &mut self.inner {
            Inner::Write(txn, turn) => (txn, &mut *turn.writing),
            Inner::Nested(txn, writing) => (txn, &mut **writing),
            Inner::Read(..) | Inner::Over => return None,
        };
        let env = match engine.env() {
            Ok(env) => env,
            Err(error) => return Some(Err(error)),
        };
        let nested = env.nested_write_txn(txn).map_err(|error| engine.error(error));
        Some(nested.map(|txn| {
            writing.scratch.recorder.nest();
            Txn { inner: Inner::Nested(txn, writing), engine, guard: OnceLock::new() }
        }))
    }

    /// Returns a reader of a table; `None` if the transaction has ended.
    pub(crate) fn reader<'t>(&'t self, tables: &'t Tables<'static>) -> Option<Reader<'t>> {
        let txn: &RoTxn<'_, AnyTls> = match &self.inner {
            Inner::Read(txn, _) => txn,
            Inner::Write(txn, _) | Inner::Nested(txn, ..) => txn,
            Inner::Over => return None,
        };
        Some(Reader::new(self.engine, txn, tables).guarded(self.guard.get().map(|guard| &**guard)))
    }

    pub(crate) fn writer<'t>(&'t mut self, tables: &'t Tables<'static>) -> Option<Writer<'t, 's>> {
        match &mut self.inner {
            Inner::Read(..) | Inner::Over => None,
            Inner::Write(txn, turn) => {
                Some(Writer::new(self.engine, txn, tables, &mut turn.writing))
            }
            Inner::Nested(txn, writing) => Some(Writer::new(self.engine, txn, tables, writing)),
        }
    }

    /// Returns the stamp of the snapshot. For a write transaction, returns the stamp of its future commit.
    pub(crate) fn stamp(&self) -> Stamp {
        let id = match &self.inner {
            Inner::Read(txn, _) => txn.id(),
            Inner::Write(txn, _) | Inner::Nested(txn, ..) => txn.id(),
            Inner::Over => 0,
        };
        Stamp::new(id as u64)
    }

    /// Returns the reason why the closure must run again, even if it succeeded.
    pub(crate) fn retry(&self) -> Option<Retry> {
        match &self.inner {
            Inner::Read(..) | Inner::Over => None,
            Inner::Write(_, turn) => turn.writing.retry,
            Inner::Nested(_, writing) => writing.retry,
        }
    }

    /// Commits, and calls `committed` before another write transaction of this process can begin.
    pub(crate) fn commit(mut self, committed: impl FnOnce()) -> Result<(), CommitFailure> {
        self.engine.refuse_forked().map_err(CommitFailure::Failed)?;
        match mem::replace(&mut self.inner, Inner::Over) {
            Inner::Read(..) | Inner::Over => Ok(()),
            Inner::Write(mut txn, mut turn) => {
                let (engine, number) = (self.engine, txn.id());
                let recorder = &mut turn.writing.scratch.recorder;
                let kept = engine.keep_lists(&mut txn, None, recorder)?;
                let logged = engine.log(&mut turn.writing)?;
                txn.commit()
                    .map_err(|error| engine.take_back(&mut turn.writing, &logged, error))?;
                engine.kept(kept);
                committed();
                engine.logged(logged, number);
                engine.sync_state()?;
                Engine::refuse_lost_meanwhile(&mut turn.writing)
            }
            Inner::Nested(mut txn, writing) => {
                // Committing a failed nested transaction would damage the outer one. The probe detects the
                // failure: an empty transaction inside a failed transaction can't be committed.
                let env = self.engine.env().map_err(CommitFailure::Failed)?;
                let probe = env.nested_write_txn(&mut txn).and_then(RwTxn::commit);
                let committed = probe.and_then(|()| txn.commit());
                writing.scratch.recorder.unnest(committed.is_err());
                let failed = |error| self.engine.write_error(&mut writing.retry, error);
                committed.map_err(failed).map_err(CommitFailure::Failed)
            }
        }
    }
}

impl Drop for Txn<'_> {
    fn drop(&mut self) {
        if self.engine.is_inherited() {
            // Ending the transaction here would end it in the parent process too: the reader slot and the
            // lock are in shared memory.
            mem::forget(mem::replace(&mut self.inner, Inner::Over));
        } else if let Inner::Nested(_, writing) = &mut self.inner {
            writing.scratch.recorder.unnest(true);
        }
    }
}
