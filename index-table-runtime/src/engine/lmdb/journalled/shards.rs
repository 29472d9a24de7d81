//! The journal of all shards, for the store.

use std::{io, path::Path, sync::atomic::Ordering};

use super::{
    super::{
        Engine,
        journal::{
            archive::format::MANAGER_RECORDS,
            archived::SharedArchive,
            changes::{Changes, Operation},
            limits::Limits,
            marked,
            marker::Marker,
            member::Member,
            not_started::NotStarted,
            shards::{Joining, SharedJournal},
        },
    },
    unstarted,
};
use crate::{
    engine::Options,
    model::{
        error::{Error, Result},
        shard::ShardNumber,
    },
};

impl SharedJournal {
    /// Reads the journal of all shards in the directory of their manager, whose id is `manager`.
    pub(crate) fn open(directory: &Path, manager: [u8; 16]) -> Result<Self> {
        Self::read(directory, manager).map_err(|not_started| unstarted(directory, not_started))
    }

    /// Checks for a reader that the data file of a shard is not older than the journal. If another process writes the shard, its file
    /// needs the journal by now, and is not compared with it.
    pub(crate) fn refuse_older(&self, path: &Path, shard: ShardNumber) -> Result<()> {
        let check = self.marker_of(shard, path).and_then(|marker| match marker {
            Marker::Needed(_) => Ok(()),
            marker => marked::last_number_of(path)?
                .map_or(Ok(()), |last| self.refuse_later_commits(shard, &marker, last)),
        });
        match check {
            // A reader may have no access to the records that were left for a shard.
            Err(NotStarted::Io(error)) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
            check => check.map_err(|not_started| unstarted(path, not_started)),
        }
    }

    /// Leaves the records of the journal, which has not been started, in the files of the shards. No shard is available.
    pub(crate) fn leave_records(directory: &Path, manager: [u8; 16]) -> Result<()> {
        let left = Self::open(directory, manager)?.leave_all();
        left.map_err(|not_started| unstarted(directory, not_started))
    }

    /// Whether a commit is in some of these shards only. A shard that other processes read is not recovered, and may lack the
    /// last commits of a process that was killed.
    pub(crate) fn is_in_some_only<'e>(
        &self,
        shards: impl Iterator<Item = (ShardNumber, &'e Engine)>,
    ) -> Result<bool> {
        let states: Vec<_> = shards.map(|(shard, engine)| (shard, engine.last_commit())).collect();
        let is_split = self.is_split(&states);
        is_split.map_err(|not_started| unstarted(self.path(), not_started))
    }

    /// Starts the journal, which the shards then use for their writes. `missing` are the unavailable shards, and `complete`
    /// are the removed shards whose data files are complete. A shard that joins and is also in `missing` was restored: the
    /// records that were left for its lost directory stay. `manager` has the records of the shard map manager, for an archive.
    pub(crate) fn begin_with<'e>(
        &self,
        shards: impl Iterator<Item = (ShardNumber, &'e Engine)>,
        (missing, complete): (&[ShardNumber], &[ShardNumber]),
        options: &Options,
        manager: &[(Vec<u8>, Vec<u8>)],
    ) -> Result<Option<ManagerArchive>> {
        let is_joining = |(_, engine): &(_, &Engine)| engine.is_joining.load(Ordering::Relaxed);
        let (shards, others): (Vec<_>, Vec<_>) = shards.partition(is_joining);
        if options.has_archive() && !others.is_empty() {
            let what = "an archive, because a shard does not have the journal of all shards";
            return Err(Error::NotOffered { what });
        }
        self.begin_in(&shards, (missing, complete), options, manager)
    }

    /// Starts the journal with all of these shards.
    pub(in crate::engine::lmdb) fn begin_in(
        &self,
        shards: &[(ShardNumber, &Engine)],
        (missing, complete): (&[ShardNumber], &[ShardNumber]),
        options: &Options,
        manager: &[(Vec<u8>, Vec<u8>)],
    ) -> Result<Option<ManagerArchive>> {
        let to_joining = |(shard, engine): &(ShardNumber, &Engine)| {
            let (directory, env) = (engine.path.clone(), engine.env()?.clone());
            Ok(Joining { shard: *shard, directory, env, slots: None })
        };
        let joining = shards.iter().map(to_joining).collect::<Result<_>>()?;
        let archive = options.destination().map(|it| (it, manager_changes(manager)));
        let started =
            self.start(joining, (missing, complete), Limits::new(options.checkpoint), archive);
        let members =
            started.map_err(|(directory, not_started)| unstarted(&directory, not_started))?;
        let archive = members.first().and_then(Member::archive).map(ManagerArchive);
        for ((_, engine), member) in shards.iter().zip(members) {
            engine.set_member(member, false);
        }
        Ok(archive)
    }
}

/// The archive of a sharded store, for the records of the shard map manager.
pub(crate) struct ManagerArchive(pub(super) SharedArchive);

impl ManagerArchive {
    /// Archives the records, after all commits so far.
    pub(crate) fn set(&self, records: &[(Vec<u8>, Vec<u8>)]) {
        self.0.set_manager(manager_changes(records));
    }
}

/// Returns the records of a shard map manager as changes.
pub(super) fn manager_changes(records: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    let mut changes = Changes::default();
    for (key, value) in records {
        changes.add(MANAGER_RECORDS, Operation::Put { key, value });
    }
    changes.bytes().to_vec()
}
