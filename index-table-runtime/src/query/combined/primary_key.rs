//! The primary keys of a combination, and their order.

use std::{
    cmp::Ordering,
    ops::{Bound, Deref},
    rc::Rc,
};

use crate::model::entry::{LONGEST_SHORT_KEY, ShortKey};

/// A primary key that a scan has found.
#[derive(Debug, Clone)]
pub(super) enum PrimaryKey<'txn> {
    /// Borrowed from an entry, for the lifetime of the transaction.
    Lent(&'txn [u8]),
    /// Completed, since it lacks bytes in its entry.
    Completed {
        /// The bytes of the key, and further zeros.
        bytes: [u8; LONGEST_SHORT_KEY],
        /// The length of the key.
        len: usize,
    },
    /// Copied from the sorted primary keys, or from a cursor.
    Sorted(Rc<[u8]>),
}

impl<'txn> PrimaryKey<'txn> {
    /// Returns the primary key of an entry. `whole` has all of its bytes.
    pub(super) fn new(key: ShortKey<'txn>, whole: &[u8]) -> Self {
        if key.zeros == 0 {
            return Self::Lent(key.bytes);
        }
        let mut bytes = [0; LONGEST_SHORT_KEY];
        if let Some(own) = bytes.get_mut(..whole.len()) {
            own.copy_from_slice(whole);
        }
        Self::Completed { bytes, len: whole.len() }
    }
}

impl Deref for PrimaryKey<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Lent(key) => key,
            Self::Completed { bytes, len } => bytes.get(..*len).unwrap_or_default(),
            Self::Sorted(key) => key,
        }
    }
}

/// A bound in the order of the primary keys.
pub(super) type KeyBound<'txn> = Bound<PrimaryKey<'txn>>;

pub(super) fn as_bytes<'a>(bound: &'a KeyBound<'_>) -> Bound<&'a [u8]> {
    bound.as_ref().map(|key| &**key)
}

/// Whether this primary key is at or after a bound, in this direction.
pub(super) fn is_at(primary_key: &[u8], from: Bound<&[u8]>, reverse: bool) -> bool {
    let before = if reverse { Ordering::Greater } else { Ordering::Less };
    match from {
        Bound::Included(key) => primary_key.cmp(key) != before,
        Bound::Excluded(key) => primary_key.cmp(key) == before.reverse(),
        Bound::Unbounded => true,
    }
}

/// The current primary key of an operand. The greatest element of a heap is the first in the direction.
#[derive(Debug)]
pub(super) struct Head<'txn> {
    pub(super) key: PrimaryKey<'txn>,
    pub(super) operand: usize,
    pub(super) reverse: bool,
}

impl Ord for Head<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        let order = self.key.cmp(&other.key);
        let order = if self.reverse { order } else { order.reverse() };
        order.then_with(|| other.operand.cmp(&self.operand))
    }
}

impl PartialOrd for Head<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Head<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Head<'_> {}
