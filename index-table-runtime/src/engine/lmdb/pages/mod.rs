//! Checks whether LMDB could have written a file. LMDB does not check it.
//!
//! There are three checks, each of more pages. [`look_at_head`] checks the first two pages, before LMDB maps the
//! file. [`look_at_snapshot`] checks the names, the root of each database and the small databases of all tables whenever a
//! store is opened; with [`Depth::Everything`], it checks each page in use. The file is not mapped, so damage causes an error
//! and not a signal. [`sample`] finds leaves at equal distances, and [`share`] the part of the leaves between two keys, for
//! estimates. [`Guard`] checks each page before LMDB follows it; the last pages are [kept](checked). [`used`] counts the pages in use.

mod checked;
mod guard;
mod layout;
mod leaves;
mod readable;
mod used;
mod walk;

use std::{
    fs::File,
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    ops::RangeInclusive,
    path::Path,
    thread,
    time::Duration,
};

pub(super) use guard::{Ahead, BadPage, Guard, read_at};
pub(crate) use guard::{checked, is_checked, is_repairing, repairing};
use layout::META;
pub(super) use layout::{Meta, without_tree};
pub(super) use leaves::{sample, share};
pub(super) use readable::{LostKeys, Readable, has_branches};
pub(super) use used::used;
use walk::PageCheck;
pub(super) use walk::{Damage, FREE_PAGES};

use super::{names::LIST_COPIES, process};

