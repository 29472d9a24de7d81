//! The reader slots of all processes, read from the lock file.

use std::{
    collections::BTreeMap,
    fs::File,
    io,
    io::{Read as _, Seek as _},
    path::{Path, PathBuf},
};

use super::{
    lock::{SLOT, header},
    names::LOCK_FILE,
};
use crate::{
    engine::{DataFile, MOST, ReaderSlot, ReaderSlots, files::id},
    locks::{Mutex, OfProcess},
};

/// The offset of the number of the last commit.
const LAST: usize = 8;

/// The offset of the number of slots that were ever in use.
const COUNT: usize = 16;

impl DataFile<'_> {
    /// Returns the reader slots of all processes, from the lock file beside it; see [`reader_slots`](crate::engine::reader_slots).
    pub(crate) fn reader_slots(self) -> io::Result<ReaderSlots> {
        let directory = self.0.canonicalize()?;
        if DataFile(&directory).is_open() {
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        match File::open(directory.join(LOCK_FILE)) {
            Ok(file) => read(&file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(slots(&[], 0)),
            Err(error) => Err(error),
        }
    }
}

/// The lock files of stores that this process has had open. They are never closed, because closing one of them would
/// release the locks of its store. There is one for each directory.
static KEPT: OfProcess<Mutex<BTreeMap<PathBuf, Kept>>> = OfProcess::new(Mutex::default);

/// The lock file of a store, which stays open.
pub(super) struct Kept {
    pub(super) file: File,
    /// The tables that this process has open for writing, with the number of times.
    pub(super) tables: BTreeMap<String, usize>,
}

/// Returns the reader slots of the store in a directory. This process must have it open.
pub(crate) fn slots_of_open(directory: &Path) -> io::Result<ReaderSlots> {
    with_kept(directory, |kept| read(&kept.file))
}

/// Calls `work` with the lock file of the store in a directory. This process must have it open.
pub(super) fn with_kept<T>(
    directory: &Path,
    work: impl FnOnce(&mut Kept) -> io::Result<T>,
) -> io::Result<T> {
    let path = directory.join(LOCK_FILE);
    let mut all = KEPT.lock();
    if let Some(kept) = all.get_mut(directory)
        && is_at(&kept.file, &path)?
    {
        return work(kept);
    }
    let mut kept = Kept { file: File::open(path)?, tables: BTreeMap::new() };
    let outcome = work(&mut kept);
    // A file that was replaced by another stays open too.
    std::mem::forget(all.insert(directory.to_owned(), kept));
    outcome
}

/// Forgets the tables that this process had open in a store that it has closed.
pub(super) fn forget_tables(directory: &Path) {
    if let Some(kept) = KEPT.lock().get_mut(directory) {
        kept.tables.clear();
    }
}

fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let (own, other) = (file.metadata()?, path.metadata()?);
    // Without numbers of files, a file in use can't be replaced.
    Ok(id(&own).ok() == id(&other).ok())
}

fn read(mut file: &File) -> io::Result<ReaderSlots> {
    let Ok(start @ 1..) = usize::try_from(header()) else {
        return Err(io::ErrorKind::Unsupported.into());
    };
    let mut bytes = Vec::new();
    let longest = header() + SLOT * u64::from(MOST);
    file.rewind()?;
    file.take(longest).read_to_end(&mut bytes)?;
    Ok(slots(&bytes, start))
}

fn slots(bytes: &[u8], start: usize) -> ReaderSlots {
    let number = |bytes: &[u8], at: usize| {
        let found = bytes.get(at..).and_then(|rest| rest.first_chunk());
        found.map_or(0, |bytes| u64::from_ne_bytes(*bytes))
    };
    let small = |bytes: &[u8], at: usize| {
        let found = bytes.get(at..).and_then(|rest| rest.first_chunk());
        found.map_or(0, |bytes| u32::from_ne_bytes(*bytes))
    };
    let all = bytes.get(start..).unwrap_or_default().chunks_exact(SLOT as usize);
    let readers = all.take(small(bytes, COUNT) as usize).filter_map(|slot| {
        let (snapshot, process) = (number(slot, 0), small(slot, 8));
        let snapshot = (snapshot != u64::MAX).then_some(snapshot);
        (process != 0).then_some(ReaderSlot { process, snapshot })
    });
    ReaderSlots { last_commit: number(bytes, LAST), readers: readers.collect() }
}
