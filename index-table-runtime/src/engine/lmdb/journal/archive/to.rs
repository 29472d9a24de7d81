//! Where the files of an archive go: to a directory, or to a function.

use std::{io, path::Path, time::Duration};

use super::{
    base::{self, Request},
    format::Manifest,
    handed::Handed,
    outbox::{Outbox, Work},
    target::Target,
};
use crate::engine::Destination;

/// The age at which a segment is complete. A function gets only complete segments.
const OLDEST: Duration = Duration::from_mins(1);
const OLDEST_HANDED: Duration = Duration::from_secs(10);

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

    /// Compares the outbox with the archive. Returns whether the generation has a base.
    pub(super) fn attach(&mut self, outbox: &mut Outbox) -> io::Result<bool> {
        match self {
            Self::Directory(target) => target.attach(outbox),
            Self::Function(handed) => handed.attach(outbox),
        }
    }

    pub(super) fn has_base(&self, own: &Manifest) -> bool {
        match self {
            Self::Directory(target) => target.has_base(own).unwrap_or(false),
            Self::Function(handed) => handed.has_base(own),
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
    pub(super) fn base(
        &self,
        outbox: &Outbox,
        request: Request,
    ) -> Box<dyn FnOnce() -> io::Result<u64> + Send> {
        let store = outbox.store().to_owned();
        match self {
            Self::Directory(target) => {
                let archive = target.directory().to_owned();
                Box::new(move || base::write(&archive, &store, &request))
            }
            Self::Function(handed) => {
                let (handed, pending) = (handed.clone(), outbox.directory().to_owned());
                Box::new(move || {
                    let length = base::write(&pending, &store, &request)?;
                    let segment = request.segment;
                    // The pages of the state are no longer needed.
                    drop(request);
                    handed.deliver_base(segment)?;
                    Ok(length)
                })
            }
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
