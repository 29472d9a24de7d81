//! Applying records to LMDB.

use std::{cell::Cell, collections::BTreeSet};

use heed::{CommitOrAbort, DatabaseOpener, MdbError, RwTxn, WithoutTls};

use super::{
    block::Block,
    changes::{Operation, Operations},
    files::Segment,
    frame::{Frame, Place, Section},
    tail::{self, Fault, Record},
    weaken,
};
use crate::engine::lmdb::{
    abandon::{abandon, is_lost},
    names::{CATALOG, Database, Env, FILE, LIST_COPIES},
    pages::{self, Fault as Unreadable},
};

/// The reason why a record could not be applied.
pub(in crate::engine::lmdb) enum Failure {
    Lmdb(heed::Error),
    Fault(Fault),
}

impl From<heed::Error> for Failure {
    fn from(error: heed::Error) -> Self {
        Self::Lmdb(error)
    }
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

/// The files and the checkpoint of a journal whose records are applied.
pub(super) struct Source<'j> {
    pub(super) files: &'j [Segment],
    pub(super) checkpoint: &'j Block,
}

impl Source<'_> {
    /// Calls `each` with all sections of a frame.
    pub(super) fn frame(
        &self,
        place: Place,
        each: &mut dyn FnMut(&[Section<'_>]),
    ) -> Result<(), Failure> {
        let read = |frame: &Frame<'_>| {
            let sections: Option<Vec<_>> = frame.sections().collect();
            each(&sections.ok_or_else(|| malformed(place))?);
            Ok(())
        };
        tail::frame(self.files, self.checkpoint, place, read)?
    }

    /// Calls `each` with each section of a frame.
    pub(super) fn sections(
        &self,
        place: Place,
        each: &mut dyn FnMut(Section<'_>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let read = |frame: &Frame<'_>| {
            for section in frame.sections() {
                each(section.ok_or_else(|| malformed(place))?)?;
            }
            Ok(())
        };
        tail::frame(self.files, self.checkpoint, place, read)?
    }

    /// Returns the number of LMDB's transaction in this shard that a record belongs to.
    pub(super) fn number(&self, record: &Record, shard: u32) -> Result<u64, Failure> {
        let mut number = None;
        for place in &record.frames {
            if number.is_some() {
                break;
            }
            self.sections(*place, &mut |section| {
                number = number.or((section.shard == shard).then_some(section.number));
                Ok(())
            })?;
        }
        number.ok_or_else(|| malformed(record.frames.first().copied().unwrap_or_default()))
    }

    /// Returns the maximum number of databases that the records create in this shard.
    pub(super) fn creates(&self, records: &[Record], shard: u32) -> Result<u64, Failure> {
        let mut created = 0;
        let records = records.iter().filter(|record| record.changes(shard));
        for place in records.flat_map(|record| &record.frames) {
            self.sections(*place, &mut |section| {
                if section.shard != shard {
                    return Ok(());
                }
                let operations = Operations::of(section.changes).flatten();
                created += operations.filter(|(_, it)| *it == Operation::Create).count() as u64;
                Ok(())
            })?;
        }
        Ok(created)
    }

    /// Applies the sections of a shard in a record, in one transaction. If the map is full, `larger` enlarges it.
    pub(super) fn apply(
        &self,
        env: &Env,
        record: &Record,
        shard: u32,
        larger: &dyn Fn() -> Result<bool, Failure>,
    ) -> Result<(), Failure> {
        loop {
            match self.try_apply(env, record, shard) {
                Err(Failure::Lmdb(heed::Error::Mdb(MdbError::MapFull))) if larger()? => {}
                outcome => return outcome,
            }
        }
    }

    fn try_apply(&self, env: &Env, record: &Record, shard: u32) -> Result<(), Failure> {
        let each: Each<'_> = &|apply| {
            for place in &record.frames {
                self.sections(*place, &mut |section| {
                    if section.shard == shard { apply(section, *place) } else { Ok(()) }
                })?;
            }
            Ok(())
        };
        apply_sections(env, record.number, Drops::Remove, each)
    }
}

