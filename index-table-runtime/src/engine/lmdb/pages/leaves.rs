//! A sample of the leaves of a database. The number of read pages has a limit that does not depend on the size.
//!
//! The trees of LMDB are balanced, so the pages of one level have about the same number of leaves below them. The walk
//! reads whole levels until one has more pages than the sample, or more than [`WHOLE`], and then chooses pages of this level at equal distances. If these are
//! branches, it chooses one leaf below each.
#![expect(clippy::cast_precision_loss, reason = "weights are estimates")]

use std::{
    fs::File,
    io::{Read as _, Seek as _, SeekFrom},
    path::Path,
};

use super::{
    Fault,
    layout::{Database, Meta, Page, flag},
    metas,
};

/// The maximum number of pages in a level that is read completely.
const WHOLE: usize = 256;

/// LMDB's limit for the height of a tree.
const HIGHEST: u16 = 32;

/// A leaf of a sample.
pub(in crate::engine::lmdb) struct Leaf {
    /// The lower bound of its keys; empty in the first leaf.
    pub(in crate::engine::lmdb) start: Vec<u8>,
    /// The upper bound of its keys, exclusive; `None` in the last leaf.
    pub(in crate::engine::lmdb) end: Option<Vec<u8>>,
    /// The estimated number of neighbouring leaves that it represents.
    pub(in crate::engine::lmdb) weight: f64,
}

/// A page with the bounds of its keys.
struct Below {
    start: Vec<u8>,
    end: Option<Vec<u8>>,
    page: u64,
}

struct Walk {
    file: File,
    page_size: u64,
}

/// Returns at most about `most` leaves of a database, in the order of their keys, of the last committed state. Returns
/// `None` if the pages can't be read at the moment, because they are being written. The caller has a read transaction, so
/// that the pages of later states are not reused.
pub(in crate::engine::lmdb) fn sample(
    path: &Path,
    name: &str,
    most: usize,
) -> Result<Option<Vec<Leaf>>, Fault> {
    let Some((mut walk, database, state)) = Walk::to(path, name)? else { return Ok(None) };
    let Some(root) = database.root else { return Ok(Some(Vec::new())) };
    let mut height = database.depth;
    let mut level = vec![Below { start: Vec::new(), end: None, page: root }];
    while height > 1 && level.len() <= most.min(WHOLE) {
        let mut lower = Vec::new();
        for branch in &level {
            let Some(children) = walk.children(branch)? else { return Ok(None) };
            lower.extend(children);
        }
        (level, height) = (lower, height - 1);
    }
    let mut random = Random(state);
    let groups = most.clamp(1, level.len().max(1));
    let mut leaves = Vec::with_capacity(groups);
    for at in 0..groups {
        // The sizes of the groups differ by 1 at most.
        let [from, to] = [at, at + 1].map(|at| at * level.len() / groups);
        let chosen_at = from + random.below(to - from);
        let Some(chosen) = level.get(chosen_at) else { continue };
        let Below { start, end, page } = chosen;
        let mut below = Below { start: start.clone(), end: end.clone(), page: *page };
        let mut weight = (to - from) as f64;
        let mut next = level.get(chosen_at + 1).map(|next| next.page);
        for _ in 1..height {
            let Some(mut children) = walk.children(&below)? else { return Ok(None) };
            if children.is_empty() {
                return Ok(None);
            }
            weight *= children.len() as f64;
            let at = random.below(children.len());
            next = children.get(at + 1).map(|next| next.page);
            below = children.swap_remove(at);
        }
        // The caller reads the leaf, and finds its end in the next leaf. A page fault would read the pages around them, too.
        for page in [Some(below.page), next].into_iter().flatten() {
            // The caller has the error, with the page, if it still can't be read.
            let _ = walk.page(page);
        }
        let Below { start, end, .. } = below;
        leaves.push(Leaf { start, end, weight });
    }
    Ok(Some(leaves))
}

/// Estimates the share of a database's leaves between two keys, from 0 to 1. Without an `end`, the last leaf is included.
/// Returns `None` if the pages can't be read at the moment. The caller has a read transaction, as for [`sample`].
///
/// If the keys have the same or neighbouring parent pages, the estimate is exact to a part of a leaf.
pub(in crate::engine::lmdb) fn share(
    path: &Path,
    name: &str,
    start: &[u8],
    end: Option<&[u8]>,
) -> Result<Option<f64>, Fault> {
    let Some((mut walk, database, _)) = Walk::to(path, name)? else { return Ok(None) };
    let Some(from) = walk.way(&database, start)? else { return Ok(None) };
    let to = match end {
        Some(end) => walk.way(&database, end)?,
        // After the last child of the root.
        None => Some(from.iter().take(1).map(|step| Step { at: step.of, ..*step }).collect()),
    };
    let leaves = to.map(|to| leaves_between(&from, &to, &database));
    Ok(leaves.map(|leaves| (leaves / database.leaves.max(1) as f64).clamp(0.0, 1.0)))
}

/// A step on the way from the root to a key.
#[derive(Clone, Copy)]
struct Step {
    /// The number of the child or, in a leaf, of the first key that is not less.
    at: usize,
    /// The number of children or keys.
    of: usize,
}

