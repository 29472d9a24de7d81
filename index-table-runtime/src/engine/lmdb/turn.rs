//! The turn to write. One thread of this process has it at a time.

use super::{blocks::Scratch, gate::Pass, opened::Files, paths::Paths};
use crate::{engine::Retry, locks::MutexGuard};

/// The state of the only write transaction.
#[derive(Default)]
pub(super) struct Writing {
    pub(super) scratch: Scratch,
    /// The reason to run the transaction's closure again.
    pub(super) retry: Option<Retry>,
    pub(super) paths: Paths,
}

/// The turn to write, with the state of the transaction.
pub(super) struct Turn<'s> {
    pub(super) _pass: Pass<'s, Files>,
    pub(super) writing: MutexGuard<'s, Writing>,
}
