//! The entries of a damaged tree that can be read. A page that can't be read loses the keys between its bounds.
//!
//! The leaves below a damaged branch are found by elimination: each page is in a tree, in a list of free pages, or in a long value. If only one tree has a damaged branch, the leaves that nothing else has belong to it. This is given up if the lists of
//! free pages are damaged, if these leaves overlap, or if the record of the tree counts other pages than are left: the pages of an
//! [abandoned](super::super::abandon) tree belong to nothing.

use std::{collections::BTreeMap, fs::File, io, path::Path};

use super::{
    Depth, Fault,
    guard::{BadPage, Below, Guard, checked_nodes, lost_by_disk},
    layout::{self, Database, Meta, Node, flag},
    metas,
    walk::{Bitmap, HIGHEST, PageCheck},
};

/// Keys that can't be read: from `from`, and before `to`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::engine::lmdb) struct LostKeys {
    pub(in crate::engine::lmdb) page: u64,
    pub(in crate::engine::lmdb) reason: &'static str,
    pub(in crate::engine::lmdb) from: Option<Vec<u8>>,
    pub(in crate::engine::lmdb) to: Option<Vec<u8>>,
    /// Whether the page is a branch, whose leaves may be intact.
    is_branch: bool,
}

/// Is called with each entry.
type Each<'e, E> = &'e mut dyn FnMut(&[u8], &[u8]) -> Result<(), E>;

/// The reason for a page that has another use.
const FOREIGN: &str = "it is free, or is used twice";

/// The pages of a tree.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Found {
    leaves: u64,
    /// Leaves, branches, and the pages of long values.
    all: u64,
}

/// A file that is read as far as possible.
pub(in crate::engine::lmdb) struct Readable {
    guard: Guard,
    /// The pages that trees and lists of free pages have.
    used: Bitmap,
    /// The pages that were found in each tree.
    found: BTreeMap<String, Found>,
    /// The flags that entries have: those of names describe databases.
    known: u16,
    /// Whether each page that is not free is in `used` after all trees were read.
    has_free_lists: bool,
    /// Whether the tree is read for a second time, so that its pages are in `used`.
    is_again: bool,
}

impl Readable {
    /// Opens the file at the state `saved`, at the state of the transaction `txn`, or at its last state. Returns the keys of the
    /// names that can't be read.
    pub(in crate::engine::lmdb) fn open(
        path: &Path,
        txn: Option<u64>,
        saved: Option<Meta>,
    ) -> Result<(Self, Vec<LostKeys>), Fault> {
        let mut file = File::open(path)?;
        let own = if saved.is_some() {
            saved
        } else {
            let metas = metas(&mut file)?;
            let newest = metas.into_iter().max_by_key(|meta| meta.txn);
            metas.into_iter().find(|meta| Some(meta.txn) == txn).or(newest)
        };
        let Some(meta) = &own else { return Err("it has no state".to_owned().into()) };
        let progress = &mut |_, _| Ok(());
        let check = PageCheck::new(&mut file, meta, Depth::Roots, progress)?;
        let (has_free_lists, used) = match check.all_free_pages() {
            Ok(free) => (true, free),
            Err(Fault::Damaged(_)) => (false, Bitmap::new(meta.last_page + 1)),
            Err(error) => return Err(error),
        };
        let names = [(String::new(), meta.names)].into_iter().collect();
        let guard = Guard::of(file, meta.page_size(), meta.last_page, names)?;
        let known = flag::BIG_DATA | flag::SUB_DATA;
        let found = BTreeMap::new();
        let mut own = Self { guard, used, found, known, has_free_lists, is_again: false };
        let (mut databases, mut lost) = (Vec::new(), Vec::new());
        own.tree("", &mut lost, &mut |name, record| {
            let record = Database::read(record);
            let name = String::from_utf8_lossy(name).into_owned();
            databases.extend(record.map(|record| (name, record)));
            Ok::<_, Fault>(())
        })?;
        own.known = flag::BIG_DATA;
        own.guard.databases.extend(databases);
        Ok((own, lost))
    }

