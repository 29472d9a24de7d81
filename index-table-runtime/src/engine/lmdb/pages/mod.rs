//! Checks whether LMDB could have written a file, without LMDB, which trusts it.
//!
//! Three checks, each of more pages: [`look_at_head`] at the first two pages, before LMDB maps the file;
//! [`look_at_snapshot`] at the names and the root of each database, whenever a store is opened; and the same
//! with [`Depth::Everything`] at each page in use. Nothing is mapped, so damage gives an error and not a
//! signal.

mod layout;
mod walk;

use std::{
    fs::File,
    io::{self, Read as _, Seek as _, SeekFrom},
    ops::RangeInclusive,
    path::Path,
    thread,
    time::Duration,
};

use layout::META;
pub(super) use layout::Meta;
use walk::PageCheck;

use super::process;

/// The reason why a file is not intact.
pub(super) enum Fault {
    /// It could not be read.
    Io(io::Error),
    /// The damage.
    Damaged(String),
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<String> for Fault {
    fn from(reason: String) -> Self {
        Self::Damaged(reason)
    }
}

/// The extent of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Depth {
    /// The names of the databases, and the root of each.
    Roots,
    /// Each page in use.
    Everything,
}

/// Sizes of pages that LMDB can have.
const PAGE_SIZES: RangeInclusive<u64> = 256..=1 << 16;

/// No address is longer.
const LARGEST_MAP: u64 = 1 << 56;

/// Above this, LMDB would soon run out of numbers for transactions, begin with 0 again, and take older
/// states for newer ones. No file gets there by commits.
const LARGEST_TXN: u64 = (usize::MAX - (usize::MAX >> 8)) as u64;

/// The number of times to read the first pages again: another process may be writing them.
const TRIES: u32 = 4;

/// Whether LMDB can open the file, and how many named databases it has. `None` if it is empty or missing, so
/// that LMDB creates it. A file that LMDB has started to create counts as empty, and is emptied if it may be
/// `made`.
pub(super) fn look_at_head(path: &Path, made: bool) -> Result<Option<u64>, Fault> {
    let mut tries = 1;
    loop {
        let mut file = match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        if file.metadata()?.len() == 0 {
            return Ok(None);
        }
        match metas(&mut file) {
            Err(Fault::Damaged(_)) if tries < TRIES => {
                tries += 1;
                thread::sleep(Duration::from_millis(2));
            }
            Err(Fault::Damaged(_)) if is_unfinished(&mut file)? => {
                if made {
                    File::options().write(true).open(path)?.set_len(0)?;
                }
                return Ok(None);
            }
            outcome => {
                let [first, second] = outcome?;
                let newest = if first.txn < second.txn { second } else { first };
                return Ok(Some(newest.names.entries));
            }
        }
    }
}

/// Whether the creation of the file was cut off: the disk was full, the process ended, or the power failed. LMDB
/// would refuse it for ever, and nothing was ever committed to it.
///
/// LMDB writes two pages at once, each with a meta record and zeros, and they are synced before anything else is
/// written. A disk writes each sector or not, and a record is less than a sector, so each of the two records is
/// there or is zeros.
fn is_unfinished(file: &mut File) -> Result<bool, Fault> {
    let size = process::page_size();
    if file.metadata()?.len() > 2 * size as u64 {
        return Ok(false);
    }
    let mut content = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    file.read_to_end(&mut content)?;
    Ok(is_new(&content, size))
}

/// What a disk writes as a whole or not at all.
const SECTOR: usize = 512;

/// Whether these are pages of this size, of which each is new or zeros.
fn is_new(content: &[u8], size: usize) -> bool {
    content.chunks(size).all(|page| {
        let (record, rest) = page.split_at(META.min(page.len()));
        let is_zeros = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
        let is_new = || {
            Meta::read(record).is_ok_and(|meta| meta.is_new() && meta.page_size() == size as u64)
        };
        let is_lost = || page.len().is_multiple_of(SECTOR) && is_zeros(record);
        is_zeros(rest) && (is_lost() || is_new())
    })
}

