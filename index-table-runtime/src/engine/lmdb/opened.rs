//! The open files of an environment.

use std::sync::{Arc, OnceLock};

use super::{
    journal::{pinned::Slots, presence::Presence},
    names::Env,
    process::Counted,
    reserve::Reserve,
};
use crate::engine::files::FileId;

/// The open files of an environment. They are closed in this order.
pub(super) struct Files {
    pub(super) env: Env,
    pub(super) reserve: Reserve,
    /// The reader slots of checkpoints. Dropped after the environment.
    pub(super) slots: OnceLock<Arc<Slots>>,
    /// The mark that this process has the store open. Dropped after the environment.
    pub(super) presence: Presence,
    /// The number of the data file, once it is known, on systems with numbers of files.
    pub(super) file: Option<FileId>,
    pub(super) _counted: Counted,
}
