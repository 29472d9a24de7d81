//! The space of a data file, and the readers of other processes, which keep its pages.

use std::{fs, process, time::Instant};

use super::{
    begin::read_txn, env::Engine, gate::Kind, journal::member::Member, names::FILE, pages,
    paths::leads_to, process::space, slots::slots_of_open,
};
use crate::{
    engine::{Durability, FileState, JournalState, SeenReader},
    model::error::Result,
};

/// The read transactions of other processes with later commits, with the time when this process first saw them.
#[derive(Default)]
pub(super) struct Seen(Vec<(u32, u64, Instant)>);

impl Seen {
    /// Keeps the times of the read transactions that are still open, and returns all that are open now. An idle process can read the
    /// last commit again and again, so the time of a transaction begins when it keeps pages.
    fn now(&mut self, open: impl Iterator<Item = (u32, u64)>, last_commit: u64) -> Vec<SeenReader> {
        let now = Instant::now();
        let first = |process, snapshot| {
            let known = self.0.iter().find(|own| (own.0, own.1) == (process, snapshot));
            known.map_or(now, |(_, _, first)| *first)
        };
        let mut all: Vec<_> =
            open.map(|(process, number)| (process, number, first(process, number))).collect();
        all.sort_unstable();
        all.dedup();
        let reader = |&(process, snapshot, first): &(u32, u64, Instant)| SeenReader {
            process,
            snapshot,
            seen: now.saturating_duration_since(first),
        };
        let readers = all.iter().map(reader).collect();
        all.retain(|(_, snapshot, _)| *snapshot < last_commit);
        self.0 = all;
        readers
    }
}

impl Engine {
    /// Returns the state of the data file.
    pub(crate) fn file_state(&self) -> Result<FileState> {
        self.refuse_forked()?;
        let path = self.path.join(FILE);
        let reading = self.begin(Kind::Reader, read_txn)?;
        let last_commit = reading.id() as u64;
        let own = self.files()?.file;
        let is_replaced = own.is_some_and(|own| !leads_to(&path, own));
        let pages = if is_replaced { None } else { pages::in_use(&path, last_commit) };
        let map = self.map_size() as u64;
        drop(reading);
        let disk = space(&self.path);
        Ok(FileState {
            is_replaced,
            bytes: fs::metadata(&path).map_or(0, |found| found.len()),
            pages,
            map,
            map_limit: self.map_limit(),
            disk: disk.and_then(|disk| Some((disk.total?, disk.available))),
            last_commit,
            readers: if is_replaced { Vec::new() } else { self.other_readers(last_commit) },
            path,
        })
    }

    fn map_limit(&self) -> Option<u64> {
        // The default, in whole pages.
        let is_limited = self.max_map_size < usize::MAX - (1 << 16);
        (is_limited && !self.is_read_only()).then_some(self.max_map_size as u64)
    }

    /// Returns the read transactions of other processes. In a process that only reads a store with a journal, the checkpoint of the writer
    /// could not be told from a reader, so there are none.
    fn other_readers(&self, last_commit: u64) -> Vec<SeenReader> {
        if self.journal.get().is_none() && self.durability().0 == Durability::Journal {
            return Vec::new();
        }
        let slots = slots_of_open(&self.path).map_or_else(|_| Vec::new(), |slots| slots.readers);
        let others = slots.iter().filter(|slot| slot.process != process::id());
        let others = others.filter_map(|slot| Some((slot.process, slot.snapshot?)));
        self.seen.lock().now(others, last_commit)
    }

    /// Returns whether the journal that this process writes is refused; `None` if it writes none.
    pub(crate) fn is_journal_refused(&self) -> Option<bool> {
        self.journal.get().map(|member| member.refused().is_some())
    }

    /// Returns the state of the journal; `None` if this process writes none.
    pub(crate) fn journal_state(&self) -> Option<JournalState> {
        self.journal.get().map(Member::state)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_time_of_a_reader_begins_with_the_first_later_commit() {
        let mut seen = Seen::default();
        let old = |seen: &[SeenReader]| -> Vec<_> {
            seen.iter().map(|own| (own.process, own.seen.as_millis() >= 20)).collect()
        };
        let pause = || std::thread::sleep(Duration::from_millis(20));
        let slots = || [(7, 3), (8, 3)].into_iter();
        assert_eq!(old(&seen.now(slots(), 3)), [(7, false), (8, false)]);
        pause();
        // Commit 4 is new.
        assert_eq!(old(&seen.now(slots(), 4)), [(7, false), (8, false)]);
        pause();
        // Process 7 has another snapshot now, and 9 is new.
        let next = seen.now([(9, 4), (7, 4), (8, 3), (8, 3)].into_iter(), 4);
        assert_eq!(old(&next), [(7, false), (8, true), (9, false)]);
        assert!(seen.now(std::iter::empty(), 5).is_empty());
    }
}
