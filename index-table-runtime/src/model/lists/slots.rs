//! Values that are added, and never moved or removed, so that threads read them without a lock.

use std::sync::{
    OnceLock,
    atomic::{AtomicUsize, Ordering},
};

/// The number of chunks. Each has twice the slots of the chunk before it.
const CHUNKS: usize = 13;

/// Up to 8,191 values.
pub(super) struct Slots<T> {
    chunks: [OnceLock<Box<[OnceLock<T>]>>; CHUNKS],
    len: AtomicUsize,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self { chunks: [const { OnceLock::new() }; CHUNKS], len: AtomicUsize::new(0) }
    }
}

/// Returns the chunk of a position, and the position in the chunk.
#[inline]
const fn place(position: usize) -> (usize, usize) {
    let chunk = (position + 1).ilog2() as usize;
    (chunk, position + 1 - (1 << chunk))
}

impl<T> Slots<T> {
    /// Returns a value.
    #[inline]
    pub(super) fn get(&self, position: usize) -> Option<&T> {
        let (chunk, position) = place(position);
        self.chunks.get(chunk)?.get()?.get(position)?.get()
    }

    /// Adds a value, and returns its position; `None` if there is no room. Only one thread at a time adds values.
    pub(super) fn push(&self, value: T) -> Option<usize> {
        let position = self.len.load(Ordering::Relaxed);
        let (chunk, slot) = place(position);
        let chunk = self
            .chunks
            .get(chunk)?
            .get_or_init(|| (0..1_usize << chunk).map(|_| OnceLock::new()).collect());
        chunk.get(slot)?.set(value).ok()?;
        self.len.store(position + 1, Ordering::Relaxed);
        Some(position)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_fill_one_chunk_after_another() {
        assert_eq!([0, 1, 2, 3, 6, 7].map(place), [(0, 0), (1, 0), (1, 1), (2, 0), (2, 3), (3, 0)]);
        let slots = Slots::default();
        for number in 0..8_191 {
            assert_eq!(slots.push(number), Some(number));
        }
        assert_eq!(slots.push(8_191), None);
        assert_eq!(
            (slots.get(0), slots.get(8_190), slots.get(8_191)),
            (Some(&0), Some(&8_190), None)
        );
    }
}
