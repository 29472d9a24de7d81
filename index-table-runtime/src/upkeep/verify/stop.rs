//! The end of a verification or a repair that was asked to stop.

use std::{io, path::PathBuf};

use crate::model::error::{Error, Result};

/// Returns true if the work was asked to stop. It is called for each step, and for each row that is read before the steps.
pub(super) type Stop<'a> = Option<&'a dyn Fn() -> bool>;

/// Fails if the work was asked to stop.
pub(super) fn check_stop(stop: Stop<'_>) -> Result<()> {
    if stop.is_none_or(|stop| !stop()) {
        return Ok(());
    }
    let source = io::Error::new(io::ErrorKind::Interrupted, "the work was asked to stop");
    Err(Error::Io { path: PathBuf::new(), source })
}