/// The reason why a file is not intact.
pub(super) enum Fault {
    /// The error of reading the file.
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

/// The page sizes that LMDB supports.
const PAGE_SIZES: RangeInclusive<u64> = 256..=1 << 16;

/// The maximum size of a map, since addresses have at most 56 bits.
const LARGEST_MAP: u64 = 1 << 56;

/// The maximum number of a transaction. Above it, LMDB would soon run out of numbers, restart with 0, and confuse
/// older states with newer ones. No file reaches this number by commits.
const LARGEST_TXN: u64 = (usize::MAX - (usize::MAX >> 8)) as u64;

/// The number of times to read the first pages again: another process may be writing them.
const TRIES: u32 = 4;

/// Checks that LMDB can open the file, and returns the number of its named databases. Returns `None` if the file is
/// empty or missing, so that LMDB creates it. A file that LMDB has started to create counts as empty, and is emptied
/// if it may be `made`.
pub(super) fn look_at_head(path: &Path, made: bool) -> Result<Option<u64>, Fault> {
    let mut file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    if file.metadata()?.len() == 0 {
        return Ok(None);
    }
    match metas(&mut file) {
        Err(Fault::Damaged(_)) if is_unfinished(&mut file)? => {
            if made {
                File::options().write(true).open(path)?.set_len(0)?;
            }
            Ok(None)
        }
        outcome => {
            let [first, second] = outcome?;
            let newest = if first.txn < second.txn { second } else { first };
            Ok(Some(newest.names.entries))
        }
    }
}

/// Whether the creation of the file was interrupted, by a full disk, the end of the process, or a power failure.
/// LMDB would always refuse such a file, to which nothing was committed.
///
/// LMDB first writes two pages together, each with a meta record and zeros, and they are synced before any other
/// write. A disk writes a sector completely or not at all, and a record is smaller than a sector. So each of the two
/// records is complete, or is zeros.
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

/// The bytes of a sector, which a disk writes completely or not at all.
const SECTOR: usize = 512;

/// Whether each page of this size in `content` is new, or has only zeros.
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

/// Checks the state of the transaction `txn` to the extent of `depth`, and returns the first damage of each database. Returns `None` if the state is
/// too old. The caller has a read transaction with this state, so that its pages are not reused. Calls `progress` with
/// the number of checked pages and the number of all pages. Its error ends the check.
///
/// The second copies of lists are checked in all their pages. If they are damaged, nothing else is missing.
pub(super) fn look_at_snapshot(
    path: &Path,
    txn: u64,
    depth: Depth,
    progress: &mut dyn FnMut(u64, u64) -> io::Result<()>,
) -> Result<Option<Vec<Damage>>, Fault> {
    let mut file = File::open(path)?;
    // Transactions write the two pages alternately.
    let metas = metas(&mut file)?;
    let Some(meta) = metas.iter().find(|meta| meta.txn == txn) else { return Ok(None) };
    let damages = PageCheck::new(&mut file, meta, depth, progress)?.run()?;
    if depth == Depth::Everything {
        check_numbers(&mut file, metas)?;
    }
    Ok(Some(damages))
}

/// Checks the lists of free pages in the state of the transaction `txn`.
pub(super) fn look_at_free_lists(path: &Path, txn: u64) -> Result<(), Fault> {
    let mut file = File::open(path)?;
    let metas = metas(&mut file)?;
    let Some(meta) = metas.iter().find(|meta| meta.txn == txn) else { return Ok(()) };
    PageCheck::new(&mut file, meta, Depth::Roots, &mut |_, _| Ok(()))?.free_lists()
}

/// Whether each page of a database is intact in the state of the transaction `txn`, so that entries can be replaced. False if the state
/// is too old. The only error is that of reading the file.
pub(super) fn is_intact(path: &Path, txn: u64, database: &str) -> io::Result<bool> {
    match look_at_database(path, txn, database, false) {
        Ok(damage) => Ok(damage.is_none()),
        Err(Fault::Damaged(_)) => Ok(false),
        Err(Fault::Io(error)) => Err(error),
    }
}

/// Checks each page of a database in the state of the transaction `txn`, so that it can be emptied. Returns its damage. If the names, or
/// the lists of free pages, are damaged, that is an error. Damage of other databases is ignored.
pub(super) fn damage_of(path: &Path, txn: u64, database: &str) -> Result<Option<String>, Fault> {
    look_at_database(path, txn, database, false)
}

/// Checks each page of a database in the state of the transaction `txn`, so that it can be read. Returns its damage.
pub(super) fn look_at_copies(
    path: &Path,
    txn: u64,
    database: &str,
) -> Result<Option<String>, Fault> {
    look_at_database(path, txn, database, true)
}

fn look_at_database(
    path: &Path,
    txn: u64,
    database: &str,
    read: bool,
) -> Result<Option<String>, Fault> {
    let mut file = File::open(path)?;
    let metas = metas(&mut file)?;
    let meta = metas.iter().find(|meta| meta.txn == txn);
    let meta = meta.ok_or_else(|| Fault::from(format!("it has no state of transaction {txn}")))?;
    PageCheck::new(&mut file, meta, Depth::Roots, &mut |_, _| Ok(()))?.run_in(database, read)
}

/// Checks that the file has all pages of its last state. No process has the store open.
pub(super) fn look_at_last(path: &Path) -> Result<(), Fault> {
    let [first, second] = metas(&mut File::open(path)?)?;
    look_at_length(path, if first.txn < second.txn { &second } else { &first })
}

/// Checks that the file has all pages of a state. Only a shorter file is read.
pub(super) fn look_at_length(path: &Path, meta: &Meta) -> Result<(), Fault> {
    let mut file = File::open(path)?;
    if file.metadata()?.len() / meta.page_size() > meta.last_page {
        return Ok(());
    }
    PageCheck::new(&mut file, meta, Depth::Roots, &mut |_, _| Ok(()))?.run().and_then(|damages| {
        match damages.into_iter().find(|damage| damage.database != LIST_COPIES) {
            Some(damage) => Err(damage.reason.into()),
            None => Ok(()),
        }
    })
}

/// Checks that the two states can result from two consecutive commits. Otherwise, a number has been changed, and the
/// older state may be confused with the newer one.
fn check_numbers(file: &mut File, mut metas: [Meta; 2]) -> Result<(), Fault> {
    loop {
        let Some(reason) = wrong_numbers(&metas) else { return Ok(()) };
        // Commits between the reads of the two pages look the same, but not twice, since numbers only increase.
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

/// Returns the bytes of the pages in use, and of the free pages, in the last state. The caller has a read transaction with the number
/// `txn`, so that the pages of later states are not reused. `None` if the names can't be read.
pub(super) fn in_use(path: &Path, txn: u64) -> Option<(u64, u64)> {
    let mut file = File::open(path).ok()?;
    let metas = metas(&mut file).ok()?;
    let meta = metas.iter().filter(|meta| meta.txn >= txn).max_by_key(|meta| meta.txn)?;
    let used = used(meta, |offset, page| guard::read_at(&file, offset, page))?;
    let all = meta.last_page.saturating_add(1).saturating_mul(meta.page_size());
    Some((used, all.saturating_sub(used)))
}

/// Returns the number of the last transaction in a file.
pub(super) fn last_txn(path: &Path) -> Result<u64, Fault> {
    let [first, second] = metas(&mut File::open(path)?)?;
    Ok(first.txn.max(second.txn))
}

/// Gives the last state of a file a later number, and makes that durable. No process has the file open. A number that LMDB can't
/// have changes nothing.
///
/// Both pages get this state, because LMDB could reuse the pages of the other one.
pub(super) fn raise_txn(path: &Path, txn: u64) -> Result<(), Fault> {
    let mut file = File::options().read(true).write(true).open(path)?;
    let [first, second] = metas(&mut file)?;
    let last = if first.txn < second.txn { second } else { first };
    if txn <= last.txn || txn > LARGEST_TXN {
        return Ok(());
    }
    let mut state = [0; META];
    file.seek(SeekFrom::Start(last.page * last.page_size()))?;
    file.read_exact(&mut state)?;
    for number in [txn - 1, txn] {
        let page = number % 2;
        Meta::renumber(&mut state, page, number);
        file.seek(SeekFrom::Start(page * last.page_size()))?;
        file.write_all(&state)?;
    }
    Ok(file.sync_all()?)
}

/// Returns both states of the file. They are read again if they are damaged, because a commit may be writing one of them.
fn metas(file: &mut File) -> Result<[Meta; 2], Fault> {
    for _ in 1..TRIES {
        match metas_once(file) {
            Err(Fault::Damaged(_)) => thread::sleep(Duration::from_millis(2)),
            outcome => return outcome,
        }
    }
    metas_once(file)
}

fn metas_once(file: &mut File) -> Result<[Meta; 2], Fault> {
    let first = meta(file, 0)?;
    let size = first.page_size();
    if !PAGE_SIZES.contains(&size) || !size.is_power_of_two() {
        return Err(format!("page 0 has the page size {size}").into());
    }
    let second = meta(file, size)?;
    if second.page_size() != size {
        return Err(format!("page 1 has the page size {}", second.page_size()).into());
    }
    // Transactions write the two pages alternately.
    for (page, meta) in [(0, &first), (1, &second)] {
        if meta.page != page || meta.txn != 0 && meta.txn % 2 != page {
            return Err(format!("page {page} is not the page that should be in its place").into());
        }
    }
    // The earlier state is not checked, because it is no longer used. If LMDB could not write a state, it has
    // restored only a part of the state, with the number.
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