    /// Returns the names of the databases.
    pub(in crate::engine::lmdb) fn names(&self) -> Vec<String> {
        self.guard.databases.keys().filter(|name| !name.is_empty()).cloned().collect()
    }

    /// Calls `each` with the entries of a database that can be read, in the order of their keys, and adds the others to `lost`.
    pub(in crate::engine::lmdb) fn tree<E: From<io::Error>>(
        &mut self,
        name: &str,
        lost: &mut Vec<LostKeys>,
        each: Each<'_, E>,
    ) -> Result<(), E> {
        let Some(record) = self.guard.databases.get(name).copied() else { return Ok(()) };
        let Some(root) = record.root else { return Ok(()) };
        let below = Below { page: root, low: None, high: None };
        if record.depth == 0 || record.depth > HIGHEST {
            lost.push(lost_below(below, "the height of its tree can't be", true));
            return Ok(());
        }
        let mut found = Found::default();
        self.is_again = self.found.contains_key(name);
        self.below(below, record.depth, &mut found, lost, each)?;
        self.found.insert(name.to_owned(), found);
        Ok(())
    }

    fn below<E: From<io::Error>>(
        &mut self,
        below: Below,
        height: u16,
        found: &mut Found,
        lost: &mut Vec<LostKeys>,
        each: Each<'_, E>,
    ) -> Result<(), E> {
        let (is_leaf, number) = (height <= 1, below.page);
        found.leaves += u64::from(is_leaf);
        found.all += 1;
        // Its contents may be those of an earlier transaction, or of another tree.
        if !self.used.add(number) && !self.is_again {
            lost.push(lost_below(below, FOREIGN, !is_leaf));
            return Ok(());
        }
        let bytes = match self.guard.page(number) {
            Ok(bytes) => bytes,
            Err(bad) => {
                lost.push(lost_below(below, lost_page(bad)?.1, !is_leaf));
                return Ok(());
            }
        };
        let bounds = (below.low.as_deref(), below.high.as_deref());
        let nodes = checked_nodes(&bytes, is_leaf, bounds, self.known);
        let nodes = match nodes {
            Ok(nodes) => nodes,
            Err(reason) => {
                lost.push(lost_below(below, reason, !is_leaf));
                return Ok(());
            }
        };
        if is_leaf {
            return nodes.iter().try_for_each(|node| self.entry(node, found, lost, each));
        }
        for (at, node) in nodes.iter().enumerate() {
            let low = if at == 0 { below.low.clone() } else { Some(node.key.to_vec()) };
            let high = nodes.get(at + 1).map(|next| next.key.to_vec()).or(below.high.clone());
            let below = Below { page: node.child, low, high };
            self.below(below, height - 1, found, lost, each)?;
        }
        Ok(())
    }

    fn entry<E: From<io::Error>>(
        &mut self,
        node: &Node<'_>,
        found: &mut Found,
        lost: &mut Vec<LostKeys>,
        each: Each<'_, E>,
    ) -> Result<(), E> {
        if node.flags & flag::BIG_DATA == 0 {
            return each(node.key, node.data);
        }
        let first = layout::word(node.data, 0).unwrap_or_default();
        let mut skip = |page, reason| {
            let to = [node.key, &[0]].concat();
            let (from, to) = (Some(node.key.to_vec()), Some(to));
            lost.push(LostKeys { page, reason, from, to, is_branch: false });
        };
        let pages = match self.guard.long_value(node) {
            Ok(pages) => pages,
            Err(bad) => {
                let (page, reason) = lost_page(bad)?;
                skip(page.unwrap_or(first), reason);
                return Ok(());
            }
        };
        found.all += pages;
        let mut is_own = true;
        for page in first..first.saturating_add(pages) {
            is_own &= self.used.add(page) || self.is_again;
        }
        if !is_own {
            skip(first, FOREIGN);
            return Ok(());
        }
        match self.guard.long_bytes(node) {
            Ok(value) => each(node.key, &value),
            Err(error) => {
                skip(first, lost_by_disk(&error).ok_or(error)?);
                Ok(())
            }
        }
    }

