//! The layout of LMDB's file: pages, and their contents.
//!
//! Numbers have the byte order of the machine, as LMDB writes them. A word has the size of an address.

const WORD: usize = size_of::<usize>();

/// The header of a page: its number, two bytes that are not used here, its flags, and either the bounds of
/// its free space or the number of pages of an overflow.
pub(super) const HEADER: usize = WORD + 8;

/// The header of a node: two halves of a size, flags, and the length of its key.
const NODE: usize = 8;

/// The bytes that describe a database.
const DATABASE: usize = 8 + 5 * WORD;

/// The used bytes of a meta page.
pub(super) const META: usize = HEADER + 8 + 2 * WORD + 2 * DATABASE + 2 * WORD;

const MAGIC: u32 = 0xBEEF_C0DE;
const VERSION: u32 = 1;

/// The root of an empty database.
const NOWHERE: u64 = usize::MAX as u64;

pub(super) mod flag {
    pub(in super::super) const BRANCH: u16 = 1;
    pub(in super::super) const LEAF: u16 = 2;
    pub(in super::super) const OVERFLOW: u16 = 4;
    pub(in super::super) const META: u16 = 8;

    /// The data of a node is on separate pages.
    pub(in super::super) const BIG_DATA: u16 = 1;
    /// The data of a node describes a database.
    pub(in super::super) const SUB_DATA: u16 = 2;
    /// A key of a node has several values.
    pub(in super::super) const DUP_DATA: u16 = 4;

    /// The keys of a database are compared from the end to the start.
    pub(in super::super) const REVERSE_KEY: u16 = 2;
    /// The keys of a database have several values.
    pub(in super::super) const DUP_SORT: u16 = 4;
    /// The keys of a database are words.
    pub(in super::super) const INTEGER_KEY: u16 = 8;
}

fn bytes<const N: usize>(from: &[u8], at: usize) -> Option<[u8; N]> {
    from.get(at..)?.first_chunk().copied()
}

fn short(from: &[u8], at: usize) -> Option<u16> {
    bytes(from, at).map(u16::from_ne_bytes)
}

fn long(from: &[u8], at: usize) -> Option<u32> {
    bytes(from, at).map(u32::from_ne_bytes)
}

pub(super) fn word(from: &[u8], at: usize) -> Option<u64> {
    bytes::<WORD>(from, at).map(|word| usize::from_ne_bytes(word) as u64)
}

/// Returns the words of a list of page numbers: their count, and the numbers.
pub(super) fn words(from: &[u8]) -> impl Iterator<Item = u64> {
    from.as_chunks::<WORD>().0.iter().map(|word| usize::from_ne_bytes(*word) as u64)
}

/// The record of a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::engine::lmdb) struct Database {
    /// The page size, in the record of the free pages.
    pub(in crate::engine::lmdb) pad: u32,
    pub(in crate::engine::lmdb) flags: u16,
    pub(in crate::engine::lmdb) depth: u16,
    pub(in crate::engine::lmdb) branches: u64,
    pub(in crate::engine::lmdb) leaves: u64,
    pub(in crate::engine::lmdb) overflows: u64,
    pub(in crate::engine::lmdb) entries: u64,
    /// The root page; `None` if the database is empty.
    pub(in crate::engine::lmdb) root: Option<u64>,
}

impl Database {
    pub(super) fn read(from: &[u8]) -> Option<Self> {
        Some(Self {
            pad: long(from, 0)?,
            flags: short(from, 4)?,
            depth: short(from, 6)?,
            branches: word(from, 8)?,
            leaves: word(from, 8 + WORD)?,
            overflows: word(from, 8 + 2 * WORD)?,
            entries: word(from, 8 + 3 * WORD)?,
            root: Some(word(from, 8 + 4 * WORD)?).filter(|root| *root != NOWHERE),
        })
    }
}

/// Returns the record of a database without its tree: only its flags are left.
pub(in crate::engine::lmdb) fn without_tree(record: &[u8]) -> Vec<u8> {
    let mut empty = vec![0; DATABASE];
    if let (Some(own), Some(flags)) = (empty.get_mut(4..6), record.get(4..6)) {
        own.copy_from_slice(flags);
    }
    if let Some(root) = empty.last_chunk_mut::<WORD>() {
        *root = usize::MAX.to_ne_bytes();
    }
    empty
}

