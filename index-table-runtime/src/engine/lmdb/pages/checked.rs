//! Pages that a [`Guard`](super::Guard) has checked. The last ones are kept, so that look-ups beside each other don't check the same
//! pages again.

use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use super::{
    guard::{Below, checked_nodes},
    layout::{Node, Page, flag},
};
use crate::locks::Mutex;

/// The number of branches that are kept, and the number of leaves: together, 1 MiB with pages of 4 KiB.
const KEPT: usize = 128;

/// A branch or a leaf without damage, whose keys are between the bounds of its place in the tree.
pub(super) struct CheckedPage {
    place: Below,
    is_leaf: bool,
    bytes: Vec<u8>,
    nodes: usize,
    /// Whether the first pages of all long values are checked.
    has_checked_values: AtomicBool,
}

impl CheckedPage {
    /// # Errors
    ///
    /// The damage.
    pub(super) fn new(place: Below, is_leaf: bool, bytes: Vec<u8>) -> Result<Self, &'static str> {
        let bounds = (place.low.as_deref(), place.high.as_deref());
        let nodes = checked_nodes(&bytes, is_leaf, bounds, flag::BIG_DATA)?;
        let has_values = is_leaf && nodes.iter().any(|node| node.flags & flag::BIG_DATA != 0);
        let nodes = nodes.len();
        Ok(Self { place, is_leaf, bytes, nodes, has_checked_values: AtomicBool::new(!has_values) })
    }

    pub(super) const fn len(&self) -> usize {
        self.nodes
    }

    fn node(&self, at: usize) -> Option<Node<'_>> {
        Page(&self.bytes).node(at)
    }

    /// Returns the number of keys that are less than `key`.
    pub(super) fn less(&self, key: &[u8]) -> usize {
        self.count(|own| own < key)
    }

    /// Returns the number of keys that are not greater than `key`.
    pub(super) fn not_greater(&self, key: &[u8]) -> usize {
        self.count(|own| own <= key)
    }

    /// Returns the number of keys at the start for which `is_before` is true. The first key of a branch, which represents all keys
    /// less than the second one, counts as such a key.
    fn count(&self, is_before: impl Fn(&[u8]) -> bool) -> usize {
        let (mut low, mut high) = (usize::from(!self.is_leaf), self.nodes);
        while low < high {
            let middle = low.midpoint(high);
            if self.node(middle).is_some_and(|node| is_before(node.key)) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Returns the place of the child with this position in a branch.
    pub(super) fn child(&self, at: usize) -> Option<Below> {
        let child = self.node(at)?.child;
        let key = |at| self.node(at).map(|node| node.key.to_vec());
        let low = if at == 0 { self.place.low.clone() } else { key(at) };
        let high = key(at + 1).or_else(|| self.place.high.clone());
        Some(Below { page: child, low, high })
    }

    /// Calls `check` for the long values of the nodes in `range`, unless all of them are checked.
    pub(super) fn check_values<E>(
        &self,
        range: Range<usize>,
        mut check: impl FnMut(&Node<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.has_checked_values.load(Relaxed) {
            return Ok(());
        }
        let all = range == (0..self.nodes);
        let nodes = range.filter_map(|at| self.node(at));
        for node in nodes.filter(|node| node.flags & flag::BIG_DATA != 0) {
            check(&node)?;
        }
        self.has_checked_values.fetch_or(all, Relaxed);
        Ok(())
    }
}

/// The last checked pages: one of the branches, and one of the leaves, for each remainder of their numbers.
#[derive(Default)]
pub(super) struct Recent(Mutex<Vec<Option<Arc<CheckedPage>>>>);

impl Recent {
    /// Returns a page that was checked in this place.
    pub(super) fn find(&self, place: &Below, is_leaf: bool) -> Option<Arc<CheckedPage>> {
        let pages = self.0.try_lock()?;
        let page = pages.get(slot(place.page, is_leaf))?.as_ref()?;
        (page.is_leaf == is_leaf && page.place == *place).then(|| Arc::clone(page))
    }

    pub(super) fn keep(&self, page: &Arc<CheckedPage>) {
        // Another thread that uses the pages at this moment may keep its own.
        let Some(mut pages) = self.0.try_lock() else { return };
        pages.resize(2 * KEPT, None);
        if let Some(slot) = pages.get_mut(slot(page.place.page, page.is_leaf)) {
            *slot = Some(Arc::clone(page));
        }
    }
}

fn slot(page: u64, is_leaf: bool) -> usize {
    let start = if is_leaf { KEPT } else { 0 };
    // Less than `KEPT`.
    start + usize::try_from(page % KEPT as u64).unwrap_or_default()
}
