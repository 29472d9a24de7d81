//! A finding in bytes, before it is displayed or repaired.

use std::{borrow::Cow, rc::Rc};

use super::finding::FindingKind;
use crate::model::{
    entry::RawEntry,
    schema::{AggregateSchema, Source},
};

/// A difference or damage, in bytes, with its fix.
#[derive(Debug)]
pub(super) struct RawFinding {
    pub(super) kind: FindingKind,
    pub(super) source: Source,
    /// The index key, or the key of a piece.
    pub(super) key: Vec<u8>,
    pub(super) primary_key: Vec<u8>,
    pub(super) reason: Cow<'static, str>,
    pub(super) fix: Fix,
    /// The aggregate, if the key is the key of a group.
    pub(super) aggregate: Option<&'static AggregateSchema>,
}

/// The fix of a difference.
#[derive(Debug)]
pub(super) enum Fix {
    /// No fix.
    None,
    /// Remove the piece of the index under the finding's key, or all pieces whose keys begin with it. The
    /// check of the rows finds the missing entries.
    RemovePieces { all: bool },
    /// Remove the entry.
    Delete,
    /// Write the entry with this data.
    Put(Rc<[u8]>),
    /// Write all entries of the index again.
    Rewrite,
    /// Write this record for the group of the aggregate at this position, or remove it.
    Totals(usize, Option<Vec<u8>>),
    /// Empty the queue, before all other fixes.
    EmptyQueue,
}

impl RawFinding {
    /// Returns the finding for a damaged queue; `damage` describes the damage.
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
            aggregate: None,
        }
    }
}
