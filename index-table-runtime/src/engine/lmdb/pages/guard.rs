//! Checks of the pages on the way to a key and along the leaves, before LMDB follows them.
//!
//! LMDB trusts its pages: it can crash, or read without an end, in a damaged tree. A transaction with a [`Guard`] reads
//! each page by a call that can fail, and checks it, before LMDB reads it through its map. All pages are those of the
//! transaction's snapshot, so no writer changes them in between. A page that the disk damages after its check is not found.

use std::{
    cell::Cell, collections::BTreeMap, fs::File, io, ops::Bound, path::Path, sync::Arc,
    thread::LocalKey,
};

use super::{
    Depth, Fault,
    checked::{CheckedPage, Recent},
    layout::{self, Database, Node, Page, flag},
    metas,
    walk::{HIGHEST, PageCheck},
};
use crate::{engine::lmdb::process, model::key::MAX_KEY_LEN};

thread_local! {
    static CHECKED: Cell<bool> = const { Cell::new(false) };
    static REPAIRING: Cell<bool> = const { Cell::new(false) };
}

/// Calls `read`. The read transactions that this thread begins meanwhile check the pages of LMDB before it reads them.
pub(crate) fn checked<T>(read: impl FnOnce() -> T) -> T {
    with(&CHECKED, read)
}

/// Calls `open`. Stores that this thread opens for writing meanwhile may have tables and indexes with a damaged root, and must check
/// the pages before LMDB writes them.
pub(crate) fn repairing<T>(open: impl FnOnce() -> T) -> T {
    with(&REPAIRING, open)
}