/// Returns an error that names both machines, if the meta page has another byte order or word size than this one.
#[cold]
fn of_another_machine(page: &[u8]) -> Option<String> {
    let found = |word: usize, is_big: bool| {
        let order = |mut number: u32| {
            if is_big != cfg!(target_endian = "big") {
                number = number.swap_bytes();
            }
            number
        };
        // The flags are the second half of four bytes, whose first half is not used.
        let flags = bytes::<2>(page, word + 2)?;
        let flags = if is_big { u16::from_be_bytes(flags) } else { u16::from_le_bytes(flags) };
        (flags == flag::META && long(page, word + 8).map(order) == Some(MAGIC)).then_some(())
    };
    let machine = |word: usize, is_big: bool| {
        let order = if is_big { "big-endian" } else { "little-endian" };
        format!("{}-bit addresses and {order} numbers", 8 * word)
    };
    let (word, is_big) = [(4, false), (4, true), (8, false), (8, true)]
        .into_iter()
        .find(|(word, is_big)| found(*word, *is_big).is_some())?;
    Some(format!(
        "a machine with {} has written data.mdb, and this machine has {}; copy the store with `mdb_dump -a` there and \
         `mdb_load` here",
        machine(word, is_big),
        machine(WORD, cfg!(target_endian = "big")),
    ))
}

/// One of the first two pages: the state of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::engine::lmdb) struct Meta {
    /// The number in the header of the page.
    pub(in crate::engine::lmdb) page: u64,
    pub(in crate::engine::lmdb) map_size: u64,
    pub(in crate::engine::lmdb) free: Database,
    pub(in crate::engine::lmdb) names: Database,
    pub(in crate::engine::lmdb) last_page: u64,
    pub(in crate::engine::lmdb) txn: u64,
}

impl Meta {
    /// # Errors
    ///
    /// The damage.
    pub(in crate::engine::lmdb) fn read(page: &[u8]) -> Result<Self, String> {
        let is_meta = short(page, WORD + 2) == Some(flag::META);
        if !is_meta || long(page, HEADER) != Some(MAGIC) {
            return Err(of_another_machine(page).unwrap_or_else(|| {
                "data.mdb is not an LMDB file, or its first bytes are damaged".to_owned()
            }));
        }
        match long(page, HEADER + 4) {
            Some(VERSION) => {}
            version => {
                let version = version.unwrap_or_default();
                return Err(format!("data.mdb has LMDB's format {version}, and not {VERSION}"));
            }
        }
        let databases = HEADER + 8 + 2 * WORD;
        let after = databases + 2 * DATABASE;
        let meta = || {
            Some(Self {
                page: word(page, 0)?,
                map_size: word(page, databases - WORD)?,
                free: Database::read(page.get(databases..)?)?,
                names: Database::read(page.get(databases + DATABASE..)?)?,
                last_page: word(page, after)?,
                txn: word(page, after + WORD)?,
            })
        };
        meta().ok_or_else(|| "data.mdb ends in its first pages".to_owned())
    }

    /// Gives the state in these bytes another page and another number of its transaction.
    pub(super) fn renumber(bytes: &mut [u8; META], page: u64, txn: u64) {
        // The number of the transaction is the last word.
        for (at, number) in [(0, page), (META - WORD, txn)] {
            // The caller has checked that the number is a word.
            let word = usize::try_from(number).unwrap_or(usize::MAX).to_ne_bytes();
            if let Some(bytes) = bytes.get_mut(at..at + WORD) {
                bytes.copy_from_slice(&word);
            }
        }
    }

    /// Whether this is the state of a new file.
    pub(super) const fn is_new(&self) -> bool {
        self.txn == 0
            && self.last_page == 1
            && self.free.root.is_none()
            && self.names.root.is_none()
    }

    pub(in crate::engine::lmdb) const fn page_size(&self) -> u64 {
        self.free.pad as u64
    }
}

