//! The walk from the roots down. It checks that each page has the right number and valid contents, and is
//! used once.

use std::{
    cmp::Ordering,
    fs::File,
    io::{self, Read as _, Seek as _, SeekFrom},
    mem,
};

use super::{
    Depth, Fault,
    layout::{self, Database, Meta, Node, Page, flag},
};
use crate::{
    engine::lmdb::names::{CATALOG, LIST_COPIES},
    model::{key::MAX_KEY_LEN, schema::QUEUE},
};

type Result<T, E = Fault> = std::result::Result<T, E>;

/// LMDB's limit for the height of a tree.
pub(super) const HIGHEST: u16 = 32;

pub(super) struct PageCheck<'f> {
    file: &'f mut File,
    meta: &'f Meta,
    depth: Depth,
    page_size: u64,
    /// The number of pages in the file.
    pages: u64,
    used: Bitmap,
    /// Whether long values of the catalog can be damaged, as when a file is opened.
    opens: bool,
    /// The pages of the database that is walked through, if they may have to be removed from `used`.
    own: Option<Vec<u64>>,
    /// The transaction of the last list of free pages.
    last_list: Option<u64>,
    /// The named databases.
    found: Vec<(String, Database)>,
    /// Is called with the number of marked pages and the number of all pages.
    progress: &'f mut dyn FnMut(u64, u64) -> io::Result<()>,
    marked: u64,
}

/// The first damage of a database.
#[derive(Debug)]
pub(in crate::engine::lmdb) struct Damage {
    /// The name of the database, or [`FREE_PAGES`].
    pub(in crate::engine::lmdb) database: String,
    pub(in crate::engine::lmdb) reason: String,
}

/// The name of the lists of free pages, which no database has.
pub(in crate::engine::lmdb) const FREE_PAGES: &str = ".";

/// The number of pages between two calls of the progress.
const INTERVAL: u64 = 1024;

/// The tree of the walk.
struct Tree<'n> {
    name: &'n str,
    of: Of,
    flags: u16,
    counted: Counted,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Of {
    FreePages,
    Names,
    Entries,
}

#[derive(Debug, Default, PartialEq)]
struct Counted {
    branches: u64,
    leaves: u64,
    overflows: u64,
    entries: u64,
}

impl<'f> PageCheck<'f> {
    pub(super) fn new(
        file: &'f mut File,
        meta: &'f Meta,
        depth: Depth,
        progress: &'f mut dyn FnMut(u64, u64) -> io::Result<()>,
    ) -> Result<Self> {
        let page_size = meta.page_size();
        let length = file.metadata()?.len();
        let pages = length / page_size;
        // Each missing page takes a word in the list of free pages, which must fit into the file.
        if meta.last_page >= pages + length / size_of::<usize>() as u64 {
            return Err(ends_early(length, (meta.last_page + 1) * page_size));
        }
        let used = Bitmap::new(meta.last_page + 1);
        Ok(Self {
            file,
            meta,
            depth,
            page_size,
            pages,
            used,
            opens: false,
            own: None,
            last_list: None,
            found: Vec::new(),
            progress,
            marked: 0,
        })
    }

