//! A part of the state of a transaction, which one thread at a time uses.

use std::cell::Cell;

/// A value that is changed through a shared reference. Unlike a `RefCell`, it has no borrow that can fail.
#[derive(Default)]
pub(super) struct Slot<T>(Cell<T>);

impl<T: Default> Slot<T> {
    /// Calls a function with the value. The function must not use the slot, which has the default value meanwhile.
    pub(super) fn with<R>(&self, function: impl FnOnce(&mut T) -> R) -> R {
        let mut value = self.0.take();
        let result = function(&mut value);
        self.0.set(value);
        result
    }

    pub(super) fn set(&self, value: T) {
        self.0.set(value);
    }

    /// Leaves the default value.
    pub(super) fn take(&self) -> T {
        self.0.take()
    }
}
