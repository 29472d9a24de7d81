//! A finding, before it is shown or repaired.

use std::{borrow::Cow, rc::Rc};

use super::finding::FindingKind;
use crate::model::{entry::RawEntry, schema::Source};

/// Something that is wrong, in bytes, and how it is repaired.
#[derive(Debug)]
pub(super) struct RawFinding {
    pub(super) kind: FindingKind,
    pub(super) source: Source,
    /// The index key, or what a piece is stored under.
    pub(super) key: Vec<u8>,
    pub(super) primary_key: Vec<u8>,
    pub(super) reason: Cow<'static, str>,
    pub(super) fix: Fix,
}

/// How a difference is repaired.
#[derive(Debug)]
pub(super) enum Fix {
    /// It isn't.
    None,
    /// Remove the piece of the index under this key, or all that begin with it. What is missing
    /// then is written when the rows are gone through.
    RemovePieces { all: bool },
    /// Remove the entry.
    Delete,
    /// Write the entry, with this in it.
    Put(Rc<[u8]>),
    /// Remove all entries of the index.
    Clear,
    /// Empty the queue, which comes before all others.
    EmptyQueue,
}

impl RawFinding {
    /// `damage`: what is wrong with the queue.
    pub(super) fn queue(damage: &str) -> Self {
        let reason = format!("the queue of its eventual indexes is damaged: {damage}");
        let (kind, source) = (FindingKind::DamagedQueue, Source::Facts);
        Self::new(kind, source, RawEntry::NOWHERE, reason, Fix::EmptyQueue)
    }

    pub(super) fn new(
        kind: FindingKind,
        source: Source,
        at: RawEntry<'_>,
        reason: impl Into<Cow<'static, str>>,
        fix: Fix,
    ) -> Self {
        Self {
            kind,
            source,
            key: at.key.to_vec(),
            primary_key: at.primary_key.to_vec(),
            reason: reason.into(),
            fix,
        }
    }
}
