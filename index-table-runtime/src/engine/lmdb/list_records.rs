//! The records of a table's lists, which can be read while a transaction of the same thread is active.
//!
//! A row of a read transaction can have lists that another process has added, and then they are read while that transaction is
//! active. A second transaction of the thread could wait for a thread that replaces the map, and that thread waits for the
//! first transaction. It could also need a larger map, which the first transaction prevents. In these cases, the pages of the last commit
//! are read from the file.
//!
//! LMDB writes pages of the last commit when the next commit has ended, unless a read transaction is older. So what was read is
//! used if this commit is still the last one, or if a read transaction that is not newer was open all the time.

use std::thread;

use heed::{MdbError, RoTxn, WithoutTls};

use super::{
    begin::read_txn,
    env::Engine,
    gate::{Entered, Kind},
    names::{CATALOG, FILE, LIST_COPIES},
    opened::Files,
    pages::{self, BadPage, Guard, is_checked},
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
    /// Returns the record of a table's lists, and its second copy. A damaged second copy is `None`.
    ///
    /// Cost: two look-ups. While the map has to be replaced, a read of the lock file, and about ten of the data file.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`](crate::Error::Forked), [`Error::ReopenNeeded`](crate::Error::ReopenNeeded) if the shard has left its store, and
    /// the errors of reading the first copy.
    pub(crate) fn list_records(&self, table: &str) -> Result<ListRecords> {
        self.refuse_forked()?;
        let own = format!("{table}.{LISTS}");
        if let Some(found) = self.in_transactions(&own, table)? {
            return Ok(found);
        }
        for _ in 0..TRIES {
            if let Ok(found) = self.in_pages(&own, table) {
                return Ok(found);
            }
            thread::yield_now();
        }
        // These wait for the map.
        let first = self.all_records()?.into_iter().find(|(name, _)| *name == own);
        Ok([first.map(|(_, record)| record), self.list_copy(table).unwrap_or_default()])
    }

    /// Reads each copy in a transaction, because an unreadable page ends the transaction. `None` if a transaction would wait, or
    /// this thread checks the pages that it reads.
    fn in_transactions(&self, own: &str, table: &str) -> Result<Option<ListRecords>> {
        let (Some(catalog), false) = (self.catalog.get(), is_checked()) else { return Ok(None) };
        let Some(txn) = self.begin_at_once()? else { return Ok(None) };
        let first = catalog.get(&txn, own.as_bytes()).map_err(|error| self.error(error))?;
        let first = first.map(<[u8]>::to_vec);
        let Some(copies) = self.copies.get().filter(|_| !self.has_damaged_copies()) else {
            return Ok(Some([first, None]));
        };
        let Some(txn) = self.begin_at_once()? else { return Ok(None) };
        let second = copies.get(&txn, table.as_bytes()).unwrap_or_default();
        Ok(Some([first, second.map(<[u8]>::to_vec)]))
    }

    /// Begins a read transaction; `None` if it would wait, or needs a larger map or another reader slot.
    fn begin_at_once(&self) -> Result<Option<Entered<'_, RoTxn<'_, WithoutTls>, Files>>> {
        if self.gate.is_closed() {
            return Ok(None);
        }
        let pass = self.gate.enter(Kind::Reader).map_err(|refused| self.refused(&refused))?;
        match read_txn(self.env()?) {
            Ok(txn) => Ok(Some(Entered::new(pass, txn))),
            Err(heed::Error::Mdb(MdbError::MapResized | MdbError::ReadersFull)) => Ok(None),
            Err(error) => Err(self.error(error)),
        }
    }

    /// Reads the copies from the file.
    fn in_pages(&self, own: &str, table: &str) -> Result<ListRecords, Unread> {
        let path = self.path.join(FILE);
        // A shard that has left its store may be another store's, and the path may lead to another file.
        let file = self.gate.hold(|files| files.file).ok_or(Unread)?;
        if self.gate.is_retired() || !file.is_none_or(|file| leads_to(&path, file)) {
            return Err(Unread);
        }
        let before = self.slots();
        let (guard, commit) = Guard::last(&path).map_err(|_| Unread)?;
        let first = guard.value(CATALOG, own.as_bytes());
        let second = guard.value(LIST_COPIES, table.as_bytes());
        let keeps =
            |reader: &&ReaderSlot| reader.snapshot.is_some_and(|snapshot| snapshot <= commit);
        let is_last = pages::last_txn(&path).map_err(|_| Unread)? == commit;
        let after = if is_last { Vec::new() } else { self.slots() };
        if !is_last && !before.iter().filter(keeps).any(|reader| after.contains(reader)) {
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
        slots_of_open(&self.path).map_or_else(|_| Vec::new(), |slots| slots.readers)
    }
}