/// A page of a tree, or the first page of an overflow.
#[derive(Clone, Copy)]
pub(super) struct Page<'p>(pub(super) &'p [u8]);

impl<'p> Page<'p> {
    pub(super) fn number(self) -> u64 {
        word(self.0, 0).unwrap_or_default()
    }

    pub(super) fn flags(self) -> u16 {
        short(self.0, WORD + 2).unwrap_or_default()
    }

    /// Returns the number of pages of an overflow.
    pub(super) fn overflows(self) -> u64 {
        long(self.0, WORD + 4).unwrap_or_default().into()
    }

    /// Returns the nodes, in order.
    ///
    /// # Errors
    ///
    /// The damage of the page, if the positions of its nodes are invalid.
    pub(super) fn nodes(self) -> Result<Vec<Node<'p>>, &'static str> {
        const BOUNDS: &str = "the bounds of its free space are invalid";
        let bound = |at| short(self.0, WORD + at).map(usize::from).ok_or(BOUNDS);
        let (lower, upper) = (bound(4)?, bound(6)?);
        if lower < HEADER || lower > upper || upper > self.0.len() || !lower.is_multiple_of(2) {
            return Err(BOUNDS);
        }
        let is_branch = self.flags() == flag::BRANCH;
        let places = self.0.get(HEADER..lower).unwrap_or_default().as_chunks::<2>().0;
        let mut nodes = Vec::with_capacity(places.len());
        let mut taken = 0;
        for place in places {
            let at = usize::from(u16::from_ne_bytes(*place));
            let node = self.0.get(at..).filter(|_| at >= upper && at.is_multiple_of(2));
            let node = node.and_then(|bytes| Node::read(bytes, is_branch));
            let node = node.ok_or("a node reaches out of the page")?;
            taken += node.size.next_multiple_of(2);
            nodes.push(node);
        }
        // An intact page has no gaps between its nodes. An overlap leaves a gap.
        if taken == self.0.len() - upper { Ok(nodes) } else { Err("its nodes overlap") }
    }

    /// Returns the node with this position in a page whose nodes are intact; `None` after the last one.
    pub(super) fn node(self, at: usize) -> Option<Node<'p>> {
        let lower = short(self.0, WORD + 4).map(usize::from)?;
        let places = self.0.get(HEADER..lower)?.as_chunks::<2>().0;
        let place = usize::from(u16::from_ne_bytes(*places.get(at)?));
        Node::read(self.0.get(place..)?, self.flags() == flag::BRANCH)
    }
}

/// A key in a page of a tree, with the number of a page, or data.
pub(super) struct Node<'p> {
    pub(super) key: &'p [u8],
    /// In a branch, the number of the child page.
    pub(super) child: u64,
    /// In a leaf, the flags of the node.
    pub(super) flags: u16,
    /// In a leaf, the data, or the number of its first page.
    pub(super) data: &'p [u8],
    /// The length of the data, in the leaf or on separate pages.
    pub(super) len: u64,
    size: usize,
}

impl<'p> Node<'p> {
    fn read(from: &'p [u8], is_branch: bool) -> Option<Self> {
        let (first, second) = (u64::from(short(from, 0)?), u64::from(short(from, 2)?));
        let (low, high) =
            if cfg!(target_endian = "big") { (second, first) } else { (first, second) };
        let (len, flags) = (low | high << 16, short(from, 4)?);
        let key = from.get(NODE..)?.get(..usize::from(short(from, 6)?))?;
        // The field of the flags has the third part of a page's number.
        let top = if WORD == 8 { u64::from(flags) << 32 } else { 0 };
        let data = from.get(NODE + key.len()..)?;
        let data = match flags & flag::BIG_DATA {
            _ if is_branch => &[],
            0 => data.get(..usize::try_from(len).ok()?)?,
            _ => data.get(..WORD)?,
        };
        let size = NODE + key.len() + data.len();
        Some(Self { key, child: len | top, flags, data, len, size })
    }
}

/// Returns the number of pages of a value of this length.
pub(super) const fn overflow_pages(len: u64, page_size: u64) -> u64 {
    (HEADER as u64 + len).div_ceil(page_size)
}