fn with<T>(flag: &'static LocalKey<Cell<bool>>, run: impl FnOnce() -> T) -> T {
    struct Restored(&'static LocalKey<Cell<bool>>, bool);

    impl Drop for Restored {
        fn drop(&mut self) {
            self.0.set(self.1);
        }
    }

    let _restored = Restored(flag, flag.replace(true));
    run()
}

/// Whether this thread is in [`checked`].
pub(crate) fn is_checked() -> bool {
    CHECKED.get()
}

/// Whether this thread is in [`repairing`].
pub(crate) fn is_repairing() -> bool {
    REPAIRING.get()
}

/// The reason why a page can't be followed.
#[derive(Debug)]
pub(in crate::engine::lmdb) enum BadPage {
    Io(io::Error),
    Damaged { page: u64, reason: &'static str },
}

impl From<io::Error> for BadPage {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

type Result<T, E = BadPage> = std::result::Result<T, E>;

/// The trees of a snapshot, whose pages are checked when they are needed.
pub(in crate::engine::lmdb) struct Guard {
    pub(super) file: File,
    pub(super) page_size: u64,
    /// The number of pages that exist, in the state and in the file.
    pub(super) pages: u64,
    pub(super) databases: BTreeMap<String, Database>,
    recent: Recent,
}

/// The target of a way through a tree.
#[derive(Clone, Copy)]
pub(in crate::engine::lmdb) enum To<'k> {
    First,
    Last,
    Key(&'k [u8]),
}

impl<'k> To<'k> {
    fn of(bound: Bound<&'k [u8]>, unbounded: Self) -> Self {
        match bound {
            Bound::Included(key) | Bound::Excluded(key) => Self::Key(key),
            Bound::Unbounded => unbounded,
        }
    }
}

impl Guard {
    /// Opens the file at the state of the transaction `txn`, and checks the names of all databases. Returns `None` if the file
    /// no longer has the roots of this state.
    pub(in crate::engine::lmdb) fn new(path: &Path, txn: u64) -> Result<Option<Self>, Fault> {
        let mut file = File::open(path)?;
        let metas = metas(&mut file)?;
        let Some(meta) = metas.iter().find(|meta| meta.txn == txn) else { return Ok(None) };
        let names = PageCheck::new(&mut file, meta, Depth::Roots, &mut |_, _| Ok(()))?.names()?;
        let (page_size, last) = (meta.page_size(), meta.last_page);
        Self::of(file, page_size, last, names.into_iter().collect()).map(Some)
    }

    /// Opens the file at its last state. Returns the number of its transaction too.
    pub(in crate::engine::lmdb) fn last(path: &Path) -> Result<(Self, u64), Fault> {
        let mut file = File::open(path)?;
        let [first, second] = metas(&mut file)?;
        let meta = if first.txn < second.txn { second } else { first };
        let names = PageCheck::new(&mut file, &meta, Depth::Roots, &mut |_, _| Ok(()))?.names()?;
        let (page_size, last) = (meta.page_size(), meta.last_page);
        Ok((Self::of(file, page_size, last, names.into_iter().collect())?, meta.txn))
    }

    /// Opens the file with the records of the databases, which LMDB has read in the snapshot.
    pub(in crate::engine::lmdb) fn with(
        path: &Path,
        last_page: u64,
        records: impl Iterator<Item = (String, Vec<u8>)>,
    ) -> Result<Self, Fault> {
        let mut file = File::open(path)?;
        let [meta, _] = metas(&mut file)?;
        let databases = records.filter_map(|(name, record)| Some((name, Database::read(&record)?)));
        Self::of(file, meta.page_size(), last_page, databases.collect())
    }

    pub(super) fn of(
        file: File,
        page_size: u64,
        last_page: u64,
        databases: BTreeMap<String, Database>,
    ) -> Result<Self, Fault> {
        let pages = (file.metadata()?.len() / page_size.max(1)).min(last_page.saturating_add(1));
        Ok(Self { file, page_size, pages, databases, recent: Recent::default() })
    }

    /// Whether the snapshot has a database.
    pub(in crate::engine::lmdb) fn has(&self, database: &str) -> bool {
        self.databases.contains_key(database)
    }

    /// Checks the pages of a look-up.
    pub(in crate::engine::lmdb) fn point(&self, database: &str, key: &[u8]) -> Result<()> {
        self.way(database, To::Key(key), true).map(drop)
    }

    /// Returns the value of a key, without LMDB.
    pub(in crate::engine::lmdb) fn value(
        &self,
        database: &str,
        key: &[u8],
    ) -> Result<Option<Vec<u8>>> {
        let Some(way) = self.way(database, To::Key(key), true)? else { return Ok(None) };
        let leaf = way.leaf.as_deref().filter(|_| way.less < way.not_greater);
        let Some(node) = leaf.and_then(|leaf| leaf.node(way.less)) else { return Ok(None) };
        if node.flags & flag::BIG_DATA == 0 {
            return Ok(Some(node.data.to_vec()));
        }
        Ok(Some(self.long_bytes(&node)?))
    }

    /// Checks the pages that a seek to this key reads: the leaf of the key and, at its ends, the next ones.
    pub(in crate::engine::lmdb) fn around(&self, database: &str, key: &[u8]) -> Result<()> {
        let Some(way) = self.way(database, To::Key(key), false)? else { return Ok(()) };
        let (is_start, is_end) = (way.less == 0, way.not_greater == way.entries);
        if is_start {
            self.way(database, To::Key(key), false)?
                .map_or(Ok(false), |mut way| way.step(false))?;
        }
        if is_end {
            let mut way = way;
            way.step(true)?;
        }
        Ok(())
    }

    /// Checks all pages of a database.
    pub(in crate::engine::lmdb) fn whole(&self, database: &str) -> Result<()> {
        let Some(mut way) = self.way(database, To::First, false)? else { return Ok(()) };
        while way.step(true)? {}
        Ok(())
    }

    /// Returns the checks of a scan from this bound.
    pub(in crate::engine::lmdb) fn scan(
        &self,
        database: &str,
        from: Bound<&[u8]>,
        reverse: bool,
    ) -> Result<Ahead<'_>> {
        let to = To::of(from, if reverse { To::Last } else { To::First });
        let Some(way) = self.way(database, to, false)? else {
            return Ok(Ahead { way: None, left: 0, reverse });
        };
        // LMDB seeks the first key at or above the bound, also for a reverse scan.
        if reverse && way.less == way.entries && matches!(to, To::Key(_)) {
            self.way(database, to, false)?.map_or(Ok(false), |mut way| way.step(true))?;
        }
        let before = match from {
            Bound::Included(_) if reverse => way.not_greater,
            Bound::Included(_) => way.less,
            Bound::Excluded(_) if reverse => way.less,
            Bound::Excluded(_) => way.not_greater,
            Bound::Unbounded if reverse => way.entries,
            Bound::Unbounded => 0,
        };
        let left = if reverse { before } else { way.entries.saturating_sub(before) };
        Ok(Ahead { way: Some(way), left, reverse })
    }

    /// Returns the way to a leaf; `None` if the database is empty, or is not in the snapshot. For a `point`, only the value of this
    /// key is checked.
    fn way(&self, database: &str, to: To<'_>, point: bool) -> Result<Option<Way<'_>>> {
        let Some(record) = self.databases.get(database) else { return Ok(None) };
        let Some(root) = record.root else { return Ok(None) };
        if record.depth == 0 || record.depth > HIGHEST {
            return Err(BadPage::Damaged { page: root, reason: "the height of its tree can't be" });
        }
        let mut way = Way {
            guard: self,
            height: record.depth,
            branches: Vec::with_capacity(record.depth.into()),
            leaf: None,
            entries: 0,
            less: 0,
            not_greater: 0,
        };
        way.descend(Below { page: root, low: None, high: None }, to, point)?;
        Ok(Some(way))
    }

    /// Reads and checks the page in this place, unless it was checked lately.
    fn checked(&self, place: Below, is_leaf: bool) -> Result<Arc<CheckedPage>> {
        if let Some(page) = self.recent.find(&place, is_leaf) {
            return Ok(page);
        }
        let (number, bytes) = (place.page, self.page(place.page)?);
        let damaged = |reason| BadPage::Damaged { page: number, reason };
        let page = Arc::new(CheckedPage::new(place, is_leaf, bytes).map_err(damaged)?);
        self.recent.keep(&page);
        Ok(page)
    }

    pub(super) fn page(&self, number: u64) -> Result<Vec<u8>> {
        let damaged = |reason| Err(BadPage::Damaged { page: number, reason });
        if number <= 1 || number >= self.pages {
            return damaged("the file has no such page");
        }
        let mut page = vec![0; usize::try_from(self.page_size).unwrap_or_default()];
        match read_at(&self.file, number.saturating_mul(self.page_size), &mut page) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return damaged("the file ends before it");
            }
            read => read?,
        }
        if Page(&page).number() == number {
            return Ok(page);
        }
        damaged("it is not the page that should be in its place")
    }

    /// Checks the first page of a long value. Returns the number of its pages.
    pub(super) fn long_value(&self, node: &Node<'_>) -> Result<u64> {
        let first = layout::word(node.data, 0).unwrap_or_default();
        let head = self.page(first)?;
        let (page, pages) = (Page(&head), layout::overflow_pages(node.len, self.page_size));
        let end = first.saturating_add(page.overflows());
        if page.flags() != flag::OVERFLOW || page.overflows() < pages || end > self.pages {
            let reason = "it is not the first page of a long value";
            return Err(BadPage::Damaged { page: first, reason });
        }
        Ok(page.overflows())
    }

    /// Returns a long value whose first page is checked. Its length is not greater than the length of the file.
    pub(super) fn long_bytes(&self, node: &Node<'_>) -> io::Result<Vec<u8>> {
        let first = layout::word(node.data, 0).unwrap_or_default();
        let mut value = vec![0; usize::try_from(node.len).unwrap_or_default()];
        let at = first.saturating_mul(self.page_size) + layout::HEADER as u64;
        read_at(&self.file, at, &mut value)?;
        Ok(value)
    }
}

/// Returns the reason for a lost page if reading it has failed because the disk does not have it.
pub(super) fn lost_by_disk(error: &io::Error) -> Option<&'static str> {
    if error.kind() == io::ErrorKind::UnexpectedEof {
        return Some("the file ends before it");
    }
    process::is_eio(error).then_some("the disk can't read it")
}

