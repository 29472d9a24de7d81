//! The start of a running journal.

use std::{
    io,
    sync::{Arc, OnceLock, atomic::AtomicBool},
    time::Instant,
};

use super::{
    archive::outbox::Outbox,
    archived,
    common::{Common, Open, Shard, State},
    files::Segments,
    group::Group,
    limits::Limits,
    marker::Journalled,
    member::Member,
    pace::Pace,
};
use crate::{
    background::{Job, Lane, Work},
    engine::Destination,
    locks::{Condvar, Mutex},
};

/// The values with which a journal starts.
pub(super) struct Begun {
    pub(super) group: Group,
    pub(super) files: Arc<Segments>,
    pub(super) journalled: Journalled,
    pub(super) limits: Limits,
    pub(super) shards: Vec<(u32, Open)>,
    /// The shards that are not available.
    pub(super) missing: Vec<u32>,
    /// The number of states in each block.
    pub(super) room: usize,
    pub(super) archive: Option<(Outbox, Destination)>,
}

impl Begun {
    /// Starts the checkpoints. Returns the members in the order of the shards.
    pub(super) fn start(self) -> io::Result<Vec<Member>> {
        let Self { group, files, journalled, limits, shards, missing, room, archive } = self;
        let open = shards.len();
        let state = State {
            archiver: None,
            is_working: false,
            begun: None,
            pending: None,
            done: None,
            since: Instant::now(),
            pace: Pace::default(),
            open,
            is_closed: false,
            missing,
        };
        let common = Arc::new(Common {
            group: Arc::new(group),
            files,
            journalled,
            limits: Arc::new(limits),
            shards: shards.into_iter().map(|(at, open)| Shard::new(at, open, false)).collect(),
            room,
            archive: OnceLock::new(),
            state: Mutex::new(state),
            job: OnceLock::new(),
            changed: Condvar::new(),
            is_due: AtomicBool::new(false),
            is_waited_for: AtomicBool::new(false),
            is_begun: AtomicBool::new(false),
            refused: OnceLock::new(),
        });
        common.follow_size();
        if let Some((outbox, destination)) = archive {
            archived::start(&common, outbox, destination)?;
        }
        let lane = Lane::of(common.files.first());
        let own = Arc::clone(&common) as Arc<dyn Work>;
        // A committing thread looks at the age of the last checkpoint.
        let after = (!common.is_streamed()).then(|| common.left());
        let _ = common.job.set(Job::start(own, lane, after)?);
        Ok((0..open).map(|at| Member { common: Arc::clone(&common), at }).collect())
    }
}
