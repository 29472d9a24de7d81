use super::stats::Total;
use crate::model::key::Unescaped;

/// The state of a transaction in addition to the engine's state.
#[derive(Debug, Default)]
pub(crate) struct Session {
    pub(crate) unescaped: Unescaped,
    pub(crate) total: Total,
}
