//! The space of a data file, and the readers of other processes, which keep its pages.

use std::{
    fs::{self, File},
    path::PathBuf,
    process,
    time::{Duration, Instant},
};

use super::{
    begin::read_txn, env::Engine, gate::Kind, journal::member::JournalState, names::FILE, pages,
    process::space, slots::slots_of_open,
};
use crate::{engine::files::id, model::error::Result};

/// A data file as a reader sees it.
pub(crate) struct FileState {
    pub(crate) path: PathBuf,
    /// Whether its name leads to another file, or to none.
    pub(crate) is_replaced: bool,
    /// The length of the file.
    pub(crate) bytes: u64,
    /// The bytes of the pages up to the last one, and of those in use; `None` if a damaged page hides them.
    pub(crate) pages: Option<(u64, u64)>,
    pub(crate) map: u64,
    pub(crate) map_limit: u64,
    /// The bytes of the disk, and those that are left.
    pub(crate) disk: Option<(u64, u64)>,
    pub(crate) last_commit: u64,
    pub(crate) readers: Vec<SeenReader>,
}

/// A read transaction of another process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SeenReader {
    pub(crate) process: u32,
    pub(crate) snapshot: u64,
    /// The time since this process first saw it.
    pub(crate) seen: Duration,
}

/// The read transactions of other processes that this process has seen, with the time when it first saw them.
#[derive(Default)]
pub(super) struct Seen(Vec<(u32, u64, Instant)>);

impl Seen {
    /// Keeps the times of the read transactions that are still open, and returns all that are open now.
    fn now(&mut self, open: impl Iterator<Item = (u32, u64)>) -> Vec<SeenReader> {
        let now = Instant::now();
        let first = |process, snapshot| {
            let known = self.0.iter().find(|own| (own.0, own.1) == (process, snapshot));
            known.map_or(now, |(_, _, first)| *first)
        };
        let mut all: Vec<_> =
            open.map(|(process, number)| (process, number, first(process, number))).collect();
        all.sort_unstable();
        all.dedup();
        self.0 = all;
        let reader = |&(process, snapshot, first): &(u32, u64, Instant)| SeenReader {
            process,
            snapshot,
            seen: now.saturating_duration_since(first),
        };
        self.0.iter().map(reader).collect()
    }
}

impl Engine {
    /// Returns the state of the data file. The pages in use are those of the last commit.
    pub(crate) fn file_state(&self) -> Result<FileState> {
        self.refuse_forked()?;
        let path = self.path.join(FILE);
        // Dropped in this order: the transaction, then its pass.
        let (txn, _pass) = self.begin(Kind::Reader, read_txn)?;
        let last_commit = txn.id() as u64;
        let own = self.files()?.file;
        let found = fs::metadata(&path).ok();
        let is_replaced = found.as_ref().and_then(|found| id(found).ok()) != own && own.is_some();
        let pages = if is_replaced { None } else { pages::in_use(&path, last_commit) };
        let map_size = self.map_size() as u64;
        drop(txn);
        let slots = slots_of_open(&self.path).map_or_else(|_| Vec::new(), |slots| slots.readers);
        let others = slots.iter().filter(|slot| slot.process != process::id());
        let others = others.filter_map(|slot| Some((slot.process, slot.snapshot?)));
        Ok(FileState {
            is_replaced,
            bytes: found.map_or(0, |found| found.len()),
            pages,
            map: map_size,
            map_limit: self.max_map_size as u64,
            disk: space(&self.path).map(|disk| (disk.total, disk.available)),
            last_commit,
            readers: self.seen.lock().now(others),
            path,
        })
    }

    /// Returns the state of the journal; `None` if this process writes none.
    pub(crate) fn journal_state(&self) -> Option<JournalState> {
        self.journal.get().map(super::journal::member::Member::state)
    }
}

/// Returns the number of a file that is open, by which another file at its name is recognized.
pub(super) fn number_of(file: &File) -> Option<crate::engine::files::FileId> {
    file.metadata().ok().and_then(|file| id(&file).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_keep_the_time_when_they_were_first_seen() {
        let mut seen = Seen::default();
        let first = seen.now([(7, 3), (8, 3)].into_iter());
        assert_eq!(first.iter().map(|own| own.process).collect::<Vec<_>>(), [7, 8]);
        std::thread::sleep(Duration::from_millis(20));
        // Process 7 has another snapshot now, and 9 is new.
        let next = seen.now([(9, 4), (7, 4), (8, 3), (8, 3)].into_iter());
        let ages: Vec<_> =
            next.iter().map(|own| (own.process, own.seen.as_millis() >= 20)).collect();
        assert_eq!(ages, [(7, false), (8, true), (9, false)]);
        assert!(seen.now(std::iter::empty()).is_empty());
    }
}
