//! The turn to write, which one thread of this process has at a time.

use std::sync::MutexGuard;

use super::{blocks::Scratch, gate::Pass};
use crate::engine::Retry;

/// The state of the write transaction, of which there is one at a time.
#[derive(Default)]
pub(super) struct Writing {
    pub(super) scratch: Scratch,
    /// The reason to run its closure again.
    pub(super) retry: Option<Retry>,
}

/// The turn to write, with the transaction's state.
pub(super) struct Turn<'s> {
    pub(super) _pass: Pass<'s>,
    pub(super) writing: MutexGuard<'s, Writing>,
}
