//! The references to a table, each with its index. References can be added while the table is open.

use std::sync::OnceLock;

use crate::model::reference::Referrer;

/// A list that only grows, and whose elements are borrowed without a lock.
#[derive(Debug)]
pub(crate) struct Links<D> {
    first: OnceLock<Box<Link<D>>>,
}

/// One reference to the table.
#[derive(Debug)]
pub(crate) struct Link<D> {
    pub(crate) by: Referrer,
    /// The index that begins with the fields of the reference.
    pub(crate) database: D,
    next: Links<D>,
}

impl<D> Default for Links<D> {
    fn default() -> Self {
        Self { first: OnceLock::new() }
    }
}

impl<D> Links<D> {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Link<D>> {
        let first = self.first.get();
        std::iter::successors(first, |link| link.next.first.get()).map(AsRef::as_ref)
    }

    /// Returns the reference at this position.
    #[inline]
    pub(crate) fn get(&self, at: usize) -> Option<&Link<D>> {
        self.iter().nth(at)
    }

    /// Adds a reference, unless it is in the list. A table is opened by one thread at a time.
    pub(crate) fn add(&self, by: Referrer, database: D) {
        if self.iter().any(|link| link.by == by) {
            return;
        }
        let mut end = self;
        while let Some(link) = end.first.get() {
            end = &link.next;
        }
        let _ = end.first.set(Box::new(Link { by, database, next: Self::default() }));
    }

    pub(crate) fn of(links: impl Iterator<Item = (Referrer, D)>) -> Self {
        let list = Self::default();
        links.for_each(|(by, database)| list.add(by, database));
        list
    }
}
