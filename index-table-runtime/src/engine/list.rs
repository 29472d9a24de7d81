//! A list that grows while other threads read it. Its items never move, so references to them stay valid.

use std::{iter, sync::OnceLock};

/// A list to which items are added behind a shared reference. Access to the first items costs the same as in a slice;
/// each item that was added later is one node further away.
pub(crate) struct List<T> {
    first: Box<[T]>,
    next: OnceLock<Box<List<T>>>,
}

impl<T> Default for List<T> {
    fn default() -> Self {
        iter::empty().collect()
    }
}

impl<T> List<T> {
    /// Returns the number of items.
    pub(crate) fn len(&self) -> usize {
        self.nodes().map(|node| node.first.len()).sum()
    }

    /// Returns the item at this position.
    #[inline]
    pub(crate) fn get(&self, at: usize) -> Option<&T> {
        self.first.get(at).or_else(|| self.get_added(at))
    }

    #[cold]
    fn get_added(&self, mut at: usize) -> Option<&T> {
        for node in self.nodes() {
            match at.checked_sub(node.first.len()) {
                Some(rest) => at = rest,
                None => return node.first.get(at),
            }
        }
        None
    }

    /// Returns the items in order. Items that are added meanwhile may be among them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.nodes().flat_map(|node| &node.first)
    }

    /// Adds an item at the end.
    pub(crate) fn push(&self, item: T) {
        let mut added = Self::from_iter([item]).into();
        let mut last = &self.next;
        while let Err(refused) = last.set(added) {
            added = refused;
            if let Some(node) = last.get() {
                last = &node.next;
            }
        }
    }

    fn nodes(&self) -> impl Iterator<Item = &Self> {
        iter::successors(Some(self), |node| node.next.get().map(|next| &**next))
    }
}

impl<T> FromIterator<T> for List<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        Self { first: items.into_iter().collect(), next: OnceLock::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_keep_their_positions_when_others_are_added() {
        let list = List::from_iter([0, 1]);
        let first = list.get(1);
        for item in 2..10 {
            list.push(item);
        }
        assert_eq!(list.len(), 10);
        assert_eq!(list.iter().copied().collect::<Vec<_>>(), (0..10).collect::<Vec<_>>());
        for at in 0..10_usize {
            assert_eq!(list.get(at), Some(&at));
        }
        assert_eq!((list.get(10), first), (None, Some(&1)));
    }

    #[test]
    fn threads_add_all_of_their_items() {
        let list = List::from_iter([]);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let list = &list;
                scope.spawn(move || (0..100).for_each(|item| list.push(thread * 100 + item)));
            }
        });
        let mut items: Vec<_> = list.iter().copied().collect();
        items.sort_unstable();
        assert_eq!(items, (0..400).collect::<Vec<_>>());
    }
}
