//! Committing in several data files: one record in the journal of all shards, and then a commit of LMDB in
//! each file.

#[cfg(test)]
mod tests;

use std::io;

use super::{
    commit::Logged,
    env::Engine,
    journal::{
        checkpoint::pages,
        log::AppendFailure,
        member::{Held, Member},
        recorder::{Record, Recorded, Recorder},
        weaken,
    },
    keep::Kept,
    process::{self, Space},
    turn::Turn,
    txn::Txn,
};
use crate::{
    engine::{CommitFailure, NotVisible},
    model::error::Error,
};

/// The key of a value that is never committed.
const ROOM: &str = ".room";

/// The reason why writes fail after a commit that is visible in some of its shards only.
const SPLIT: &str = "a commit of several shards has failed in some of them; the journal has it, and is applied when the store \
                     is opened again";

const OF_SEVERAL_JOURNALS: &str = "it has a journal of its own, and a transaction that changes other shards too can change it \
                                   when the store has been opened again";

/// The pages that a commit of LMDB may need in addition to the pages of its transaction: it writes the list of freed pages, and copies
/// pages of this list. Each change adds up to about ten pages to the list, and a page of the list has 500 of them.
const COMMIT_PAGES: usize = 32;
const CHANGES_OF_A_PAGE: usize = 32;

/// With more room in the map, the check is skipped. A change needs about ten pages at most, and the room of its bytes.
const PLENTY: usize = 1 << 24;
const PLENTY_FOR_A_CHANGE: usize = 1 << 16;

/// With less space on the disk of a file, the commit is refused. With more, it can fail in this file, which is therefore the
/// first.
const SPACE: u64 = 1 << 18;

/// The transaction of one data file. Fields are dropped in order: the transaction before its turn.
struct Part<'s> {
    engine: &'s Engine,
    /// The bytes that are left after the commit, as far as this is known. The part with the least is committed first, so that
    /// its commit can be taken back if it fails.
    margin: i64,
    txn: heed::RwTxn<'s>,
    /// The records of lists that the commit writes.
    kept: Kept,
    /// The part of the record for this file.
    logged: Option<(Recorded, Option<Held<'s>>)>,
    turn: Turn<'s>,
}

impl Part<'_> {
    /// Checks that the transaction can be committed, by an empty nested transaction. Otherwise, the commit would fail,
    /// possibly too late to take the record back.
    fn probe(&mut self) -> Result<(), CommitFailure> {
        let Self { engine, txn, turn, .. } = self;
        let env = engine.env().map_err(CommitFailure::Failed)?;
        let probe = env.nested_write_txn(txn).and_then(heed::RwTxn::commit);
        let failed = |error| engine.write_error(&mut turn.writing.retry, error);
        probe.map_err(failed).map_err(CommitFailure::Failed)
    }

    /// Checks that the map has room for LMDB's commit, which can't be taken back if another file has the commit already.
    ///
    /// A value of as many pages is written in an empty transaction inside this transaction, which is then aborted.
    fn make_room(&mut self) -> Result<(), CommitFailure> {
        let changes = self.turn.writing.scratch.recorder.changes() as usize;
        if self.room() / PLENTY_FOR_A_CHANGE > changes.max(PLENTY / PLENTY_FOR_A_CHANGE) {
            return Ok(());
        }
        let Self { engine, txn, turn, .. } = self;
        let Some(catalog) = engine.catalog.get() else { return Ok(()) };
        let env = engine.env().map_err(CommitFailure::Failed)?;
        let page_size = env.unnamed_database_stat().page_size as usize;
        let value = vec![0; (COMMIT_PAGES + changes / CHANGES_OF_A_PAGE) * page_size];
        let put = |mut inner: heed::RwTxn<'_>| {
            let put = catalog.put(&mut inner, ROOM.as_bytes(), &value);
            inner.abort();
            put
        };
        let failed = |error| engine.write_error(&mut turn.writing.retry, error);
        let put = env.nested_write_txn(txn).and_then(put);
        put.map_err(failed).map_err(CommitFailure::Failed)
    }

    /// Checks that the disk has space for a small commit of LMDB, which can't be taken back if another file has the commit
    /// already.
    fn check_space(&mut self) -> Result<(), CommitFailure> {
        let Some(Space { available, free, .. }) = process::space(&self.engine.path) else {
            self.margin = self.margin(u64::MAX);
            return Ok(());
        };
        self.margin = self.margin(available);
        if free >= SPACE {
            return Ok(());
        }
        let full = io::ErrorKind::StorageFull.into();
        Err(CommitFailure::Failed(Error::io(&self.engine.path, full)))
    }

    /// Returns the number of bytes of the map that no page uses.
    fn room(&self) -> usize {
        self.engine.map_size().saturating_sub(self.engine.used())
    }

    /// Returns the bytes that are left if this commit adds as many pages as it changes. Negative if there may not be enough.
    fn margin(&self, space: u64) -> i64 {
        let recorder = &self.turn.writing.scratch.recorder;
        let page_size = self.engine.env().map_or(0, |env| env.unnamed_database_stat().page_size);
        let pages = pages(recorder.changes()).saturating_add(COMMIT_PAGES as u64);
        let needed = pages.saturating_mul(page_size.into()).saturating_add(recorder.bytes());
        let limit = process::file_limit().saturating_sub(self.engine.used() as u64);
        let signed = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        signed(space.min(self.room() as u64).min(limit)).saturating_sub(signed(needed))
    }
}

