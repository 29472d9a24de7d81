use std::fmt;

use super::{Key, desc};

const INLINE: usize = 64;

/// A growing buffer for one encoded key. Keys of up to 64 bytes need no allocation.
#[derive(Clone)]
pub struct KeyBuf {
    inline: [u8; INLINE],
    /// The length of the inline part; not used after `spilled`.
    len: usize,
    spilled: bool,
    heap: Vec<u8>,
}

impl KeyBuf {
    /// Creates an empty buffer.
    #[must_use]
    pub const fn new() -> Self {
        Self { inline: [0; INLINE], len: 0, spilled: false, heap: Vec::new() }
    }

    /// Creates an empty buffer on the heap, for many keys in succession.
    pub(crate) const fn on_heap() -> Self {
        Self { inline: [0; INLINE], len: 0, spilled: true, heap: Vec::new() }
    }

    /// Appends the encoding of one value.
    pub fn push<T: Key>(&mut self, value: &T) -> &mut Self {
        T::encode(value.arg(), self);
        self
    }

    /// Appends the encoding of one value in descending order.
    pub fn push_desc<T: Key>(&mut self, value: &T) -> &mut Self {
        desc::encode::<T>(value.arg(), self);
        self
    }

    /// Appends bytes without encoding them.
    #[inline]
    pub(crate) fn extend(&mut self, bytes: &[u8]) {
        if !self.spilled {
            if let Some(room) = self.inline.get_mut(self.len..self.len + bytes.len()) {
                room.copy_from_slice(bytes);
                self.len += bytes.len();
                return;
            }
            self.spill();
        }
        self.heap.extend_from_slice(bytes);
    }

    #[cold]
    fn spill(&mut self) {
        self.heap.clear();
        self.heap.extend_from_slice(self.inline.get(..self.len).unwrap_or_default());
        self.spilled = true;
    }

    /// Inverts the bytes after the first `start` bytes.
    pub(super) fn invert_from(&mut self, start: usize) {
        let bytes =
            if self.spilled { Some(&mut *self.heap) } else { self.inline.get_mut(..self.len) };
        if let Some(bytes) = bytes.and_then(|bytes| bytes.get_mut(start..)) {
            for byte in bytes {
                *byte = !*byte;
            }
        }
    }

    /// Appends the encoding of one parameter of a query.
    pub fn push_arg<T: Key>(&mut self, value: T::Arg<'_>) -> &mut Self {
        T::encode(value, self);
        self
    }

    /// Returns the bytes.
    #[must_use]
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        if self.spilled { &self.heap } else { self.inline.get(..self.len).unwrap_or_default() }
    }

    /// Returns the number of bytes.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        if self.spilled { self.heap.len() } else { self.len }
    }

    /// Returns true if the buffer is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the capacity on the heap.
    pub(crate) fn capacity(&self) -> usize {
        self.heap.capacity()
    }

    /// Clears the bytes and keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.len = 0;
        self.heap.clear();
    }
}

impl Default for KeyBuf {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for KeyBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_bytes().fmt(f)
    }
}

impl PartialEq for KeyBuf {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for KeyBuf {}
