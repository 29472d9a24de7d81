//! The bytes of the pages in use, without the free pages.

use std::io;

use super::layout::{Database, Meta, Page, flag};

/// The maximum number of pages of the tree of names that are read.
const MOST: usize = 1 << 12;

/// Returns the bytes of the pages that the databases of a state have, by their records. `None` if the records can't be read.
/// `read` reads from an offset of the file, and the state must be pinned.
///
/// This reads the pages of the tree of names: one or two for 60 databases.
pub(in crate::engine::lmdb) fn used(
    meta: &Meta,
    read: impl Fn(u64, &mut [u8]) -> io::Result<()>,
) -> Option<u64> {
    let page_size = meta.page_size();
    let mut page = vec![0; usize::try_from(page_size).ok()?];
    let mut pages = 2 + pages_of(&meta.free) + pages_of(&meta.names);
    let mut open: Vec<u64> = meta.names.root.into_iter().collect();
    for _ in 0..MOST {
        let Some(number) = open.pop() else { break };
        read(number.checked_mul(page_size)?, &mut page).ok()?;
        let (page, is_branch) = (Page(&page), Page(&page).flags() == flag::BRANCH);
        for node in page.nodes().ok()? {
            if is_branch {
                open.push(node.child);
            } else if node.flags & flag::SUB_DATA != 0 {
                pages += Database::read(node.data).as_ref().map_or(0, pages_of);
            }
        }
    }
    pages.checked_mul(page_size)
}

const fn pages_of(database: &Database) -> u64 {
    database.branches.saturating_add(database.leaves).saturating_add(database.overflows)
}