/// A commit in several data files. The files with a journal have a durable record of it.
pub(crate) struct Prepared<'s> {
    parts: Vec<Part<'s>>,
    record: Option<Record>,
}

impl<'s> Txn<'s> {
    /// Makes the changes of write transactions of several data files durable, with one record. Changes of files without
    /// a journal become durable when they are committed.
    pub(crate) fn prepare(txns: Vec<Self>) -> Result<Prepared<'s>, CommitFailure> {
        let mut parts = Vec::with_capacity(txns.len());
        for txn in txns {
            txn.engine().refuse_forked().map_err(CommitFailure::Failed)?;
            if let Some((engine, txn, turn)) = txn.into_writing() {
                let (margin, kept) = (i64::MAX, Kept::default());
                parts.push(Part { engine, margin, txn, kept, logged: None, turn });
            }
        }
        for part in &mut parts {
            Engine::refuse_lost(&mut part.turn.writing).map_err(CommitFailure::Failed)?;
        }
        for Part { engine, txn, turn, kept, .. } in &mut parts {
            let recorder = &mut turn.writing.scratch.recorder;
            *kept = engine.keep_lists(txn, None, recorder)?;
        }
        if parts.len() > 1 {
            for part in &mut parts {
                part.make_room()?;
                part.check_space()?;
            }
        }
        let is_changed = |part: &&mut Part<'_>| part.turn.writing.scratch.recorder.has_changes();
        let mut changed: Vec<_> = parts.iter_mut().filter(is_changed).collect();
        let is_own = |part: &&mut Part<'_>| !part.turn.writing.scratch.recorder.is_shared();
        if changed.len() > 1
            && let Some(part) = changed.iter().find(|part| is_own(part))
        {
            let error = part.engine.reopen_needed(OF_SEVERAL_JOURNALS);
            return Err(CommitFailure::Failed(error));
        }
        for part in &mut changed {
            part.probe()?;
        }
        // Locks the shards in their order, so that no checkpoint is made between the record and LMDB's commits.
        let held: Vec<_> =
            changed.iter().map(|part| part.engine.journal.get().and_then(Member::hold)).collect();
        let recorders = changed.iter_mut().map(|part| &mut part.turn.writing.scratch.recorder);
        let appended = Recorder::append_together(&mut recorders.collect::<Vec<_>>());
        if weaken::is("tail-first") {
            weaken::pause();
        }
        let error = |source| match changed.first() {
            Some(part) => Error::io(&part.engine.path, source),
            None => Error::internal("nothing was appended to the journal"),
        };
        let (record, recorded) = appended.map_err(|failure| match failure {
            AppendFailure::Refused(source) => CommitFailure::Failed(error(source)),
            AppendFailure::Unknown(source) => {
                for part in &changed {
                    part.engine.fail_journal();
                }
                CommitFailure::Unknown(error(source))
            }
        })?;
        for (part, logged) in changed.into_iter().zip(recorded.into_iter().zip(held)) {
            part.logged = Some(logged);
        }
        // If a map or a disk is full despite these checks, the first commit probably fails, and can be taken back.
        parts.sort_by_key(|part| part.margin);
        Ok(Prepared { parts, record })
    }
}

impl Prepared<'_> {
    /// Makes the changes visible in one data file after another. Calls `committed` before another write transaction can
    /// begin in any of the files.
    pub(crate) fn commit(self, committed: &mut dyn FnMut()) -> Result<(), NotVisible> {
        let Self { parts, record } = self;
        let engines: Vec<_> = parts.iter().map(|part| part.engine).collect();
        let mut visible = Vec::with_capacity(parts.len());
        // The turns and locks of the parts that are not committed yet are held until the end.
        for Part { engine, txn, kept, logged, turn, .. } in parts {
            let number = txn.id();
            #[cfg(test)]
            let outcome = tests::refuse(visible.len()).and_then(|()| txn.commit());
            #[cfg(not(test))]
            let outcome = txn.commit();
            let error = match outcome {
                Ok(()) => {
                    engine.kept(kept);
                    visible.push((engine, logged, number, turn));
                    continue;
                }
                Err(error) => engine.error(error),
            };
            return Err(match record {
                None if visible.is_empty() => NotVisible::failed(error),
                // Without a journal, the commit can't be completed in the other files.
                None => NotVisible { failure: CommitFailure::Unknown(error), is_split: false },
                Some(record) if visible.is_empty() && record.take_back().is_ok() => {
                    NotVisible::failed(error)
                }
                Some(_) => {
                    // Checkpoints are still excluded here. A checkpoint would include a part of the commit.
                    for engine in engines {
                        engine.refuse_journal(SPLIT);
                    }
                    let is_split = !visible.is_empty();
                    NotVisible { failure: CommitFailure::Unknown(error), is_split }
                }
            });
        }
        committed();
        let (mut turns, mut lost) = (Vec::with_capacity(visible.len()), Ok(()));
        for (engine, logged, number, mut turn) in visible {
            if let Some((recorded, held)) = logged {
                engine.logged(Logged::new(recorded, held), number);
            }
            lost = lost
                .and_then(|()| engine.sync_state())
                .and_then(|()| Engine::refuse_lost_meanwhile(&mut turn.writing));
            turns.push(turn);
        }
        lost.map_err(|failure| NotVisible { failure, is_split: false })
    }
}
