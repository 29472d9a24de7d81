//! Where the files of an archive go: to a directory, or to a function.

use std::{io, path::Path, time::Duration};

use super::{
    base::{self, Request},
    format::{Based, Manifest},
    handed::Handed,
    outbox::{Outbox, Work},
    target::Target,
};
use crate::engine::Destination;

/// The age at which a segment is complete. A function gets only complete segments.
const OLDEST: Duration = Duration::from_mins(1);
const OLDEST_HANDED: Duration = Duration::from_secs(10);

/// Writes a base, and returns its length.
pub(super) type Writing = Box<dyn FnOnce() -> io::Result<u64> + Send>;

/// The destination of an archive.
pub(super) enum To {
    Directory(Target),
    Function(Handed),
}

impl To {
    pub(super) fn new(destination: Destination, outbox: &Outbox) -> Self {
        match destination {
            Destination::Directory(path) => {
                let path = std::path::absolute(&path).unwrap_or(path);
                Self::Directory(Target::new(path, outbox.store()))
            }
            Destination::Function(function) => Self::Function(Handed::new(function, outbox)),
        }
    }

    pub(super) const fn oldest(&self) -> Duration {
        match self {
            Self::Directory(_) => OLDEST,
            Self::Function(_) => OLDEST_HANDED,
        }
    }

    pub(super) const fn is_attached(&self) -> bool {
        match self {
            Self::Directory(target) => target.is_attached(),
            Self::Function(handed) => handed.is_attached,
        }
    }

    pub(super) const fn is_promoted(&self) -> bool {
        match self {
            Self::Directory(target) => target.is_promoted(),
            Self::Function(_) => false,
        }
    }

    /// Compares the outbox with the archive. Returns the shards of which the generation has a base.
    pub(super) fn attach(&mut self, outbox: &mut Outbox) -> io::Result<Based> {
        match self {
            Self::Directory(target) => target.attach(outbox),
            Self::Function(handed) => handed.attach(outbox),
        }
    }

    /// Returns the shards of which a generation has a base.
    pub(super) fn based(&self, own: &Manifest) -> Based {
        let based = match self {
            Self::Directory(target) => target.based(own),
            Self::Function(handed) => handed.based(own),
        };
        based.unwrap_or_default()
    }

    /// Records the generation of the next segment.
    pub(super) fn begin_generation(&mut self, generation: u64) -> io::Result<()> {
        match self {
            Self::Directory(target) => target.begin_generation(generation),
            // The bases that were passed to the function show the generation.
            Self::Function(_) => Ok(()),
        }
    }

    /// Moves everything that the archive lacks. Returns the number of its last commit.
    pub(super) fn deliver(
        &mut self,
        pending: &Path,
        work: &Work,
        complete: &mut dyn FnMut(u64),
    ) -> io::Result<u64> {
        match self {
            Self::Directory(target) => {
                target.deliver(pending, work, complete)?;
                Ok(work.manifest.commit)
            }
            Self::Function(handed) => {
                handed.deliver(work, complete)?;
                Ok(handed.commit)
            }
        }
    }

    /// Returns the work of writing a base.
    pub(super) fn base(&self, outbox: &Outbox, request: Request) -> Writing {
        match self {
            Self::Directory(target) => {
                let archive = target.directory().to_owned();
                Box::new(move || base::write(&archive, &request).map(|base| base.length))
            }
            Self::Function(handed) => {
                let (handed, pending) = (handed.clone(), outbox.directory().to_owned());
                Box::new(move || {
                    let base = base::write(&pending, &request)?;
                    // The pages of the state are no longer needed.
                    drop(request);
                    handed.deliver_base(&base.name())?;
                    Ok(base.length)
                })
            }
        }
    }

    /// Returns the number of the segment that is being copied, and the bytes of it that the archive has.
    pub(super) fn part(&self) -> Option<(u64, u64)> {
        match self {
            Self::Directory(target) => target.part(),
            Self::Function(_) => None,
        }
    }

    /// Returns an error with the archive.
    pub(super) fn reason(&self, error: &io::Error) -> String {
        match self {
            Self::Directory(target) => {
                format!("`{}` can't be written: {error}", target.directory().display())
            }
            Self::Function(_) => format!("the function of the archive has failed: {error}"),
        }
    }
}
