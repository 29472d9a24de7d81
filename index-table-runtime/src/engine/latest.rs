//! A value that is replaced while other threads use it. References to earlier values stay valid.

use std::{iter, sync::OnceLock};

/// The values that were set, of which the last value is current. All of them are kept.
pub(crate) struct Latest<T>(OnceLock<Box<Node<T>>>);

struct Node<T> {
    value: T,
    next: Latest<T>,
}

impl<T> Latest<T> {
    pub(crate) const fn new() -> Self {
        Self(OnceLock::new())
    }

    /// Returns the current value; `None` if no value was set.
    #[inline]
    pub(crate) fn get(&self) -> Option<&T> {
        let mut node = self.0.get()?;
        while let Some(next) = node.next.0.get() {
            node = next;
        }
        Some(&node.value)
    }

    /// Replaces the current value.
    pub(crate) fn set(&self, value: T) {
        let nodes = iter::successors(Some(self), |at| at.0.get().map(|node| &node.next));
        let mut node = Box::new(Node { value, next: Self::new() });
        for place in nodes {
            match place.0.set(node) {
                Ok(()) => return,
                Err(refused) => node = refused,
            }
        }
    }
}

impl<T> Default for Latest<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> From<T> for Latest<T> {
    fn from(value: T) -> Self {
        let latest = Self::new();
        latest.set(value);
        latest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_value_is_current_and_earlier_values_stay_valid() {
        let latest = Latest::new();
        assert_eq!(latest.get(), None);
        latest.set("first".to_owned());
        let first = latest.get();
        latest.set("second".to_owned());
        latest.set("third".to_owned());
        assert_eq!(first.map(String::as_str), Some("first"));
        assert_eq!(latest.get().map(String::as_str), Some("third"));
        assert_eq!(Latest::from(4).get(), Some(&4));
    }

    #[test]
    fn a_value_that_threads_set_is_current() {
        let latest = Latest::from(0);
        std::thread::scope(|scope| {
            for thread in 1..5 {
                let latest = &latest;
                scope.spawn(move || (0..50).for_each(|_| latest.set(thread)));
            }
        });
        assert!(latest.get().is_some_and(|value| (1..5).contains(value)));
    }
}
