use super::stats::Total;
use crate::model::key::Unescaped;

/// The state of a transaction beside the engine's own.
#[derive(Debug, Default)]
pub(crate) struct Session {
    pub(crate) unescaped: Unescaped,
    pub(crate) total: Total,
}
