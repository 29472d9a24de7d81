//! The start of a journal with one or several members: a checkpoint at the last state of each member, in a new segment of a
//! new epoch, and the markers. Then the records that members lack are applied.
//!
//! A member lacks records if its writer was killed, and other processes have it open, so it is not recovered.
//!
//! | after a crash | the next process finds |
//! |---|---|
//! | before the first block of the new segment is durable | the journal of before, because the segment follows all segments that are needed |
//! | before all markers are written | the new checkpoint; a member with its old marker is complete, or its records are in the new segment |
//! | later | the new checkpoint and the records in its segment, of which some are applied |

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    archive::outbox::Outbox,
    begun::Begun,
    block::{Block, Saved, head_of},
    common::Open,
    files::{self, Segments},
    found::{Found, Records, copy},
    frame::{Salt, Section},
    group::{Group, Strategy},
    limits::Limits,
    log::{self, Log},
    marker::{self, Journalled, Marker},
    member::Member,
    not_started::NotStarted,
    pinned::Slots,
    presence::WriterLock,
    snapshot::Snapshot,
    tail::Record,
    weaken,
};
use crate::engine::{Destination, lmdb::names::Env};

/// The reason why the journal is not started, and the directory of the error.
pub(in crate::engine::lmdb) type Failed = (PathBuf, NotStarted);

/// A journal that this process starts. It has the locks of all writers.
pub(super) struct Start<'j> {
    pub(super) directory: &'j Path,
    pub(super) files: Arc<Segments>,
    /// The new segment of a new epoch. It follows all segments that are needed.
    pub(super) salt: Salt,
    /// The contents of the journal before the start, if they are known.
    pub(super) found: Option<&'j Found>,
    /// The number of the first record of a journal without contents.
    pub(super) first: u64,
    pub(super) strategy: Strategy,
}

impl Start<'_> {
    /// Starts the journal. Returns the members in the order of `joined`. The shards in `missing` are not available.
    pub(super) fn begin(
        &self,
        joined: Vec<Joined<'_>>,
        missing: Vec<u32>,
        limits: Limits,
        mut archive: Option<(Outbox, Destination)>,
    ) -> Result<Vec<Member>, Failed> {
        let own = |not_started: NotStarted| (self.directory.to_owned(), not_started);
        let io = |error: io::Error| own(error.into());
        if weaken::is("tail-first") {
            apply_early(&joined).map_err(own)?;
        }
        let (log, block) = self.first_block(&joined).map_err(own)?;
        let journalled = Journalled::own(self.salt.identity, self.salt.epoch);
        let (is_shard, room) = (self.strategy == Strategy::Gathered, block.shards.len());
        let mut shards = Vec::with_capacity(joined.len());
        for (joined, saved) in joined.into_iter().zip(block.shards) {
            let directory = joined.directory.clone();
            let opened = joined.open(saved, journalled, is_shard);
            shards.push(opened.map_err(|not_started| (directory, not_started))?);
        }
        let mut last = None;
        if let Some((outbox, _)) = &mut archive {
            // The commits of several members have numbers of the archive.
            let of_member = shards.first().filter(|_| !is_shard).map(|(_, open)| open.number);
            let number = of_member.unwrap_or(outbox.manifest().commit);
            outbox.begin(&log, &journalled, number).map_err(io)?;
            last = Some(number);
        }
        let group = Group::new(log, self.directory.to_owned(), self.strategy, last);
        let files = Arc::clone(&self.files);
        let begun = Begun { group, files, journalled, limits, shards, missing, room, archive };
        begun.start().map_err(io)
    }

    /// Starts the segment with the records that members lack, and makes it durable.
    pub(super) fn first_block(&self, joined: &[Joined<'_>]) -> Result<(Log, Block), NotStarted> {
        let (salt, room) = (self.salt, self.strategy.room(joined.len()));
        let record = self.found.map_or(self.first, |found| found.tail.next);
        let mut log = Log::new(Arc::clone(&self.files), salt, record, head_of(room))?;
        copy_lacking(joined, self.found, &mut log)?;
        let shards = joined.iter().map(|joined| joined.pin.saved(joined.shard, &joined.data));
        let mut shards = shards.collect::<io::Result<_>>()?;
        Saved::pad(&mut shards, room);
        let block = Block { salt, record, link: 0, time: log::now(), shards };
        log::put_block(&self.files.of(salt.sequence)?, &block)?;
        Ok((log, block))
    }
}

