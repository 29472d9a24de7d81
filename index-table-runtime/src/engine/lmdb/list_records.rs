//! The records of a table's lists, read without a transaction.
//!
//! A row of a read transaction can have lists that another process has added, and then they are read while that transaction is
//! active. A second transaction of the same thread could wait for a thread that replaces the map, and that thread waits for the
//! first transaction. It could also need a larger map, which the first transaction prevents. So the pages of the last commit are read from the file.
//!
//! LMDB writes pages of the last commit when the next commit has ended, unless a read transaction is older. So what was read is
//! used if this commit is still the last one, or if a read transaction that is not newer was open all the time.

use std::{io, thread};

use super::{
    env::Engine,
    names::{CATALOG, FILE, LIST_COPIES},
    pages::{self, BadPage, Guard},
    paths::leads_to,
    slots::slots_of_open,
};
use crate::{
    engine::{ListRecords, ReaderSlot},
    model::{error::Result, lists::LISTS},
};

/// How often the file is read, if commits follow each other too fast.
const TRIES: u32 = 20;

/// The pages could not be read, or are not those of one commit.
struct Unread;

impl From<BadPage> for Unread {
    fn from(_: BadPage) -> Self {
        Self
    }
}

impl Engine {
    /// Returns the record of a table's lists, and its second copy, in the last commit; `None` if only a transaction can read them: commits
    /// follow each other too fast, a page is damaged, or the file was replaced by another one.
    ///
    /// Cost: a read of the lock file, and about ten of the data file.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`](crate::Error::Forked), and [`Error::ReopenNeeded`](crate::Error::ReopenNeeded) if the shard has left its store.
    pub(crate) fn list_records(&self, table: &str) -> Result<Option<ListRecords>> {
        self.refuse_forked()?;
        let path = self.path.join(FILE);
        for _ in 0..TRIES {
            let own = self.gate.hold(|files| files.file).ok_or_else(|| self.retired())?;
            let is_own = own.is_none_or(|own| leads_to(&path, own));
            if self.gate.is_retired() || !is_own {
                break;
            }
            if let Ok(found) = self.read_list_records(table) {
                return Ok(Some(found));
            }
            thread::yield_now();
        }
        Ok(None)
    }

    fn read_list_records(&self, table: &str) -> Result<ListRecords, Unread> {
        let path = self.path.join(FILE);
        let before = self.slots();
        let (guard, commit) = Guard::last(&path).map_err(|_| Unread)?;
        let first = guard.value(CATALOG, format!("{table}.{LISTS}").as_bytes());
        let second = guard.value(LIST_COPIES, table.as_bytes());
        let is_kept =
            |reader: &ReaderSlot| reader.snapshot.is_some_and(|snapshot| snapshot <= commit);
        let is_last = pages::last_txn(&path).map_err(|_| Unread)? == commit;
        let after = if is_last { Vec::new() } else { self.slots() };
        if !is_last && !before.iter().any(|reader| is_kept(reader) && after.contains(reader)) {
            return Err(Unread);
        }
        // A damaged copy is no error if the other one is intact.
        match (first, second) {
            (first, Ok(Some(second))) => Ok([first.unwrap_or_default(), Some(second)]),
            (first, second) => Ok([first?, second.unwrap_or_default()]),
        }
    }

    /// Returns the reader slots in use; none if the store has no lock file.
    fn slots(&self) -> Vec<ReaderSlot> {
        let slots: io::Result<_> = slots_of_open(&self.path);
        slots.map_or_else(|_| Vec::new(), |slots| slots.readers)
    }
}
