//! The threads and the descriptors of a process with many stores. It is a process of its own, because all stores of a process
//! share threads.
#![cfg(target_os = "linux")]

#[path = "support/threads.rs"]
mod threads;

use std::{
    fs, io, mem,
    path::Path,
    sync::{Arc, Condvar, Mutex, PoisonError},
    thread,
    time::{Duration, SystemTime},
};

use index_table::{Durability, IndexTable, Options, Store};
use serde::{Deserialize, Serialize};

type TestResult = Result<(), Box<dyn std::error::Error>>;

/// The descriptors of a store with a journal that were open before journal files and the data file were opened when needed.
const BEFORE: usize = 9;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "notes")]
#[index(topic)]
struct Note {
    #[primary_key]
    id: u32,
    topic: u8,
    text: String,
}

fn note(id: u32) -> Note {
    Note { id, topic: (id % 7) as u8, text: "x".repeat(100) }
}

fn journalled() -> Options {
    Store::options().durability(Durability::Journal)
}

/// Returns the names of the background threads of this process.
fn background() -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for task in fs::read_dir("/proc/self/task")? {
        // A thread may end meanwhile.
        if let Ok(name) = fs::read_to_string(task?.path().join("comm")) {
            names.extend(name.starts_with("index-table").then(|| name.trim().to_owned()));
        }
    }
    names.sort();
    Ok(names)
}

/// Returns the number of open files in a directory, and of the directory itself.
fn descriptors(directory: &Path) -> io::Result<usize> {
    let mut count = 0;
    for descriptor in fs::read_dir("/proc/self/fd")? {
        let path = fs::read_link(descriptor?.path());
        count += usize::from(path.is_ok_and(|path| path.starts_with(directory)));
    }
    Ok(count)
}

/// Sets the limit of open files, or to the highest one that is allowed, and returns it.
#[expect(unsafe_code, reason = "the operating system's functions are unsafe")]
fn set_file_limit(count: u64) -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the limit is this function's own.
    unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
        limit.rlim_cur = limit.rlim_max.min(count);
        libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
    }
    limit.rlim_cur
}

/// Returns the processor time that this process has used.
#[expect(unsafe_code, reason = "the operating system's functions are unsafe")]
fn used_time() -> Duration {
    // SAFETY: all bytes of the struct may be zero.
    let mut used: libc::timespec = unsafe { mem::zeroed() };
    // SAFETY: the struct is this function's own.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut used) };
    Duration::new(used.tv_sec.unsigned_abs(), u32::try_from(used.tv_nsec).unwrap_or(0))
}

/// Returns a directory in memory, if there is enough room; otherwise on the disk.
#[expect(unsafe_code, reason = "the operating system's functions are unsafe")]
fn directory() -> io::Result<tempfile::TempDir> {
    // SAFETY: all bytes of the struct may be zero.
    let mut space: libc::statvfs = unsafe { mem::zeroed() };
    // SAFETY: the path ends with a zero byte, and the struct is this function's own.
    let is_known = unsafe { libc::statvfs(c"/dev/shm".as_ptr(), &raw mut space) } == 0;
    if is_known && space.f_bavail.saturating_mul(space.f_frsize) > 4 << 30 {
        return tempfile::tempdir_in("/dev/shm");
    }
    tempfile::tempdir()
}

/// A place where threads wait until it is opened.
#[derive(Debug, Default)]
struct Gate {
    /// The number of waiting threads, and whether the gate is open.
    state: Mutex<(usize, bool)>,
    opened: Condvar,
}

impl Gate {
    fn wait(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.0 += 1;
        let opened = self.opened.wait_while(state, |(_, is_open)| !*is_open);
        drop(opened.unwrap_or_else(PoisonError::into_inner));
    }

    fn waiting(&self) -> usize {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).0
    }

    fn open(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).1 = true;
        self.opened.notify_all();
    }
}

/// Opens the gate when it is dropped.
struct Opening(Arc<Gate>);

impl Drop for Opening {
    fn drop(&mut self) {
        self.0.open();
    }
}

/// The parts run one after the other, because they count the threads of the process.
#[test]
fn stores_share_threads_and_have_few_open_files() -> TestResult {
    let directory = directory()?;
    few_descriptors(&directory.path().join("one"))?;
    let options = journalled().checkpoint(1 << 20, 1 << 16, Duration::from_mins(1));
    let path = directory.path().join("none");
    no_descriptors(&options.open(&path)?, &path)?;
    let path = directory.path().join("shards");
    let sharded = options.shard("a", "a").shard("b", "b");
    no_descriptors(&sharded.open(&path)?, &path)?;
    archives_that_hang(directory.path())?;
    two_threads(directory.path())
}