#[cfg(unix)]
pub(in crate::engine::lmdb) fn read_at(
    file: &File,
    offset: u64,
    into: &mut [u8],
) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, into, offset)
}

/// Moves the position of the file, which no other thread uses.
#[cfg(not(unix))]
pub(in crate::engine::lmdb) fn read_at(
    mut file: &File,
    offset: u64,
    into: &mut [u8],
) -> io::Result<()> {
    use std::io::{Read as _, Seek as _};

    file.seek(io::SeekFrom::Start(offset))?;
    file.read_exact(into)
}

/// A page, and the bounds of the keys below it: from `low`, and less than `high`.
#[derive(PartialEq, Eq)]
pub(super) struct Below {
    pub(super) page: u64,
    pub(super) low: Option<Vec<u8>>,
    pub(super) high: Option<Vec<u8>>,
}

/// A branch on a way, and the position of the child that the way goes to.
struct Branch {
    page: Arc<CheckedPage>,
    at: usize,
}

/// The checked pages from the root to a leaf.
struct Way<'g> {
    guard: &'g Guard,
    height: u16,
    branches: Vec<Branch>,
    leaf: Option<Arc<CheckedPage>>,
    /// The number of entries in the leaf; of those less than the key, and of those not greater.
    entries: usize,
    less: usize,
    not_greater: usize,
}