/// A member whose last state is pinned and durable.
pub(super) struct Joined<'j> {
    /// The number of the shard; 0 in a store with one data file.
    pub(super) shard: u32,
    pub(super) directory: PathBuf,
    pub(super) env: Env,
    /// The descriptor of the lock file, if the environment has been in a journal.
    pub(super) slots: Option<Arc<Slots>>,
    pub(super) data: File,
    /// The lock of the writer of the data file.
    pub(super) writer: WriterLock,
    /// The epoch of its marker.
    pub(super) epoch: u64,
    /// The journal of the data file alone, which has ended.
    pub(super) ended: Option<Journalled>,
    pub(super) pin: Snapshot,
    /// The records that the member may lack, if its writer has ended and other processes have it open.
    pub(super) source: Option<Records<'j>>,
}

impl Joined<'_> {
    /// Returns the records that the member lacks.
    fn lacks(&self) -> Result<Vec<&Record>, NotStarted> {
        let source = self.source.as_ref();
        source.map_or(Ok(Vec::new()), |source| source.records_after(self.shard, self.pin.number))
    }

    /// Makes the marker durable, and applies the records that the member lacks.
    fn open(
        self,
        saved: Saved,
        journalled: Journalled,
        is_shard: bool,
    ) -> Result<(u32, Open), NotStarted> {
        let journalled = Journalled { shard: is_shard.then_some(self.shard), ..journalled };
        marker::put_durably(&self.data, Marker::Needed(journalled))?;
        let mut number = self.pin.number;
        if let Some(source) = &self.source {
            for record in self.lacks()? {
                source.source().apply(&self.env, record, self.shard, &|| Ok(false))?;
            }
            number = number.max(self.env.read_txn()?.id() as u64);
            // This clears the pins of a process that has ended.
            self.env.clear_stale_readers()?;
        }
        if is_shard {
            // The remaining files of the shard's own journal.
            files::remove(&self.directory, 1);
            let _ = self.writer.file().set_len(0);
        }
        let Self { shard, directory, env, slots, data, writer, pin, .. } = self;
        let slots = slots.unwrap_or_else(|| Arc::new(Slots::open(&directory)));
        let used = pin.used(&data);
        let open = Open { env, slots, _writer: writer, pin, saved, number, used, is_mapped: true };
        Ok((shard, open))
    }
}

/// Applies the records that members lack before a checkpoint, in a weakened build. Repeated, as later commits would, until
/// pages are reused that the old checkpoint needs.
fn apply_early(joined: &[Joined<'_>]) -> Result<(), NotStarted> {
    for joined in joined {
        joined.env.clear_stale_readers()?;
        let Some(source) = &joined.source else { continue };
        let lacking = joined.lacks()?;
        for record in (0..30).flat_map(|_| &lacking) {
            source.source().apply(&joined.env, record, joined.shard, &|| Ok(false))?;
        }
    }
    Ok(())
}

/// Appends the records that members lack, and makes them durable.
fn copy_lacking(
    joined: &[Joined<'_>],
    found: Option<&Found>,
    log: &mut Log,
) -> Result<(), NotStarted> {
    // For each member, the first record whose sections it lacks.
    let mut lacking = Vec::new();
    for joined in joined {
        let lacks = joined.lacks()?;
        match &joined.source {
            Some(Records::Left(left)) => {
                for record in lacks {
                    copy(left, record, |section| section.shard == joined.shard, log)?;
                }
            }
            _ => lacking.extend(lacks.first().map(|first| (joined.shard, first.number))),
        }
    }
    let lacks = |shard: u32, record: &Record| {
        lacking.iter().any(|(own, first)| *own == shard && *first <= record.number)
    };
    for (found, record) in
        found.iter().flat_map(|found| found.tail.records.iter().map(move |it| (*found, it)))
    {
        if record.shards.iter().any(|shard| lacks(*shard, record)) {
            copy(found, record, |section: &Section<'_>| lacks(section.shard, record), log)?;
        }
    }
    Ok(log.sync()?)
}

/// Returns the last epoch and the last segment of a journal. `heads` are the first blocks of its files.
pub(super) fn last(heads: &[Vec<u8>], known: &Journalled) -> (u64, u64) {
    let blocks = heads.iter().filter_map(|head| Block::read(head));
    let own = blocks.filter(|block| block.salt.identity == known.identity);
    own.fold((known.epoch, 0), |(epoch, sequence), block| {
        (epoch.max(block.salt.epoch), sequence.max(block.salt.sequence))
    })
}
