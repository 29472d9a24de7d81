//! The data file of a follower. Only the records of an archive change it.
//!
//! Commits of a follower are not synced. While it is open, a marker states that the data file needs a journal, which it
//! does not have. So after a crash, nothing opens the file, and the follower copies the archive again.

use std::{path::Path, sync::atomic::Ordering};

use heed::{EnvFlags, FlagSetMode, MdbError};

use super::{
    env::Engine,
    gate::Kind,
    journal::{
        archive::{follow::Followed, records::sections, restore::failed},
        frame::Place,
        marked,
        marker::{self, Journalled, LIVE, Marker},
        not_started::NotStarted,
        presence::Presence,
        replay::{self, Drops, Failure},
        shards::SharedJournal,
        tail::Fault,
    },
    journalled::unstarted,
    names::FILE,
};
use crate::{
    engine::{Options, Retry},
    model::{
        error::{Error, Result},
        shard::ShardNumber,
    },
};

/// The state of the data file of a follower that no process has open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Left {
    /// The follower was closed.
    Complete,
    /// The follower was not closed.
    Interrupted,
    /// A process has opened the file as a store with a journal.
    Written,
}

impl Left {
    /// Returns the state of the data file in a directory; `None` if a process has it open.
    pub(crate) fn of(directory: &Path) -> Result<Option<Self>> {
        let presence = Presence::take(directory).map_err(|source| Error::io(directory, source))?;
        if presence.is_known() && !presence.is_alone() {
            return Ok(None);
        }
        let has_data = match std::fs::metadata(directory.join(FILE)) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => false,
            file => file.map_err(|source| Error::io(directory, source))?.len() > 0,
        };
        Ok(Some(match marked::marker_of(directory) {
            _ if !has_data => Self::Interrupted,
            Ok(Marker::None) => Self::Complete,
            Ok(Marker::Needed(Journalled { identity: LIVE, .. })) | Err(NotStarted::Damaged(_)) => {
                Self::Interrupted
            }
            Ok(Marker::Needed(_) | Marker::Clean(_)) => Self::Written,
            // The copy must not be replaced because of an error.
            Err(not_started) => return Err(unstarted(directory, not_started)),
        }))
    }
}

impl Engine {
    /// Returns the number of LMDB's last transaction. The environment of a follower is not closed.
    pub(crate) fn last_commit(&self) -> u64 {
        self.env().map_or(0, |env| env.info().last_txn_id as u64)
    }

    /// Marks the data file as belonging to an open follower.
    pub(crate) fn begin_to_follow(&self) -> Result<()> {
        self.mark(Marker::Needed(Journalled::own(LIVE, 1)))
    }

    fn mark(&self, marker: Marker) -> Result<()> {
        let io = |source| Error::io(&self.path, source);
        let mut options = std::fs::File::options();
        let data = options.read(true).write(true).open(self.path.join(FILE)).map_err(io)?;
        marker::put_durably(&data, marker).map_err(io)
    }

    /// Applies a record of the archive, or the part of one shard with its number. A record that LMDB has is skipped.
    pub(crate) fn follow(
        &self,
        archive: &Path,
        followed: &Followed<'_>,
        part: Option<(ShardNumber, u64)>,
    ) -> Result<()> {
        self.refuse_forked()?;
        let Followed { file, head, record, .. } = followed;
        loop {
            let map_size = self.map_size();
            let outcome = {
                let _turn = self.lock_writing();
                let (_pass, number) =
                    self.begin(Kind::Writer, |env| Ok(env.info().last_txn_id as u64))?.into_parts();
                let commit = part.map_or(record.commit, |(_, number)| number);
                if commit <= number {
                    return Ok(());
                }
                let is_own = |shard| part.is_none_or(|(own, _)| own == shard);
                let each: replay::Each<'_> = &|apply| {
                    for offset in &record.frames {
                        let place = Place { sequence: head.segment, offset: *offset };
                        sections(*file, head, *offset, &mut |section| {
                            if !is_own(section.shard) {
                                return Ok(());
                            }
                            if part.is_none() {
                                if section.shard != 0 {
                                    let reason = "a commit of several data files".to_owned();
                                    return Err(Fault::Damaged(reason).into());
                                }
                                self.note_growth(section.changes);
                            }
                            apply(section, place)
                        })?;
                    }
                    Ok(())
                };
                replay::apply_sections(self.env()?, record.commit, Drops::Empty, each)
            };
            match outcome {
                Err(Failure::Lmdb(heed::Error::Mdb(MdbError::MapFull)))
                    if self.prepare(Retry::Map { map_size })? => {}
                outcome => return outcome.map_err(|failure| failed(archive, failure, &self.path)),
            }
        }
    }

    /// Makes the data file of a follower complete.
    pub(crate) fn end_to_follow(&self) -> Result<()> {
        let _turn = self.lock_writing();
        let (_pass, synced) = self.begin(Kind::Writer, |env| Ok(env.force_sync()))?.into_parts();
        synced.map_err(|error| self.error(error))?;
        self.mark(Marker::None)
    }

    /// Lets the process write the store, with a sync for each commit.
    pub(crate) fn become_writable(&self) -> Result<()> {
        let _turn = self.lock_writing();
        #[expect(unsafe_code, reason = "no other thread may change the flags at the same time")]
        // SAFETY: this thread has the turn to write, and only writers use these flags. Nothing else changes flags.
        let changed = unsafe { self.env()?.set_flags(EnvFlags::NO_SYNC, FlagSetMode::Disable) };
        changed.map_err(|error| self.error(error))?;
        self.read_only.store(false, Ordering::Release);
        Ok(())
    }

    /// Makes it read-only again, unless it has commits after this one.
    pub(crate) fn follow_again(&self, last: u64) {
        let _turn = self.lock_writing();
        if self.last_commit() == last {
            self.read_only.store(true, Ordering::Release);
        }
    }
}

impl SharedJournal {
    /// Starts the journal of all shards of a follower, which the process then writes.
    pub(crate) fn begin_for_follower(
        directory: &Path,
        manager: [u8; 16],
        shards: &[(ShardNumber, &Engine)],
    ) -> Result<()> {
        let journal = Self::open(directory, manager)?;
        journal.begin_in(shards, (&[], &[]), &Options::default(), &[])?;
        for (_, engine) in shards {
            engine.read_only.store(false, Ordering::Release);
        }
        Ok(())
    }
}
