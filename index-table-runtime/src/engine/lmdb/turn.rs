//! The turn to write, which one thread of this process has at a time.

use std::sync::MutexGuard;

use super::{blocks::Scratch, gate::Pass};
use crate::engine::Retry;

/// What the write transaction keeps: there is one at a time.
#[derive(Default)]
pub(super) struct Writing {
    pub(super) scratch: Scratch,
    /// Why its closure has to be run again.
    pub(super) retry: Option<Retry>,
}

/// The turn to write, with what the transaction keeps.
pub(super) struct Turn<'s> {
    pub(super) _pass: Pass<'s>,
    pub(super) writing: MutexGuard<'s, Writing>,
}
