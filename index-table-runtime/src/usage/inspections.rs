//! The last check, verification, scrub and backup.

use std::{collections::BTreeMap, io, time::SystemTime};

use crate::{
    locks::Mutex,
    model::error::{Error, Result},
};

/// The last run of a kind in this process; from [`Store::inspections`](crate::Store::inspections).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Inspection {
    /// `backup`, `check`, `scrub` or `verify`.
    pub kind: &'static str,
    /// When it ended.
    pub ended: SystemTime,
    /// What it found, or why it failed; `None` if all is well.
    pub problem: Option<String>,
}

/// The last runs, by their kinds.
#[derive(Default)]
pub(crate) struct Inspections(Mutex<BTreeMap<&'static str, Inspection>>);

impl Inspections {
    /// Keeps the outcome of a run, unless it was refused. `finding` returns what a run that has not failed has found.
    pub(crate) fn note<T>(
        &self,
        kind: &'static str,
        outcome: &Result<T>,
        finding: impl FnOnce(&T) -> Option<String>,
    ) {
        let problem = match outcome {
            Ok(report) => finding(report),
            Err(error) if is_refusal(error) => return,
            Err(error) => Some(error.to_string()),
        };
        self.0.lock().insert(kind, Inspection { kind, ended: SystemTime::now(), problem });
    }

    pub(crate) fn report(&self) -> Vec<Inspection> {
        self.0.lock().values().cloned().collect()
    }
}

/// Whether a run was refused before it has begun, because of how it was called.
fn is_refusal(error: &Error) -> bool {
    match error {
        Error::NotOffered { .. } | Error::WriteInProgress | Error::Forked { .. } => true,
        Error::Io { source, .. } => source.kind() == io::ErrorKind::AlreadyExists,
        _ => false,
    }
}