fn few_descriptors(path: &Path) -> TestResult {
    let store = journalled().checkpoint(1 << 20, 1 << 16, Duration::from_mins(1)).open(path)?;
    let notes = NoteRepository::open(&store)?;
    // Checkpoints are made, in each of the files.
    let written = || fs::metadata(path.join("journal.2")).and_then(|file| file.modified());
    let (first, mut id) = (written()?, 0);
    threads::await_true(|| {
        id += 1;
        store
            .transaction(|txn| notes.insert(txn, &note(id)))
            .is_ok_and(|()| written().is_ok_and(|now| now > first) && id > 100)
    });
    // A checkpoint that is being made has two files more.
    let most = BEFORE - 2;
    threads::await_true(|| descriptors(path).is_ok_and(|count| count <= most));
    drop((notes, store));
    assert_eq!(descriptors(path)?, 0);
    Ok(())
}

/// Without a free descriptor, no checkpoint can be made. Writes go on, and the attempts take no time.
fn no_descriptors(store: &Store, path: &Path) -> TestResult {
    let notes = NoteRepository::open(store)?;
    let mut ids = 0..;
    let mut write = |count| -> index_table::Result<()> {
        ids.by_ref()
            .take(count)
            .try_for_each(|id| store.transaction(|txn| notes.insert(txn, &note(id))))
    };
    write(1)?;
    let before = set_file_limit(u64::MAX);
    set_file_limit(100);
    let taken: Vec<_> = std::iter::from_fn(|| fs::File::open(path).ok()).collect();
    // A checkpoint is due, but not so late that writers wait for it.
    let written = write(100);
    let begun = used_time();
    thread::sleep(Duration::from_secs(1));
    let used = used_time().saturating_sub(begun);
    set_file_limit(before);
    drop(taken);
    written?;
    assert!(used < Duration::from_millis(50), "{used:?}");
    let own = |name: &str| name.starts_with("journal.") || name.starts_with("shards.journal.");
    let now = SystemTime::now();
    let mut files = 0;
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if own(&entry.file_name().to_string_lossy()) {
            files += 1;
            threads::await_true(|| {
                write(1).is_ok()
                    && entry.metadata().and_then(|file| file.modified()).is_ok_and(|it| it >= now)
            });
        }
    }
    assert_eq!(files, 3);
    Ok(())
}

/// More archives hang than may run at the same time. Another store still makes checkpoints, for which its writers wait.
fn archives_that_hang(directory: &Path) -> TestResult {
    let gate = Arc::new(Gate::default());
    let mut stores = Vec::new();
    // Stores wait for the function when they are closed, also after a failed assertion.
    let opening = Opening(Arc::clone(&gate));
    for number in 0..20 {
        let hang = Arc::clone(&gate);
        // Opening the store calls the function too.
        let options = journalled().archive_with(move |_| {
            if thread::current().name().is_some_and(|name| name.starts_with("index-table")) {
                hang.wait();
            }
            Ok(())
        });
        let store = options.open(directory.join(format!("hanging{number}")))?;
        let notes = NoteRepository::open(&store)?;
        store.transaction(|txn| notes.insert(txn, &note(1)))?;
        stores.push(store);
    }
    threads::await_true(|| gate.waiting() >= 8);
    // At most four commits are made without a checkpoint.
    let options = journalled().checkpoint(4096, 4096, Duration::from_mins(1));
    let store = options.open(directory.join("other"))?;
    let notes = NoteRepository::open(&store)?;
    for id in 0..200 {
        store.transaction(|txn| notes.insert(txn, &note(id)))?;
    }
    // The hanging rounds and bases have a thread each, and the clock.
    threads::await_true(|| background().is_ok_and(|names| names.len() <= 1 + 8 + 8 + 1));
    drop((opening, stores));
    Ok(())
}

fn two_threads(directory: &Path) -> TestResult {
    let possible = set_file_limit(u64::MAX).saturating_sub(100) / BEFORE as u64;
    let count = usize::try_from(possible)?.min(1000);
    let mut stores = Vec::with_capacity(count);
    for number in 0..count {
        let store = journalled().open(directory.join(number.to_string()))?;
        let notes = NoteRepository::open(&store)?;
        store.transaction(|txn| notes.insert(txn, &note(1)))?;
        stores.push((store, notes));
    }
    // A slow disk may have needed further threads, which end.
    threads::await_true(|| background().is_ok_and(|names| names.len() <= 2));
    assert!(background()?.contains(&"index-table-clo".to_owned()), "{:?}", background()?);
    for (store, notes) in &stores {
        store.transaction(|txn| notes.insert(txn, &note(2)))?;
    }
    threads::await_true(|| background().is_ok_and(|names| names.len() <= 2));
    drop(stores);
    threads::await_true(|| background().is_ok_and(|names| names.is_empty()));
    Ok(())
}