/// Estimates the number of leaves between the keys at the ends of two ways.
fn leaves_between(from: &[Step], to: &[Step], database: &Database) -> f64 {
    let children = (database.leaves + database.branches).saturating_sub(1) as f64;
    let average = (children / database.branches.max(1) as f64).max(1.0);
    // The number of leaves of a child after this number of steps, or the part of a leaf that a key is.
    let size = |steps: usize, of: usize| match usize::from(database.depth).checked_sub(steps + 2) {
        Some(branches) => average.powi(i32::try_from(branches).unwrap_or_default()),
        None => 1.0 / of.max(1) as f64,
    };
    let same = from.iter().zip(to).take_while(|(from, to)| from.at == to.at).count();
    let (Some(first), Some(last)) = (from.get(same), to.get(same)) else { return 0.0 };
    let is_leaf = same + 1 == usize::from(database.depth);
    let between = last.at.saturating_sub(first.at).saturating_sub(usize::from(!is_leaf));
    let mut leaves = between as f64 * size(same, first.of);
    for (steps, step) in from.iter().enumerate().skip(same + 1) {
        let is_leaf = steps + 1 == usize::from(database.depth);
        let after = step.of.saturating_sub(step.at).saturating_sub(usize::from(!is_leaf));
        leaves += after as f64 * size(steps, step.of);
    }
    for (steps, step) in to.iter().enumerate().skip(same + 1) {
        leaves += step.at as f64 * size(steps, step.of);
    }
    leaves
}

impl Walk {
    /// Begins at the newest state of a file, and finds a named database. Returns the number of the state, too.
    fn to(path: &Path, name: &str) -> Result<Option<(Self, Database, u64)>, Fault> {
        let mut file = File::open(path)?;
        let newest = match metas(&mut file) {
            Ok([first, second]) if first.txn < second.txn => second,
            Ok([first, _]) => first,
            Err(Fault::Damaged(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut walk = Self { file, page_size: newest.page_size() };
        let Some(database) = walk.find(&newest, name.as_bytes())? else { return Ok(None) };
        let is_readable = database.root.is_none() || (1..=HIGHEST).contains(&database.depth);
        Ok(is_readable.then_some((walk, database, newest.txn)))
    }

    /// Returns the way to a key.
    fn way(&mut self, database: &Database, key: &[u8]) -> Result<Option<Vec<Step>>, Fault> {
        let Some(mut number) = database.root else { return Ok(None) };
        let mut way = Vec::with_capacity(database.depth.into());
        for height in (1..=database.depth).rev() {
            let Some(bytes) = self.page(number)? else { return Ok(None) };
            let page = Page(&bytes);
            let expected = if height == 1 { flag::LEAF } else { flag::BRANCH };
            let Some(nodes) = page.nodes().ok().filter(|_| page.flags() == expected) else {
                return Ok(None);
            };
            let of = nodes.len();
            if height == 1 {
                let at = nodes.iter().take_while(|node| node.key < key).count();
                way.push(Step { at, of });
                continue;
            }
            // The first key of a branch represents all keys less than the second key.
            let at = nodes.iter().skip(1).take_while(|node| node.key <= key).count();
            let Some(child) = nodes.get(at) else { return Ok(None) };
            way.push(Step { at, of });
            number = child.child;
        }
        Ok(Some(way))
    }

    /// Returns the record of a named database.
    fn find(&mut self, meta: &Meta, name: &[u8]) -> Result<Option<Database>, Fault> {
        let Some(mut number) = meta.names.root else { return Ok(None) };
        for _ in 0..HIGHEST {
            let Some(bytes) = self.page(number)? else { return Ok(None) };
            let page = Page(&bytes);
            let Ok(nodes) = page.nodes() else { return Ok(None) };
            if page.flags() == flag::LEAF {
                let named = nodes.iter().find(|node| node.key == name);
                return Ok(named.and_then(|node| Database::read(node.data)));
            }
            // The first key of a branch represents all keys less than the second key.
            let after = nodes.iter().skip(1).take_while(|node| node.key <= name).count();
            let Some(child) = nodes.get(after) else { return Ok(None) };
            number = child.child;
        }
        Ok(None)
    }

    /// Returns the pages below a branch; `None` if it is not a branch.
    fn children(&mut self, branch: &Below) -> Result<Option<Vec<Below>>, Fault> {
        let Some(bytes) = self.page(branch.page)? else { return Ok(None) };
        let page = Page(&bytes);
        let Some(nodes) = page.nodes().ok().filter(|_| page.flags() == flag::BRANCH) else {
            return Ok(None);
        };
        let child = |(at, node): (usize, &super::layout::Node<'_>)| {
            let start = if at == 0 { branch.start.clone() } else { node.key.to_vec() };
            let next = nodes.get(at + 1).map(|next| next.key.to_vec());
            Below { start, end: next.or_else(|| branch.end.clone()), page: node.child }
        };
        Ok(Some(nodes.iter().enumerate().map(child).collect()))
    }

    /// Reads a page; `None` if another page is in its place, or the file ends before it.
    fn page(&mut self, number: u64) -> Result<Option<Vec<u8>>, Fault> {
        let mut page = Vec::new();
        let Some(at) = number.checked_mul(self.page_size) else { return Ok(None) };
        self.file.seek(SeekFrom::Start(at))?;
        (&mut self.file).take(self.page_size).read_to_end(&mut page)?;
        let is_whole = page.len() as u64 == self.page_size;
        Ok(Some(page).filter(|page| is_whole && Page(page).number() == number))
    }
}

/// Returns numbers that don't depend on the order of the pages.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize).checked_rem(limit).unwrap_or_default()
    }
}