    /// Calls `each` with the entries of the leaves below the damaged branches of a database, after all trees were read. Other trees must
    /// have no damaged branch. What is found is removed from `lost`.
    pub(in crate::engine::lmdb) fn without_branches<E: From<io::Error>>(
        &mut self,
        name: &str,
        lost: &mut Vec<LostKeys>,
        each: Each<'_, E>,
    ) -> Result<(), E> {
        let (branches, others): (Vec<_>, Vec<_>) =
            lost.drain(..).partition(|lost| lost.is_branch && self.has_free_lists);
        *lost = others;
        if branches.is_empty() {
            return Ok(());
        }
        // The first and last key of each leaf.
        let mut leaves: Vec<(Vec<u8>, Vec<u8>, u64)> = Vec::new();
        let mut left = Found::default();
        for number in (2..self.guard.pages).filter(|number| !self.used.has(*number)) {
            left.all += 1;
            let Ok(bytes) = self.guard.page(number) else { continue };
            let Ok(nodes) = checked_nodes(&bytes, true, (None, None), self.known) else { continue };
            if let (Some(first), Some(last)) = (nodes.first(), nodes.last()) {
                leaves.push((first.key.to_vec(), last.key.to_vec(), number));
            }
        }
        left.leaves = leaves.len() as u64;
        leaves.sort();
        self.is_again = false;
        let has_others = self.missing(name) != Some(left);
        let overlaps =
            leaves.windows(2).any(|two| matches!(two, [(_, end, _), (start, ..)] if end >= start));
        for branch in branches {
            let is_inside = |(first, last, _): &&(Vec<u8>, Vec<u8>, u64)| {
                branch.from.as_ref().is_none_or(|from| first >= from)
                    && branch.to.as_ref().is_none_or(|to| last < to)
            };
            let inside: Vec<u64> =
                leaves.iter().filter(is_inside).map(|(.., number)| *number).collect();
            if has_others || overlaps || inside.is_empty() {
                lost.push(branch);
                continue;
            }
            for number in inside {
                let below = Below { page: number, low: None, high: None };
                self.below(below, 1, &mut left, lost, each)?;
            }
        }
        Ok(())
    }

    /// Returns the pages that the record of a tree counts, and that were not found.
    fn missing(&self, name: &str) -> Option<Found> {
        let (record, found) = (self.guard.databases.get(name)?, self.found.get(name)?);
        let all = record.branches.checked_add(record.leaves)?.checked_add(record.overflows)?;
        let leaves = record.leaves.checked_sub(found.leaves)?;
        Some(Found { leaves, all: all.checked_sub(found.all)? })
    }
}

/// Returns the damaged page, if it is known, and the reason. A page that the disk can't read is lost for this copy, even if the disk can
/// read it later.
fn lost_page(bad: BadPage) -> io::Result<(Option<u64>, &'static str)> {
    match bad {
        BadPage::Damaged { page, reason } => Ok((Some(page), reason)),
        BadPage::Io(error) => Ok((None, lost_by_disk(&error).ok_or(error)?)),
    }
}

/// Whether the leaves of lost keys may be found.
pub(in crate::engine::lmdb) fn has_branches(lost: &[LostKeys]) -> bool {
    lost.iter().any(|lost| lost.is_branch)
}

fn lost_below(below: Below, reason: &'static str, is_branch: bool) -> LostKeys {
    let Below { page, low, high } = below;
    LostKeys { page, reason, from: low, to: high, is_branch }
}
