//! The place of a commit in the order of commits.

use std::{cmp::Ordering, fmt};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// The place of a commit in the order of an engine's commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(crate) struct Stamp(u64);

impl Stamp {
    /// Of an engine that numbers its commits.
    pub(crate) const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number.
    pub(crate) const fn number(self) -> u64 {
        self.0
    }

    /// For applications.
    pub(crate) const fn commit_number(self) -> CommitNumber {
        CommitNumber(self)
    }
}

/// The place of a commit in the order of a store's commits: of a snapshot the last commit that it has, of an
/// [`Event`](crate::Event) the commit that it is about.
///
/// It is opaque; the default is before every commit. `a <= b` says that the snapshot of `b` has the commit `a`. Serialized, it can be kept or sent
/// to another process that has the same store open; its form leaves room for stores in several places, so
/// two numbers of such a store may be neither less nor greater.
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
pub struct CommitNumber(Stamp);

impl PartialOrd for CommitNumber {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.0.cmp(&other.0))
    }
}

impl fmt::Display for CommitNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0.0, f)
    }
}

// A sequence with a number for each place, of which there is one.
impl Serialize for CommitNumber {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        [self.0.0].as_slice().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for CommitNumber {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let numbers = Vec::<u64>::deserialize(deserializer)?;
        match numbers.as_slice() {
            [number] => Ok(Self(Stamp(*number))),
            _ => Err(D::Error::custom("the commit number of a store in several places")),
        }
    }
}