/// Whether the state of the transaction `txn` is intact, to the extent of `depth`; `None` if it is too old.
/// The caller has a read transaction with that state, so that its pages are not used again.
pub(super) fn look_at_snapshot(path: &Path, txn: u64, depth: Depth) -> Result<Option<()>, Fault> {
    let mut file = File::open(path)?;
    // A transaction writes one of the two pages, and the next but one the same.
    let metas = metas(&mut file)?;
    let Some(meta) = metas.iter().find(|meta| meta.txn == txn) else { return Ok(None) };
    PageCheck::new(&mut file, meta, depth)?.run()?;
    if depth == Depth::Everything {
        check_numbers(&mut file, metas)?;
    }
    Ok(Some(()))
}

/// Whether the two states can be those of two commits in a row. If not, one number has been changed, and the
/// older state may be taken for the newer one.
fn check_numbers(file: &mut File, mut metas: [Meta; 2]) -> Result<(), Fault> {
    loop {
        let Some(reason) = wrong_numbers(&metas) else { return Ok(()) };
        // Commits between the reads of the two pages look the same, but not twice, since numbers only
        // rise.
        let again = self::metas(file)?;
        if again == metas {
            return Err(reason.into());
        }
        metas = again;
    }
}

fn wrong_numbers([first, second]: &[Meta; 2]) -> Option<String> {
    let (older, newer) = if first.txn < second.txn { (first, second) } else { (second, first) };
    let [lesser, greater] = [older.txn, newer.txn];
    if greater - lesser > 1 {
        return Some(format!("the transactions {lesser} and {greater} don't follow each other"));
    }
    // No commit decreases the number of pages, and LMDB restores it together with the transaction's number if
    // it could not write a state.
    (older.last_page > newer.last_page)
        .then(|| format!("the state of transaction {lesser} has pages that a later one lacks"))
}

/// Both states that the file has.
fn metas(file: &mut File) -> Result<[Meta; 2], Fault> {
    let first = meta(file, 0)?;
    let size = first.page_size();
    if !PAGE_SIZES.contains(&size) || !size.is_power_of_two() {
        return Err(format!("page 0 has the page size {size}").into());
    }
    let second = meta(file, size)?;
    if second.page_size() != size {
        return Err(format!("page 1 has the page size {}", second.page_size()).into());
    }
    // Transactions write the two pages in turn.
    for (page, meta) in [(0, &first), (1, &second)] {
        if meta.page != page || meta.txn != 0 && meta.txn % 2 != page {
            return Err(format!("page {page} is not the page that should be in its place").into());
        }
    }
    // The earlier state is not used again. If LMDB could not write a state, it has restored its number and
    // not all of it.
    let (page, meta) = if first.txn < second.txn { (1, &second) } else { (0, &first) };
    let wrong = |what: &str| Err(format!("page {page} has {what} that can't be").into());
    if meta.txn > LARGEST_TXN {
        return wrong("the number of a transaction");
    }
    if meta.last_page == 0 || meta.last_page > LARGEST_MAP / size {
        return wrong("a number of pages");
    }
    if meta.map_size > LARGEST_MAP {
        return wrong("a size of the map");
    }
    for database in [&meta.free, &meta.names] {
        if database.root.is_some_and(|root| root <= 1 || root > meta.last_page) {
            return wrong("a root");
        }
    }
    if meta.free.flags & !PERSISTENT != layout::flag::INTEGER_KEY || meta.names.flags != 0 {
        return wrong("flags");
    }
    Ok([first, second])
}

/// The flags of the environment, which LMDB stores with the flags of the first database.
const PERSISTENT: u16 = !0xFF;

fn meta(file: &mut File, at: u64) -> Result<Meta, Fault> {
    let mut page = [0; META];
    file.seek(SeekFrom::Start(at))?;
    file.read_exact(&mut page).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => Fault::Damaged("data.mdb ends in its first pages".into()),
        _ => error.into(),
    })?;
    Ok(Meta::read(&page)?)
}
