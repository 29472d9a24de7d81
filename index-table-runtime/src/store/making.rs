//! The making of a copy: what it reports, when it stops, and its check.

use std::{io, path::Path, time::Instant};

use super::sharded::close_copy;
use crate::{
    engine::{CopyKind, Engine, Options},
    model::error::{Error, Result},
    usage::Progress,
};

/// A copy that is being made.
pub(super) struct Making<'m> {
    pub(super) kind: CopyKind,
    /// Whether the pages of the copy are checked.
    pub(super) checks: bool,
    pub(super) progress: &'m mut dyn FnMut(Progress),
    /// Whether the copy was asked to stop.
    pub(super) stop: &'m dyn Fn() -> bool,
}

impl<'m> Making<'m> {
    /// Returns the making of a copy that is not checked and does not stop.
    pub(super) fn unseen(kind: CopyKind, progress: &'m mut dyn FnMut(Progress)) -> Self {
        Self { kind, checks: false, progress, stop: &|| false }
    }

    /// Reports the progress. Fails if the copy was asked to stop.
    pub(super) fn at(&mut self, at: Progress) -> io::Result<()> {
        (self.progress)(at);
        if (self.stop)() {
            let reason = "the copy was asked to stop";
            return Err(io::Error::new(io::ErrorKind::Interrupted, reason));
        }
        Ok(())
    }

    /// Checks the pages of a store that is copied without its free pages.
    pub(super) fn check_source(&mut self, engine: &Engine) -> Result<()> {
        let begun = Instant::now();
        engine
            .on_disk()?
            .check(&mut |done, all| self.at(Progress::new("pages", done, Some(all), begun)))
    }

    /// Checks the pages of the copy in `directory`, if they are to be checked. The error names the directory of its original.
    pub(super) fn check(&mut self, directory: &Path, original: &Path) -> Result<()> {
        // A compact copy is made from checked pages.
        if !self.checks || self.kind == CopyKind::Compact {
            return Ok(());
        }
        let checked = (|| {
            let options = Options::default().create(false).read_only(true);
            let engine = Engine::open(&options, directory)?;
            let checked = self.check_source(&engine);
            let checked = checked.and_then(|()| engine.on_disk()?.check_lists());
            close_copy(engine, directory)?;
            checked
        })();
        checked.map_err(|error| match error {
            Error::DamagedFile { reason, .. } => {
                Error::DamagedFile { path: original.to_owned(), reason }
            }
            error => error,
        })
    }
}