    /// Checks the databases, and returns the first damage of each.
    pub(super) fn run(mut self) -> Result<Vec<Damage>> {
        let meta = self.meta;
        let mut damages = Vec::new();
        // A page that a transaction has allocated and freed was never written, so the file may end before it.
        // Then, the list of free pages must contain all missing pages.
        let is_short = self.pages <= meta.last_page;
        let everything = self.depth == Depth::Everything;
        self.opens = !everything;
        let free =
            self.database("of free pages", Of::FreePages, &meta.free, everything || is_short);
        let free = damage(free)?;
        let is_known = free.is_none();
        if let Some(reason) = free {
            self.used = Bitmap::new(meta.last_page + 1);
            damages.push(Damage { database: FREE_PAGES.to_owned(), reason });
        }
        if is_short
            && let Some(page) =
                (self.pages.max(2)..=meta.last_page).find(|page| !self.used.has(*page))
        {
            return Err(ends_early(self.pages * self.page_size, (page + 1) * self.page_size));
        }
        // Each commit except the first commit replaces pages, and lists the replaced pages.
        let has_lists = meta.txn > 1 || self.last_list.is_some();
        if everything && is_known && has_lists && self.last_list != Some(meta.txn) {
            let (page, txn) = (meta.page, meta.txn);
            let reason = format!("page {page} has the state of another transaction than {txn}");
            return Err(reason.into());
        }
        self.database("of names", Of::Names, &meta.names, true)?;
        let found = mem::take(&mut self.found);
        // They are the last, so that a page of another database in their tree is damage of theirs.
        let (copies, others): (Vec<_>, Vec<_>) =
            found.into_iter().partition(|(name, _)| name == LIST_COPIES);
        for (name, database) in others {
            // The small databases of all tables are read whenever a table is opened or written.
            let is_small = name.starts_with('.') && !name.starts_with(QUEUE);
            let walked = self.alone(&name, &database, everything || is_small)?;
            damages.extend(walked.map(|reason| Damage { database: name, reason }));
        }
        if let Some((name, database)) = copies.first() {
            let walked = damage(self.named(name, database, true))?;
            damages.extend(walked.map(|reason| Damage { database: name.clone(), reason }));
        }
        Ok(damages)
    }

    /// Checks the lists of free pages.
    pub(super) fn free_lists(mut self) -> Result<()> {
        let meta = self.meta;
        self.database("of free pages", Of::FreePages, &meta.free, true)
    }

    /// Checks the lists of free pages, and returns these pages.
    pub(super) fn all_free_pages(mut self) -> Result<Bitmap> {
        let meta = self.meta;
        self.database("of free pages", Of::FreePages, &meta.free, true)?;
        Ok(self.used)
    }

    /// Checks the names of the databases, and returns them.
    pub(super) fn names(mut self) -> Result<Vec<(String, Database)>> {
        let meta = self.meta;
        self.database("of names", Of::Names, &meta.names, true)?;
        Ok(self.found)
    }

    /// Checks each page of one database, and unless they are only `read`, that none of them is free or the root of another database.
    /// Returns its damage.
    pub(super) fn run_in(mut self, only: &str, read: bool) -> Result<Option<String>> {
        let meta = self.meta;
        if !read {
            self.database("of free pages", Of::FreePages, &meta.free, true)?;
        }
        self.database("of names", Of::Names, &meta.names, true)?;
        let found = mem::take(&mut self.found);
        let (only, others): (Vec<_>, Vec<_>) =
            found.into_iter().partition(|(name, _)| name == only);
        for (name, database) in others.iter().filter(|_| !read) {
            // It is not the damage of this database.
            let _ = self.alone(name, database, false)?;
        }
        let Some((name, database)) = only.first() else { return Ok(None) };
        damage(self.named(name, database, true))
    }

    /// Walks through a named database, and returns its damage. The pages of a damaged one are not in use: those to which a damaged page
    /// refers may be those of another database.
    fn alone(&mut self, name: &str, database: &Database, whole: bool) -> Result<Option<String>> {
        // A list of all pages could take more memory than the set of the pages in use.
        let before = (self.depth == Depth::Everything).then(|| self.used.clone());
        self.own = before.is_none().then(Vec::new);
        let walked = damage(self.named(name, database, whole))?;
        let own = self.own.take();
        if walked.is_some() {
            match before {
                Some(before) => self.used = before,
                None => own.iter().flatten().for_each(|page| self.used.remove(*page)),
            }
        }
        Ok(walked)
    }

    fn named(&mut self, name: &str, database: &Database, whole: bool) -> Result<()> {
        self.database(&format!("`{name}`"), Of::Entries, database, whole)
    }