impl Way<'_> {
    fn descend(&mut self, from: Below, to: To<'_>, point: bool) -> Result<()> {
        let mut below = from;
        loop {
            let number = below.page;
            let is_leaf = self.branches.len() + 1 >= usize::from(self.height);
            let page = self.guard.checked(below, is_leaf)?;
            if is_leaf {
                self.arrive(&page, to, point)?;
                self.leaf = Some(page);
                return Ok(());
            }
            let at = match to {
                To::First => 0,
                To::Last => page.len().saturating_sub(1),
                To::Key(key) => page.not_greater(key).saturating_sub(1),
            };
            let none = BadPage::Damaged { page: number, reason: "it has no keys" };
            below = page.child(at).ok_or(none)?;
            self.branches.push(Branch { page, at });
        }
    }

    fn arrive(&mut self, leaf: &CheckedPage, to: To<'_>, point: bool) -> Result<()> {
        self.entries = leaf.len();
        (self.less, self.not_greater) = match to {
            To::First => (0, 0),
            To::Last => (leaf.len(), leaf.len()),
            To::Key(key) => (leaf.less(key), leaf.not_greater(key)),
        };
        let read = if point { self.less..self.not_greater } else { 0..leaf.len() };
        leaf.check_values(read, |node| self.guard.long_value(node).map(drop))
    }

    /// Continues to the next or previous leaf. Returns false at the end.
    fn step(&mut self, forward: bool) -> Result<bool> {
        while let Some(branch) = self.branches.last_mut() {
            let next = if forward { branch.at.checked_add(1) } else { branch.at.checked_sub(1) };
            branch.at = next.unwrap_or(branch.at);
            match next.and_then(|next| branch.page.child(next)) {
                Some(below) => {
                    let to = if forward { To::First } else { To::Last };
                    return self.descend(below, to, false).map(|()| true);
                }
                None => drop(self.branches.pop()),
            }
        }
        Ok(false)
    }
}

/// Returns the nodes of a page, if it is intact and its keys are between the bounds. The entries of a leaf have no other flags than
/// `known`.
pub(super) fn checked_nodes<'p>(
    bytes: &'p [u8],
    is_leaf: bool,
    (low, high): (Option<&[u8]>, Option<&[u8]>),
    known: u16,
) -> Result<Vec<Node<'p>>, &'static str> {
    let page = Page(bytes);
    if page.flags() != if is_leaf { flag::LEAF } else { flag::BRANCH } {
        return Err("it has another kind than the page that refers to it requires");
    }
    let nodes = page.nodes()?;
    // The first key of a branch represents all keys less than the second key.
    let keys = if is_leaf { &nodes[..] } else { nodes.get(1..).unwrap_or_default() };
    if keys.is_empty() {
        return Err("it has no keys");
    }
    let mut before = low;
    for (at, node) in keys.iter().enumerate() {
        if node.key.is_empty() || node.key.len() > MAX_KEY_LEN {
            return Err("a key is empty or too long");
        }
        // An equal key is usually the lower bound itself.
        let may_be_equal = at == 0 && is_leaf;
        let ascends =
            before.is_none_or(|before| before < node.key || may_be_equal && before == node.key);
        if !ascends || high.is_some_and(|high| node.key >= high) {
            return Err("its keys are not in order");
        }
        if is_leaf && node.flags & !known != 0 {
            return Err("an entry has flags that can't be");
        }
        before = Some(node.key);
    }
    Ok(nodes)
}

/// The checks of a scan, each before LMDB's next step.
pub(in crate::engine::lmdb) struct Ahead<'g> {
    way: Option<Way<'g>>,
    /// The number of entries in the checked leaf that LMDB has not returned.
    left: usize,
    reverse: bool,
}

impl Ahead<'_> {
    /// Checks the page that LMDB's next step reads.
    pub(in crate::engine::lmdb) fn step(&mut self) -> Result<()> {
        let Some(way) = &mut self.way else { return Ok(()) };
        if self.left == 0 {
            if !way.step(!self.reverse)? {
                self.way = None;
                return Ok(());
            }
            self.left = way.entries;
        }
        self.left -= 1;
        Ok(())
    }
}