/// Calls a function with each section of a record, and the position of its frame.
pub(in crate::engine::lmdb) type Each<'e> = &'e dyn Fn(Apply<'_>) -> Result<(), Failure>;
type Apply<'a> = &'a mut dyn FnMut(Section<'_>, Place) -> Result<(), Failure>;

/// The effect of the removal of a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::engine::lmdb) enum Drops {
    /// The database is removed. No other handle to it may exist.
    Remove,
    /// The database becomes empty, because readers may have a handle to it.
    Empty,
}

/// Applies the sections of a record in one transaction.
pub(in crate::engine::lmdb) fn apply_sections(
    env: &Env,
    record: u64,
    drops: Drops,
    each: Each<'_>,
) -> Result<(), Failure> {
    let txn = env.write_txn()?;
    let actual = txn.id() as u64;
    let expected = Cell::new(actual);
    let mut copies = ListCopies { env, before: actual.saturating_sub(1), are_intact: None };
    env.create_databases_and_commit(txn, |opener, txn| {
        let (mut open, mut is_changed): (Option<(String, Database<'_>)>, _) = (None, false);
        let mut used = BTreeSet::new();
        each(&mut |section, place| {
            expected.set(section.number);
            for operation in Operations::of(section.changes) {
                let (name, operation) = operation.map_err(|_| malformed(place))?;
                if name == LIST_COPIES && !copies.are_intact()? {
                    continue;
                }
                is_changed = true;
                if open.as_ref().is_none_or(|(open, _)| open != name) {
                    // The commit may have given up a damaged tree, which LMDB can't empty.
                    if used.insert(name.to_owned()) && matches!(operation, Operation::Clear) {
                        let file = env.path().join(FILE);
                        if is_lost(&file, copies.before, name).map_err(unreadable)? {
                            abandon(opener, txn, name)?;
                        }
                    }
                    let found = match operation {
                        Operation::Create => opener.create_database(txn, Some(name))?,
                        _ => opener
                            .open_database(txn, Some(name))?
                            .ok_or_else(|| malformed(place))?,
                    };
                    open = Some((name.to_owned(), found));
                }
                let Some((_, database)) = &open else { continue };
                match operation {
                    Operation::Put { key, value } => database.put(txn, key, value)?,
                    Operation::Delete { key } => {
                        database.delete(txn, key)?;
                    }
                    Operation::Clear => database.clear(txn)?,
                    Operation::Create => {}
                    Operation::Drop if drops == Drops::Empty => database.clear(txn)?,
                    Operation::Drop => {
                        if let Some((_, database)) = open.take() {
                            #[expect(unsafe_code, reason = "other handles become invalid")]
                            // SAFETY: this is the only handle, since the store is not open yet.
                            unsafe {
                                database.remove(txn)?;
                            }
                        }
                    }
                }
            }
            Ok(())
        })?;
        if !is_changed && copies.are_intact == Some(false) {
            touch(opener, txn)?;
        }
        if expected.get() != actual && !weaken::any() {
            let reason = format!(
                "record {record} belongs to LMDB's transaction {}, but the next transaction is {actual}",
                expected.get()
            );
            return Err(Failure::Fault(Fault::Damaged(reason)));
        }
        Ok(CommitOrAbort::<(), ()>::Commit(()))
    })
    .map(drop)
}

/// The second copies of lists in a file. LMDB must not change them if their pages are damaged, and the file can do without them.
struct ListCopies<'e> {
    env: &'e Env,
    /// The transaction before this one.
    before: u64,
    are_intact: Option<bool>,
}

impl ListCopies<'_> {
    fn are_intact(&mut self) -> Result<bool, Failure> {
        if let Some(are_intact) = self.are_intact {
            return Ok(are_intact);
        }
        let file = self.env.path().join(FILE);
        let are_intact = pages::is_intact(&file, self.before, LIST_COPIES).map_err(Fault::Io)?;
        self.are_intact = Some(are_intact);
        Ok(are_intact)
    }
}

fn unreadable(fault: Unreadable) -> Failure {
    Failure::Fault(match fault {
        Unreadable::Io(error) => Fault::Io(error),
        Unreadable::Damaged(reason) => Fault::Damaged(reason),
    })
}

/// Writes a record of the catalog again, or adds one and removes it. LMDB gives a transaction without a change no number, and each
/// record has its own.
pub(super) fn touch<'e>(
    opener: &DatabaseOpener<'e, WithoutTls>,
    txn: &mut RwTxn<'e>,
) -> Result<(), heed::Error> {
    let catalog: Database<'_> = opener.create_database(txn, Some(CATALOG))?;
    let first = catalog.first(txn)?.map(|(key, record)| (key.to_vec(), record.to_vec()));
    if let Some((key, record)) = first {
        return catalog.put(txn, &key, &record);
    }
    catalog.put(txn, &[0], &[])?;
    catalog.delete(txn, &[0]).map(drop)
}

pub(in crate::engine::lmdb) fn malformed(place: Place) -> Failure {
    let Place { sequence, offset } = place;
    let reason = format!(
        "the journal is damaged in segment {sequence} at byte {offset}: no changes are there"
    );
    Failure::Fault(Fault::Damaged(reason))
}
