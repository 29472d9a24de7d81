//! Enlarging the map when it is full, or when another process has enlarged the file.

use std::{
    sync::atomic::Ordering,
    thread,
    time::{Duration, Instant},
};

use heed::MdbError;

use super::{
    env::Engine,
    gate::{Closed, Entered, Kind, Refused},
    journal::member::Member,
    names::Env,
    opened::Files,
    process, size,
    turn::Writing,
};
use crate::{
    engine::Retry,
    locks::MutexGuard,
    model::error::{Error, Result},
};

/// The maximum time to wait for active transactions before the map is replaced.
const WAIT: Duration = Duration::from_secs(2);

/// The time for which new transactions wait too. After it, those that wait begin, because an active transaction may need
/// one of them to end: its thread may begin another one, or wait for another thread.
const TURN: Duration = Duration::from_millis(50);

/// The interval at which a reader checks whether the writer of this process has the larger map.
const POLL: Duration = Duration::from_millis(2);

impl Engine {
    /// Begins a transaction. If another process has enlarged the file, enlarges the map first.
    pub(super) fn begin<'e, T>(
        &'e self,
        kind: Kind,
        mut begin: impl FnMut(&'e Env) -> heed::Result<T>,
    ) -> Result<Entered<'e, T, Files>> {
        self.refuse_forked()?;
        let mut cleared = false;
        loop {
            let pass = self.gate.enter(kind).map_err(|refused| self.refused(&refused))?;
            let map_size = self.map_size.load(Ordering::Relaxed);
            match begin(self.env()?) {
                Ok(txn) => return Ok(Entered::new(pass, txn)),
                Err(heed::Error::Mdb(MdbError::MapResized)) => {
                    drop(pass);
                    match kind {
                        Kind::Reader => self.adopt_despite_writer(map_size)?,
                        Kind::Writer => self.adopt()?,
                    }
                }
                Err(heed::Error::Mdb(MdbError::ReadersFull)) if !cleared => {
                    cleared = true;
                    self.clear_stale_readers()?;
                }
                Err(error) => return Err(self.error(error)),
            }
        }
    }

    /// Clears the slots of readers whose processes have ended, and returns the number of cleared slots.
    pub(crate) fn clear_stale_readers(&self) -> Result<usize> {
        self.refuse_forked()?;
        let cleared = self.gate.hold(|files| files.env.clear_stale_readers());
        cleared.ok_or_else(|| self.retired())?.map_err(|error| self.error(error))
    }

    /// Prepares another run of a closure. Returns false if the run would fail in the same way.
    pub(crate) fn prepare(&self, retry: Retry) -> Result<bool> {
        match retry {
            Retry::Map { map_size } | Retry::ShardMap { map_size, .. } => {
                Ok(self.grow(map_size)? || self.free_pages())
            }
            Retry::Disk => Ok(self.free_pages()),
            // The transaction needs too many pages in any map.
            Retry::Pages => Ok(false),
            // LMDB has one writer at a time, so it has no conflicts. The next transaction locks the shards.
            Retry::Conflict | Retry::Shards => Ok(true),
        }
    }

    /// Makes a checkpoint if pages were changed since the last one, which keeps their earlier versions. Returns false if no
    /// page becomes free.
    fn free_pages(&self) -> bool {
        let Some(journal) = self.journal.get() else { return false };
        // The thread with the turn to write records the checkpoints of a journal with one member.
        let _turn = (!journal.is_shared()).then(|| self.lock_writing());
        journal.free_pages()
    }

    /// Enlarges the map beyond `full_at`, the size at which it was full. Returns false at the limit.
    fn grow(&self, full_at: usize) -> Result<bool> {
        // A writer of this process is in the gate while it waits for the lock of another process.
        let _turn = self.lock_writing();
        let Some(closed) = self.close()? else { return Ok(true) };
        let size = self.map_size.load(Ordering::Relaxed);
        if size > full_at {
            return Ok(true);
        }
        // A failed commit of several shards doesn't name the full one. If this map only reached the size of that of another
        // shard, the next failure would look like this one, and end the attempts.
        let mut larger = size;
        while larger <= full_at && larger < self.max_map_size {
            larger = larger.saturating_mul(2).min(self.max_map_size);
        }
        if larger <= size || !process::has_address_space(larger) {
            return Ok(false);
        }
        self.map(closed, larger)?;
        Ok(true)
    }

    /// Maps pages that another process has added, for a reader whose snapshot is larger than a map of this size.
    ///
    /// The writer of this process may be in the gate for as long as another process has LMDB's lock. Until then,
    /// the gate stays open, so that neither this reader nor the writer fails. If the writer begins first, it enlarges the
    /// map itself.
    fn adopt_despite_writer(&self, map_size: usize) -> Result<()> {
        while self.map_size.load(Ordering::Relaxed) == map_size {
            if let Some(_turn) = self.writing.try_lock() {
                return self.adopt();
            }
            thread::sleep(POLL);
        }
        Ok(())
    }

    /// Maps pages that another process has added. No writer of this process may be in the gate.
    fn adopt(&self) -> Result<()> {
        let Some(closed) = self.close()? else { return Ok(()) };
        let size = self.map_size.load(Ordering::Relaxed);
        let used = self.used();
        if used <= size {
            return Ok(());
        }
        // Prefers a map with room for more pages. The second choice is the size of the file, even beyond the limit of
        // this process.
        let doubled = used.checked_next_power_of_two().unwrap_or(used);
        let sizes = [doubled.min(self.max_map_size), used];
        let fits = |size: &usize| *size >= used && process::has_address_space(*size);
        match sizes.into_iter().find(fits) {
            Some(larger) => self.map(closed, larger),
            None => Err(Error::MapTooSmall { map_size: size }),
        }
    }

    fn close(&self) -> Result<Option<Closed<'_, Files>>> {
        let deadline = Instant::now() + WAIT;
        loop {
            match self.gate.close(TURN) {
                Err(Refused::Busy) if Instant::now() < deadline => thread::sleep(POLL),
                closed => return closed.map_err(|refused| self.refused(&refused)),
            }
        }
    }

    /// Waits for this process's turn to write.
    pub(super) fn lock_writing(&self) -> MutexGuard<'_, Writing> {
        if let Some(turn) = self.writing.try_lock() {
            return turn;
        }
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let turn = self.writing.lock();
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        turn
    }

    fn map(&self, closed: Closed<'_, Files>, bytes: usize) -> Result<()> {
        let bytes = size::page_multiple(bytes);
        // A checkpoint would begin a read transaction.
        let mut held = self.journal.get().and_then(Member::hold);
        #[expect(unsafe_code, reason = "transactions that are active would lose their map")]
        // SAFETY: all transactions of this process pass the gate. While `closed` exists, none is active and none
        // begins.
        let mapped = unsafe { self.env()?.resize(bytes) };
        match mapped {
            Ok(()) => {
                self.map_size.store(bytes, Ordering::Relaxed);
                Ok(())
            }
            Err(error) => {
                // LMDB has unmapped the old map.
                if let Some(held) = &mut held {
                    held.map_lost();
                }
                closed.broken();
                Err(self.error(error))
            }
        }
    }

    #[cold]
    pub(super) fn refused(&self, refused: &Refused) -> Error {
        match refused {
            Refused::Full => self.too_many_readers(),
            Refused::Broken => {
                self.reopen_needed("an earlier attempt to map more of the file has failed")
            }
            Refused::Retired => self.retired(),
            Refused::Busy => {
                let (readers, oldest) = self.readers();
                let map_size = self.map_size.load(Ordering::Relaxed);
                Error::GrowthBlocked { map_size, readers, oldest: oldest.unwrap_or_default() }
            }
        }
    }
}