    /// Walks through a database, or checks its root only.
    fn database(&mut self, name: &str, of: Of, database: &Database, whole: bool) -> Result<()> {
        let mut tree = Tree { name, of, flags: database.flags, counted: Counted::default() };
        let Some(root) = database.root else {
            return if database.depth == 0 { Ok(()) } else { Err(tree.damaged("it has no root")) };
        };
        if database.depth == 0 || database.depth > HIGHEST {
            return Err(tree.damaged("its height can't be"));
        }
        if !whole {
            return self.page(&tree, root, database.depth).and_then(|page| {
                let nodes = Page(&page).nodes();
                nodes.map(drop).map_err(|reason| tree.page_damaged(root, reason))
            });
        }
        self.branch(&mut tree, root, database.depth, None, None)?;
        let Database { branches, leaves, overflows, entries, .. } = *database;
        let counted = Counted { branches, leaves, overflows, entries };
        // If a key has several values, most of them are on pages that are not checked. A wrong count is
        // harmless when a store is opened.
        let has_counts = self.depth == Depth::Everything && database.flags & flag::DUP_SORT == 0;
        if has_counts && tree.counted != counted {
            return Err(tree.damaged("its number of pages or entries differs from its record"));
        }
        Ok(())
    }

    /// Walks through the pages below a page, and checks that all keys are in the range from `low` (inclusive)
    /// to `high` (exclusive).
    fn branch(
        &mut self,
        tree: &mut Tree<'_>,
        number: u64,
        height: u16,
        low: Option<&[u8]>,
        high: Option<&[u8]>,
    ) -> Result<()> {
        let bytes = self.page(tree, number, height)?;
        let nodes = Page(&bytes).nodes().map_err(|reason| tree.page_damaged(number, reason))?;
        let is_leaf = height == 1;
        // The first key of a branch represents all keys less than the second key.
        let keys = if is_leaf { &nodes[..] } else { nodes.get(1..).unwrap_or_default() };
        // LMDB leaves a branch with one child only in the list of free pages.
        if nodes.is_empty() || keys.is_empty() && tree.of != Of::FreePages {
            return Err(tree.page_damaged(number, "it has no keys"));
        }
        let mut before = low;
        for (at, node) in keys.iter().enumerate() {
            if node.key.is_empty() || node.key.len() > MAX_KEY_LEN {
                return Err(tree.page_damaged(number, "a key is empty or too long"));
            }
            // An equal key is usually the lower bound itself.
            let equal = at == 0 && is_leaf;
            let ascends = before.is_none_or(|before| match tree.compare(before, node.key) {
                Some(Ordering::Less) | None => true,
                Some(Ordering::Equal) => equal,
                Some(Ordering::Greater) => false,
            });
            let ends =
                high.is_none_or(|high| tree.compare(node.key, high).is_none_or(Ordering::is_lt));
            if !ascends || !ends {
                return Err(tree.page_damaged(number, "its keys are not in order"));
            }
            before = Some(node.key);
        }
        if is_leaf {
            tree.counted.leaves += 1;
            return nodes.iter().try_for_each(|node| self.leaf(tree, number, node));
        }
        tree.counted.branches += 1;
        for (at, node) in nodes.iter().enumerate() {
            let low = if at == 0 { low } else { Some(node.key) };
            let high = nodes.get(at + 1).map_or(high, |next| Some(next.key));
            self.branch(tree, node.child, height - 1, low, high)?;
        }
        Ok(())
    }

    /// Whether a file is opened, which can do without this long value: the long records of the catalog are lists, which have second
    /// copies. LMDB can read any pages that the file has. It must not replace the value, so this holds for no other check.
    fn has_copy(&self, tree: &Tree<'_>, first: u64, len: u64) -> bool {
        let end = first.saturating_add(layout::overflow_pages(len, self.page_size));
        let is_there = first > 1 && end <= self.pages;
        self.opens && tree.name == format!("`{CATALOG}`") && is_there
    }

