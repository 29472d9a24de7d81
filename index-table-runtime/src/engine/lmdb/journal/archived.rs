//! The archive of a journal.

use std::{
    fs::File,
    io,
    sync::{Arc, atomic::Ordering::SeqCst},
};

use super::{
    archive::{
        Bound,
        bases::{Pinned, Present, Shards},
        outbox::Outbox,
        worker::{Archiver, Archiving, Beginning, Distance},
    },
    block::Block,
    common::{Common, Open, PROMOTED},
    frame::Place,
    log,
    member::Member,
};
use crate::engine::Destination;

/// The archive of the journal of all shards, for the records of the shard map manager.
pub(in crate::engine::lmdb) struct SharedArchive(Arc<Common>);

impl SharedArchive {
    /// Archives the records of the shard map manager, after all commits.
    pub(in crate::engine::lmdb) fn set_manager(&self, changes: Vec<u8>) {
        let Self(common) = self;
        if let Some(archive) = common.archive.get() {
            archive.set_manager(changes, &common.group.bound(Place::default()));
        }
    }
}

/// Starts the archive, before the first commit.
pub(super) fn start(
    common: &Arc<Common>,
    outbox: Outbox,
    destination: Destination,
) -> io::Result<()> {
    let beginning = if common.is_streamed() {
        // Without a free reader slot, a commit pins the state.
        Beginning::attach(outbox, destination, || common.pin_state(0).map(|it| it.snapshot))
    } else {
        Beginning::attach_shards(outbox, destination, Arc::clone(common) as Arc<dyn Shards>)
    };
    let (archiving, rounds) = beginning.share(Arc::clone(&common.files));
    let _ = common.archive.set(archiving);
    let own = Arc::clone(&common.group);
    let bound = move |after| own.bound(after);
    let own = Arc::clone(common);
    let refuse = move || own.refuse(PROMOTED);
    common.lock().archiver = Some(Archiver::start(rounds, bound, refuse)?);
    Ok(())
}

/// The first base of a shard that joins the journal, which is written after the shard has joined. Otherwise, the archive stays
/// as it is.
#[must_use]
pub(super) struct FirstBase<'c> {
    common: &'c Common,
    shard: u32,
    /// The archive, if the shard starts a generation, and has not joined yet.
    suspended: Option<&'c Archiving>,
}

impl FirstBase<'_> {
    /// Pins the state of the shard, which has joined, and has no commits yet.
    pub(super) fn joined(mut self) {
        let common = self.common;
        common.lock().missing.retain(|missing| *missing != self.shard);
        let Some(archive) = common.archive.get() else { return };
        if self.suspended.take().is_some() {
            archive.restart(|| common.pin_all());
        } else {
            archive.add_shard(self.shard, common.pin_state(self.shard));
        }
        // The shard has no base.
        common.wake_archiver();
    }
}

impl Drop for FirstBase<'_> {
    fn drop(&mut self) {
        if let Some(archive) = self.suspended {
            archive.resume();
        }
    }
}

impl Common {
    /// Copies all records before a checkpoint to the outbox, because the files of the journal are reused after the
    /// checkpoint. These records are committed, because all shards have been locked since they were written.
    pub(super) fn save_archive(&self, files: &[File], block: &Block) {
        if let Some(archive) = self.archive.get() {
            let at = Place { sequence: block.salt.sequence, offset: block.head() };
            let number = match block.shards.first() {
                Some(saved) if self.is_streamed() => saved.number,
                _ => block.record.saturating_sub(1),
            };
            let bound = self.group.bound(Place::default());
            archive.save(files, &bound, (at, block.link, block.record), number);
        }
    }

    /// Records a commit that is visible in all of its shards. `number` is that of LMDB, by which the archive of one data file
    /// counts its commits.
    pub(super) fn count_for_archive(&self, record: u64, number: u64) {
        if self.archive.get().is_some() {
            self.group.committed(record, if self.is_streamed() { number } else { record });
        }
    }

