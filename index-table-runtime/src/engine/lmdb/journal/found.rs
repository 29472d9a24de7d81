//! The contents of a journal that is read when a store is opened.

use std::{io, ops::Deref, path::Path};

use super::{
    block::{Block, Saved},
    changes::Operations,
    files::{self, OWN, SHARED, Segment},
    frame::{Kind, Place, Section},
    log::Log,
    marker::Journalled,
    not_started::NotStarted,
    replay::Source,
    tail::{self, Fault, Record, Tail},
};

/// The contents of a journal.
pub(super) struct Found {
    files: Vec<Segment>,
    pub(super) checkpoint: Block,
    pub(super) tail: Tail,
    /// Whether the first records may be in the state of the checkpoint.
    pub(super) overlaps: bool,
}

impl Found {
    /// Reads the journal of one data file, with this identity, and at least this epoch.
    pub(super) fn read(directory: &Path, known: &Journalled) -> Result<Self, Fault> {
        let files = files::existing(directory, OWN)?;
        let checkpoint = tail::newest(&files::heads(&files)?, known)?;
        Self::of_all(directory, OWN, files, checkpoint)
    }

    /// Does the same as [`of`](Self::of), with all files of a journal. A missing file is damage.
    pub(super) fn of_all(
        directory: &Path,
        journal: &'static str,
        files: Vec<Segment>,
        checkpoint: Block,
    ) -> Result<Self, Fault> {
        if let Some(reason) = files::find_missing(directory, journal, &files)? {
            return Err(Fault::Damaged(reason));
        }
        Self::of(files, checkpoint, journal == SHARED)
    }

    /// Reads the records after a checkpoint. `overlaps` if the first of them may be in the state of the checkpoint.
    pub(super) fn of(
        files: Vec<Segment>,
        checkpoint: Block,
        overlaps: bool,
    ) -> Result<Self, Fault> {
        let tail = tail::read(&files, &checkpoint)?;
        Ok(Self { files, checkpoint, tail, overlaps })
    }

    /// Makes all records durable, because a killed process may not have synced its last records.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.files.iter().try_for_each(Segment::sync)
    }

    /// Returns the reason to refuse a data file with later commits than the journal.
    pub(super) fn ends_early(&self, last: u64, number: u64) -> String {
        let Place { sequence, offset } = self.tail.end;
        format!(
            "the journal ends in segment {sequence} at byte {offset} with LMDB's transaction {last}, and data.mdb has \
             transaction {number}: a file of the journal was replaced or damaged"
        )
    }

    pub(super) fn source(&self) -> Source<'_> {
        Source { files: &self.files, checkpoint: &self.checkpoint }
    }

    pub(super) fn saved(&self, shard: u32) -> Result<&Saved, NotStarted> {
        self.checkpoint.saved(shard).ok_or_else(|| {
            NotStarted::Damaged("the journal has no checkpoint of this store".to_owned())
        })
    }

    /// Returns the number of the last commit of a shard; 0 if the journal does not have the shard.
    pub(super) fn last(&self, shard: u32) -> Result<u64, NotStarted> {
        let Some(saved) = self.checkpoint.saved(shard) else { return Ok(0) };
        let last = self.tail.records.iter().rev().find(|record| record.changes(shard));
        let last = last.map(|record| self.source().number(record, shard)).transpose()?;
        Ok(saved.number.max(last.unwrap_or_default()))
    }

    /// Returns the number of the last commit of a shard that is certainly in LMDB, which does not count a record without changes.
    /// A key is deleted in a record only if it was there.
    pub(super) fn last_change(&self, shard: u32) -> Result<u64, NotStarted> {
        let mut number = self.checkpoint.saved(shard).map_or(0, |saved| saved.number);
        for place in self.tail.records.iter().flat_map(|record| &record.frames) {
            self.source().sections(*place, &mut |section| {
                if section.shard == shard && Operations::of(section.changes).next().is_some() {
                    number = number.max(section.number);
                }
                Ok(())
            })?;
        }
        Ok(number)
    }

    /// Returns the records of a shard after its state with this number.
    pub(super) fn records_after(
        &self,
        shard: u32,
        number: u64,
    ) -> Result<Vec<&Record>, NotStarted> {
        let mut records = Vec::new();
        for record in self.tail.records.iter().filter(|record| record.changes(shard)) {
            if !records.is_empty() || self.source().number(record, shard)? > number {
                records.push(record);
            }
        }
        Ok(records)
    }
}

/// The records that a member may lack.
pub(super) enum Records<'j> {
    Journal(&'j Found),
    /// The file of its own that they were left in.
    Left(Found),
}

impl Deref for Records<'_> {
    type Target = Found;

    fn deref(&self) -> &Found {
        match self {
            Self::Journal(found) => found,
            Self::Left(found) => found,
        }
    }
}

/// Appends a record to another log, with the selected sections.
pub(super) fn copy(
    found: &Found,
    record: &Record,
    mut is_kept: impl FnMut(&Section<'_>) -> bool,
    log: &mut Log,
) -> Result<(), NotStarted> {
    let count = record.frames.len();
    for (at, place) in record.frames.iter().enumerate() {
        let kind = if at + 1 == count { Kind::Commit } else { Kind::Part };
        let mut outcome = Ok(());
        let mut append = |sections: &[Section<'_>]| {
            let kept: Vec<_> = sections.iter().filter(|it| is_kept(it)).copied().collect();
            if !kept.is_empty() || kind == Kind::Commit {
                outcome = log.append(kind, &kept, record.time);
            }
        };
        found.source().frame(*place, &mut append)?;
        outcome?;
    }
    Ok(())
}