    fn leaf(&mut self, tree: &mut Tree<'_>, number: u64, node: &Node<'_>) -> Result<()> {
        tree.counted.entries += 1;
        let big = if node.flags & flag::BIG_DATA == 0 {
            None
        } else {
            let first = layout::word(node.data, 0).unwrap_or_default();
            let pages = match self.overflow(tree, first, node.len) {
                Err(Fault::Damaged(_)) if self.has_copy(tree, first, node.len) => {
                    layout::overflow_pages(node.len, self.page_size)
                }
                pages => pages?,
            };
            tree.counted.overflows += pages;
            Some(first)
        };
        match tree.of {
            Of::FreePages => {
                let key = layout::word(node.key, 0);
                if key.is_none_or(|txn| txn == 0 || txn > self.meta.txn) {
                    return Err(tree.page_damaged(number, "a list has no transaction"));
                }
                self.last_list = key;
                match big {
                    Some(first) => {
                        let data = self.big_data(tree, first, node.len)?;
                        self.free_pages(tree, number, &data)
                    }
                    None => self.free_pages(tree, number, node.data),
                }
            }
            Of::Names if node.flags == flag::SUB_DATA => {
                let database = Database::read(node.data);
                let database = database
                    .ok_or_else(|| tree.page_damaged(number, "a database has no description"))?;
                let name = String::from_utf8_lossy(node.key).into_owned();
                self.found.push((name, database));
                Ok(())
            }
            Of::Names | Of::Entries => {
                let known = flag::BIG_DATA
                    | if tree.flags & flag::DUP_SORT == 0 {
                        0
                    } else {
                        flag::SUB_DATA | flag::DUP_DATA
                    };
                if node.flags & !known == 0 {
                    return Ok(());
                }
                Err(tree.page_damaged(number, "an entry has flags that can't be"))
            }
        }
    }

    /// Checks the count in a list of free pages, and marks each page of the list.
    fn free_pages(&mut self, tree: &Tree<'_>, number: u64, data: &[u8]) -> Result<()> {
        let mut words = layout::words(data);
        let count = words.next().unwrap_or(u64::MAX);
        let mut listed = 0;
        for page in words.take(usize::try_from(count).unwrap_or(usize::MAX)) {
            listed += 1;
            self.mark(tree, page)?;
        }
        if listed == count { Ok(()) } else { Err(tree.page_damaged(number, "a list is too short")) }
    }

    /// Checks the first page of data on separate pages. Returns the number of these pages.
    fn overflow(&mut self, tree: &Tree<'_>, first: u64, len: u64) -> Result<u64> {
        let head = self.read(tree, first)?;
        let (page, pages) = (Page(&head), layout::overflow_pages(len, self.page_size));
        if page.flags() != flag::OVERFLOW || page.overflows() < pages {
            return Err(tree.page_damaged(first, "it is not the first page of a long value"));
        }
        let pages = page.overflows();
        for page in first..first.saturating_add(pages) {
            self.mark(tree, page)?;
            if page >= self.pages {
                return Err(tree.page_damaged(page, "the file ends before it"));
            }
        }
        Ok(pages)
    }

    /// Reads data on separate pages, which [`overflow`](Self::overflow) has checked.
    fn big_data(&mut self, tree: &Tree<'_>, first: u64, len: u64) -> Result<Vec<u8>> {
        // The length is not greater than the length of the file.
        let mut data = vec![0; usize::try_from(len).unwrap_or_default()];
        self.fill(tree, first, layout::HEADER as u64, &mut data)?;
        Ok(data)
    }

    /// Reads a page of a tree.
    fn page(&mut self, tree: &Tree<'_>, number: u64, height: u16) -> Result<Vec<u8>> {
        self.mark(tree, number)?;
        let page = self.read(tree, number)?;
        let expected = if height == 1 { flag::LEAF } else { flag::BRANCH };
        if Page(&page).flags() == expected {
            return Ok(page);
        }
        Err(tree.page_damaged(
            number,
            "it has another kind than the page that refers to it \
                                       requires",
        ))
    }

