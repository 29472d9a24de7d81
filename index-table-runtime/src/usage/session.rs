use super::stats::Total;
use crate::model::key::Unescaped;

/// What a transaction keeps beside the engine's own.
#[derive(Debug, Default)]
pub(crate) struct Session {
    pub(crate) unescaped: Unescaped,
    pub(crate) total: Total,
}
