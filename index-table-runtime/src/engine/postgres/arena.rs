//! The results that a transaction lends until its end.

use std::{
    cell::{Cell, OnceCell},
    iter,
};

/// The results that a transaction keeps. A result is never moved or dropped before the arena, so it can be borrowed
/// while others are added. Each block has twice as many slots as the block before.
pub(super) struct Arena<T> {
    blocks: [OnceCell<Box<[OnceCell<T>]>>; 32],
    len: Cell<usize>,
}

impl<T> Default for Arena<T> {
    fn default() -> Self {
        Self { blocks: [const { OnceCell::new() }; 32], len: Cell::new(0) }
    }
}

impl<T> Arena<T> {
    /// Keeps a result. Returns its number as well.
    pub(super) fn keep(&self, result: T) -> Option<(usize, &T)> {
        let number = self.len.get();
        self.len.set(number + 1);
        let slot = self.slot(number)?;
        Some((number, slot.get_or_init(|| result)))
    }

    /// Returns the result with this number.
    pub(super) fn get(&self, number: usize) -> Option<&T> {
        self.slot(number)?.get()
    }

    fn slot(&self, number: usize) -> Option<&OnceCell<T>> {
        let place = number.checked_add(1)?;
        let block = place.ilog2();
        let size = 1_usize.checked_shl(block)?;
        let slots = self.blocks.get(usize::try_from(block).ok()?)?;
        slots
            .get_or_init(|| iter::repeat_with(OnceCell::new).take(size).collect())
            .get(place - size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_result_has_a_slot_of_its_own() {
        let arena = Arena::default();
        for number in 0..100 {
            assert_eq!(arena.keep(number), Some((number, &number)));
            assert_eq!(arena.get(number / 2), Some(&(number / 2)));
            assert!(arena.get(number + 1).is_none());
        }
    }
}