    fn read(&mut self, tree: &Tree<'_>, number: u64) -> Result<Vec<u8>> {
        if number >= self.pages {
            return Err(tree.page_damaged(number, "the file ends before it"));
        }
        let mut page = vec![0; self.page_size as usize];
        self.fill(tree, number, 0, &mut page)?;
        if Page(&page).number() == number {
            return Ok(page);
        }
        Err(tree.page_damaged(number, "it is not the page that should be in its place"))
    }

    /// Reads bytes from an offset in a page. The file can be cut during the check.
    fn fill(&mut self, tree: &Tree<'_>, page: u64, offset: u64, into: &mut [u8]) -> Result<()> {
        self.file.seek(SeekFrom::Start(page * self.page_size + offset))?;
        self.file.read_exact(into).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => tree.page_damaged(page, "the file ends before it"),
            _ => error.into(),
        })
    }

    fn mark(&mut self, tree: &Tree<'_>, number: u64) -> Result<()> {
        if number <= 1 || number > self.meta.last_page {
            return Err(tree.page_damaged(number, "there is no such page"));
        }
        if self.used.add(number) {
            self.marked += 1;
            if let Some(own) = &mut self.own {
                own.push(number);
            }
            if self.marked.is_multiple_of(INTERVAL) {
                (self.progress)(self.marked, self.meta.last_page)?;
            }
            Ok(())
        } else {
            Err(tree.page_damaged(number, "it is used twice"))
        }
    }
}

/// Returns the damage that a walk has found.
fn damage(walk: Result<()>) -> Result<Option<String>> {
    match walk {
        Ok(()) => Ok(None),
        Err(Fault::Damaged(reason)) => Ok(Some(reason)),
        Err(error) => Err(error),
    }
}

impl Tree<'_> {
    /// Compares two keys; `None` if the order of the database is unknown.
    fn compare(&self, a: &[u8], b: &[u8]) -> Option<Ordering> {
        if self.flags & flag::REVERSE_KEY != 0 {
            return None;
        }
        if self.of == Of::FreePages || self.flags & flag::INTEGER_KEY != 0 {
            return layout::word(a, 0).zip(layout::word(b, 0)).map(|(a, b)| a.cmp(&b));
        }
        Some(a.cmp(b))
    }

    #[cold]
    fn damaged(&self, reason: &str) -> Fault {
        Fault::Damaged(format!("database {}: {reason}", self.name))
    }

    #[cold]
    fn page_damaged(&self, page: u64, reason: &str) -> Fault {
        Fault::Damaged(format!("database {}, page {page}: {reason}", self.name))
    }
}

#[cold]
fn ends_early(length: u64, used: u64) -> Fault {
    Fault::Damaged(format!("data.mdb has {length} bytes, and {used} are in use"))
}

/// A set of pages.
#[derive(Clone)]
pub(super) struct Bitmap(Vec<u64>);

impl Bitmap {
    pub(super) fn new(pages: u64) -> Self {
        Self(vec![0; usize::try_from(pages / 64 + 1).unwrap_or_default()])
    }

    pub(super) fn has(&self, page: u64) -> bool {
        let word = usize::try_from(page / 64).ok().and_then(|at| self.0.get(at));
        word.is_some_and(|word| word & 1 << (page % 64) != 0)
    }

    /// Adds a page. Returns false if the page is already in the set.
    pub(super) fn add(&mut self, page: u64) -> bool {
        let word = usize::try_from(page / 64).ok().and_then(|at| self.0.get_mut(at));
        let Some(word) = word else { return false };
        let bit = 1 << (page % 64);
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }

    fn remove(&mut self, page: u64) {
        if let Some(word) = usize::try_from(page / 64).ok().and_then(|at| self.0.get_mut(at)) {
            *word &= !(1 << (page % 64));
        }
    }
}