    /// Pins the state of the only member for a base of its archive, if the archive wants one. Without a free reader slot, the
    /// next commit tries again. The calling thread has the turn to write.
    pub(super) fn give_base(&self) {
        if let Some(archive) = self.archive.get()
            && archive.wants_base()
            && let Some(pinned) = self.pin_state(0)
        {
            archive.give_base(pinned.snapshot);
        }
    }

    /// Prepares the archive for a shard that joins the journal. If the store had the shard before, the archive may have an old
    /// base of the shard, but lacks the changes since its removal. It may also have the base of another shard with this
    /// number that could not be added. So a generation starts when the shard has joined, with the states of all shards between
    /// two commits. If the process ends after the shard has joined, the next opening of the store starts it.
    pub(super) fn first_base(&self, shard: u32, is_known: bool) -> io::Result<FirstBase<'_>> {
        let archive = self.archive.get().map(|archive| &**archive);
        let suspended = archive.filter(|archive| is_known || archive.may_have_base(shard));
        suspended.map_or(Ok(()), Archiving::suspend)?;
        Ok(FirstBase { common: self, shard, suspended })
    }

    /// Starts a generation without a shard that was restored, and is not available again. The archive may have a base of its
    /// restored state, which is not its state when it comes back.
    pub(super) fn archive_missing(&self, shard: u32) {
        self.lock().missing.push(shard);
        if let Some(archive) = self.archive.get() {
            archive.restart(|| self.pin_all());
            self.wake_archiver();
        }
    }

    fn wake_archiver(&self) {
        if let Some(archiver) = &self.lock().archiver {
            archiver.wake();
        }
    }

    /// Pins the last state of a shard.
    fn pin_state(&self, shard: u32) -> Option<Pinned> {
        let shard = self.shards.iter().find(|it| it.number == shard && it.lock().is_some())?;
        pinned(shard.lock().as_ref()?)
    }

    /// Pins the state of all shards between two commits. Also returns the committed part of the journal and the time at this
    /// moment.
    fn pin_all(&self) -> (Bound, u64, Vec<(u32, Option<Pinned>)>) {
        let mut shards: Vec<_> = self.shards.iter().collect();
        shards.sort_by_key(|shard| shard.number);
        // No commit has a lock, so each commit is in all of its shards.
        let held: Vec<_> = shards.iter().map(|shard| (shard.number, shard.lock())).collect();
        let open = held.iter().filter_map(|(number, open)| Some((*number, open.as_ref()?)));
        let pinned = open.map(|(number, open)| (number, pinned(open))).collect();
        (self.group.bound(Place::default()), log::nanoseconds(), pinned)
    }
}

/// Pins the last state of a shard, if a reader slot is free. No commit may be running.
fn pinned(open: &Open) -> Option<Pinned> {
    let snapshot = open.is_mapped.then(|| open.pin_last())??;
    Some(Pinned { snapshot, directory: open.env.path().to_owned() })
}

impl Shards for Common {
    fn present(&self) -> Present {
        let mut present = Present { missing: self.lock().missing.clone(), ..Present::default() };
        for shard in self.shards.iter() {
            if !shard.has_left.load(SeqCst) && shard.lock().is_some() {
                present.open.push(shard.number);
            }
        }
        present
    }

    fn last_record(&self) -> u64 {
        self.group.last_commit()
    }

    fn pin(&self, shard: u32) -> Option<Pinned> {
        self.pin_state(shard)
    }
}

impl Member {
    /// Returns the archive of the journal.
    pub(in crate::engine::lmdb) fn archive(&self) -> Option<SharedArchive> {
        self.common.archive.get().map(|_| SharedArchive(Arc::clone(&self.common)))
    }

    /// Returns the distance between the store and its archive; `None` without an archive.
    pub(in crate::engine::lmdb) fn archive_distance(&self) -> Option<Distance> {
        let archive = self.common.archive.get()?;
        Some(archive.distance(self.common.group.last_commit()))
    }

    /// Waits until no base of the shard is being written. The shard is no longer among the open shards.
    pub(super) fn wait_for_base(&self) {
        if let (Some(archive), Some(shard)) = (self.common.archive.get(), self.shard()) {
            archive.wait_for_base(shard.number);
        }
    }
}
