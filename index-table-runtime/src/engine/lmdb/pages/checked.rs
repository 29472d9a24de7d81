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

    pub(super) fn node(&self, at: usize) -> Option<Node<'_>> {
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

#[cfg(test)]
mod tests {
    use super::{super::layout::HEADER, *};

    const SIZE: usize = 4096;

    /// Returns a leaf whose keys have long values, each with the number of its first page.
    fn leaf(page: u64, values: &[(&[u8], u64)]) -> Vec<u8> {
        let mut bytes = vec![0; SIZE];
        let put = |bytes: &mut [u8], at: usize, value: &[u8]| {
            bytes[at..at + value.len()].copy_from_slice(value);
        };
        let word = size_of::<usize>();
        let short = |value: usize| u16::try_from(value).expect("in a page").to_ne_bytes();
        put(&mut bytes, 0, &usize::try_from(page).expect("a word").to_ne_bytes());
        put(&mut bytes, word + 2, &flag::LEAF.to_ne_bytes());
        let mut upper = SIZE;
        for (at, (key, first)) in values.iter().enumerate() {
            let first = usize::try_from(*first).expect("a word").to_ne_bytes();
            // A size of 0, the flags, the length of the key, the key and the value.
            let node = [&[0; 4][..], &flag::BIG_DATA.to_ne_bytes(), &short(key.len()), key, &first];
            let node = node.concat();
            upper -= node.len().next_multiple_of(2);
            put(&mut bytes, upper, &node);
            put(&mut bytes, HEADER + 2 * at, &short(upper));
        }
        put(&mut bytes, word + 4, &short(HEADER + 2 * values.len()));
        put(&mut bytes, word + 6, &short(upper));
        bytes
    }

    fn place(page: u64, low: Option<&[u8]>) -> Below {
        Below { page, low: low.map(<[u8]>::to_vec), high: None }
    }

    #[test]
    fn each_of_two_long_values_is_checked_until_both_are_intact() {
        let bytes = leaf(7, &[(b"a", 20), (b"b", 30)]);
        let page = CheckedPage::new(place(7, None), true, bytes).expect("an intact leaf");
        let read = |range: Range<usize>, damaged: Option<&[u8]>| {
            let mut checked = Vec::new();
            let outcome = page.check_values(range, |node| {
                checked.push(node.key.to_vec());
                if Some(node.key) == damaged { Err("damage") } else { Ok(()) }
            });
            (checked.concat(), outcome)
        };
        // The check of one value is not that of the other.
        assert_eq!(read(0..1, None), (b"a".to_vec(), Ok(())));
        assert_eq!(read(1..2, Some(b"b")), (b"b".to_vec(), Err("damage")));
        assert_eq!(read(0..2, Some(b"b")), (b"ab".to_vec(), Err("damage")));
        assert_eq!(read(1..2, Some(b"b")), (b"b".to_vec(), Err("damage")));
        assert_eq!(read(0..2, None), (b"ab".to_vec(), Ok(())));
        assert_eq!(read(0..2, Some(b"b")), (Vec::new(), Ok(())));
        assert_eq!(read(1..2, Some(b"b")), (Vec::new(), Ok(())));
    }

    #[test]
    fn a_page_is_kept_for_the_place_in_which_it_was_checked() {
        let values: [(&[u8], u64); 2] = [(b"a", 20), (b"b", 30)];
        let recent = Recent::default();
        assert!(recent.find(&place(7, None), true).is_none());
        let page = CheckedPage::new(place(7, None), true, leaf(7, &values)).expect("a leaf");
        recent.keep(&Arc::new(page));
        assert!(recent.find(&place(7, None), true).is_some());
        // A damaged branch can refer to it in another place, in which its keys are too low.
        let other = || place(7, Some(b"b"));
        assert!(recent.find(&other(), true).is_none());
        assert!(recent.find(&place(7, None), false).is_none());
        let refused = CheckedPage::new(other(), true, leaf(7, &values)).err();
        assert_eq!(refused, Some("its keys are not in order"));
        assert!(recent.find(&place(7, None), true).is_some());
        // Two pages that are kept in one slot: the last one stays.
        let next = 7 + KEPT as u64;
        let page = CheckedPage::new(place(next, None), true, leaf(next, &values)).expect("a leaf");
        recent.keep(&Arc::new(page));
        assert!(recent.find(&place(next, None), true).is_some());
        assert!(recent.find(&place(7, None), true).is_none());
    }
}
