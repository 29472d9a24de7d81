//! The position of a commit in the order of commits.

use std::{cmp::Ordering, fmt, iter};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// The position of a commit in the order of an engine's commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(crate) struct Stamp(u64);

impl Stamp {
    /// The stamp of a snapshot whose place in the order of commits is unknown: nothing that is known of another
    /// snapshot applies to it.
    pub(crate) const UNKNOWN: Self = Self(u64::MAX);

    /// Returns the stamp of an engine that numbers its commits.
    pub(crate) const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Returns the number.
    pub(crate) const fn number(self) -> u64 {
        self.0
    }

    /// Returns the number for applications.
    pub(crate) const fn commit_number(self) -> CommitNumber {
        CommitNumber { first: self, others: Vec::new() }
    }
}

/// The position of a commit in the order of a store's commits. A snapshot has the number of its last commit,
/// and an [`Event`](crate::Event) has the number of the commit of its change.
///
/// The number is opaque; the default precedes every commit. `a <= b` means that the snapshot of `b` has the
/// commit `a`. A serialized number can be stored, or sent to another process that has the same store open. In
/// a sharded store, a commit number consists of a number for each shard, so two of them may not be
/// comparable.
///
/// # Examples
///
/// ```
/// use index_table::{CommitNumber, IndexTable, Store};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize, IndexTable)]
/// struct Note {
///     #[primary_key]
///     id: u32,
/// }
///
/// # fn main() -> index_table::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let store = Store::open(dir.path())?;
/// let notes = NoteRepository::open(&store)?;
/// let before = store.read()?.commit_number();
/// store.transaction(|txn| notes.insert(txn, &Note { id: 1 }))?;
/// assert!(before < store.read()?.commit_number());
///
/// let text = serde_json::to_string(&before).unwrap();
/// assert_eq!(serde_json::from_str::<CommitNumber>(&text).unwrap(), before);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct CommitNumber {
    first: Stamp,
    /// The stamps of the other shards of a sharded store.
    others: Vec<Stamp>,
}

impl CommitNumber {
    /// Returns the stamp of a sharded store, with a number for each shard.
    pub(crate) fn of_shards(stamps: impl IntoIterator<Item = Stamp>) -> Self {
        let mut stamps = stamps.into_iter();
        Self { first: stamps.next().unwrap_or_default(), others: stamps.collect() }
    }

    /// Sets this to the number of the last commit in each shard, of this number and `other`.
    pub(crate) fn join(&mut self, other: &Self) {
        self.first = self.first.max(other.first);
        if self.others.len() < other.others.len() {
            self.others.resize(other.others.len(), Stamp::default());
        }
        for (own, other) in self.others.iter_mut().zip(&other.others) {
            *own = (*own).max(*other);
        }
    }

    /// Returns the number of a store without shards.
    pub(crate) fn single(&self) -> Option<u64> {
        self.others.is_empty().then_some(self.first.0)
    }

    /// Returns the number of each shard. The numbers of the last shards may be missing.
    pub(crate) fn numbers(&self) -> Vec<u64> {
        self.stamps().map(Stamp::number).collect()
    }

    /// Returns the stamp of each shard. The stamps of the last shards may be missing.
    fn stamps(&self) -> impl Iterator<Item = Stamp> {
        iter::once(self.first).chain(self.others.iter().copied())
    }
}

/// The number of a commit in a store without shards, as [`Display`](fmt::Display) writes it.
impl From<u64> for CommitNumber {
    fn from(number: u64) -> Self {
        Stamp::new(number).commit_number()
    }
}

/// A number is less than another number if it is less in some shard, and greater in none.
impl PartialOrd for CommitNumber {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        let len = self.others.len().max(other.others.len()) + 1;
        let stamps = |number: &Self| -> Vec<Stamp> {
            number.stamps().chain(iter::repeat(Stamp::default())).take(len).collect()
        };
        let mut order = Ordering::Equal;
        for (own, other) in stamps(self).iter().zip(&stamps(other)) {
            match (order, own.cmp(other)) {
                (_, Ordering::Equal) => {}
                (Ordering::Equal, differs) => order = differs,
                (before, differs) if before != differs => return None,
                _ => {}
            }
        }
        Some(order)
    }
}

impl fmt::Display for CommitNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.first.0, f)?;
        self.others.iter().try_for_each(|Stamp(number)| write!(f, ".{number}"))
    }
}

// The serialized form is a sequence with a number for each shard. A store without shards has one number.
impl Serialize for CommitNumber {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.stamps().map(Stamp::number))
    }
}

impl<'de> Deserialize<'de> for CommitNumber {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let numbers = Vec::<u64>::deserialize(deserializer)?;
        if numbers.is_empty() {
            return Err(D::Error::custom("a commit number has at least one number"));
        }
        Ok(Self::of_shards(numbers.into_iter().map(Stamp)))
    }
}
