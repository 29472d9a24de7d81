//! Contiguous ranges of encoded keys.

use crate::model::key::{KeyBuf, successor};

/// A contiguous range of encoded keys, from `start` up to `end`.
#[derive(Debug, Clone)]
pub(crate) struct KeyRange {
    pub(crate) start: KeyBuf,
    pub(crate) end: End,
}

/// The end of a [`KeyRange`].
#[derive(Debug, Clone)]
pub(crate) enum End {
    /// After the last key that begins with `start`.
    Prefix,
    /// Before these bytes.
    Before(Vec<u8>),
    /// After the last key.
    Open,
}

impl KeyRange {
    /// The range of all keys.
    pub(crate) const ALL: Self = Self { start: KeyBuf::new(), end: End::Prefix };

    /// Returns the range of the keys that begin with `prefix`.
    pub(crate) fn beginning_with(prefix: &[u8]) -> Self {
        let mut start = KeyBuf::new();
        start.extend(prefix);
        Self { start, end: End::Prefix }
    }

    /// Returns the part of this range after all keys that begin with `prefix`; `None` if no key can be in it.
    pub(crate) fn after_prefix(&self, prefix: &[u8]) -> Option<Self> {
        let mut bytes = prefix.to_vec();
        if !successor(&mut bytes) {
            return None;
        }
        let mut start = KeyBuf::new();
        start.extend(&bytes);
        let end = self.end().map_or(End::Open, End::Before);
        Some(Self { start, end })
    }

    /// Returns the part of this range before `prefix`.
    pub(crate) fn before(self, prefix: &[u8]) -> Self {
        Self { end: End::Before(prefix.to_vec()), ..self }
    }

    /// Returns the prefix if this is the range of all keys with one prefix.
    pub(crate) fn as_prefix(&self) -> Option<&[u8]> {
        let start = self.start();
        matches!(self.end, End::Prefix).then_some(start)
    }

    /// Returns the least possible key in the range.
    #[inline]
    pub(crate) fn start(&self) -> &[u8] {
        self.start.as_bytes()
    }

    /// Whether a key is within the range, if it is not before the start.
    #[inline]
    pub(crate) fn ends_after(&self, key: &[u8]) -> bool {
        match &self.end {
            End::Prefix => key.starts_with(self.start()),
            End::Before(end) => key < end.as_slice(),
            End::Open => true,
        }
    }

    /// Whether a key is within the range.
    pub(crate) fn contains(&self, key: &[u8]) -> bool {
        key >= self.start() && self.ends_after(key)
    }

    /// Returns the least bytes after the range; `None` if the range has no upper bound.
    pub(crate) fn end(&self) -> Option<Vec<u8>> {
        match &self.end {
            End::Prefix => {
                let mut prefix = self.start().to_vec();
                successor(&mut prefix).then_some(prefix)
            }
            End::Before(end) => Some(end.clone()),
            End::Open => None,
        }
    }

    /// Whether the range contains all keys.
    pub(crate) fn is_everything(&self) -> bool {
        self.start.is_empty() && matches!(self.end, End::Prefix | End::Open)
    }
}

impl Default for KeyRange {
    fn default() -> Self {
        Self::ALL
    }
}

impl End {
    /// Returns the end after all keys that begin with `prefix`.
    pub(crate) fn after_prefix(prefix: &KeyBuf) -> Self {
        let mut bytes = prefix.as_bytes().to_vec();
        if successor(&mut bytes) { Self::Before(bytes) } else { Self::Open }
    }
}
