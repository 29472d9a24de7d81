//! Shards that are closed, or that leave the journal.

use std::sync::{PoisonError, atomic::Ordering::SeqCst};

use super::{
    super::marker::{self, Journalled, Marker},
    checkpoint::{Member, Open},
};

impl Member {
    /// Ends the journal of this shard. If the environment still has its map, and no error occurs, the data file is
    /// complete without the journal afterwards. Otherwise, the next opening applies the journal.
    pub(in crate::engine::lmdb) fn close(self, is_mapped: bool) {
        let common = &*self.common;
        let mut state = common.lock();
        while state.is_working {
            state = common.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let shard = self.shard();
        let open = shard.and_then(|shard| shard.lock().take());
        if let (Some(open), Some(shard)) = (&open, shard) {
            // If the data file is incomplete, the journal is closed: the next checkpoint would lack the state of this
            // shard.
            if self.complete(open, is_mapped) {
                let _ = shard.closed.set(open.number);
            } else {
                state.is_closed = true;
            }
            state.open = state.open.saturating_sub(1);
        }
        state.is_closed |= state.open == 0;
        let thread = if state.is_closed { state.thread.take() } else { None };
        let archiver = if state.open == 0 { state.archiver.take() } else { None };
        drop(state);
        common.changed.notify_all();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
        self.wait_for_base();
        if let Some(archiver) = archiver {
            archiver.close();
        }
        drop(open);
    }

    /// Removes the shard from the journal, which the other shards still use. The data file is complete afterwards, and
    /// this process no longer writes it.
    pub(in crate::engine::lmdb) fn leave(&self) {
        let Some(shard) = self.shard() else { return };
        shard.has_left.store(true, SeqCst);
        let mut state = self.common.lock();
        while state.is_working {
            state = self.common.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let open = shard.lock().take();
        if let Some(open) = &open {
            self.complete(open, open.is_mapped);
            state.open = state.open.saturating_sub(1);
        }
        drop(state);
        self.wait_for_base();
        drop(open);
    }

    /// Makes the data file of a shard complete without the journal. Returns whether the data file is complete.
    fn complete(&self, open: &Open, is_mapped: bool) -> bool {
        let is_sound = is_mapped && self.common.refused().is_none();
        let is_whole = is_sound && open.env.write_txn().is_ok() && open.env.force_sync().is_ok();
        if is_whole {
            let shard = self.shard().map(|shard| shard.number);
            let clean = Marker::Clean(Journalled { shard, ..self.common.journalled });
            // Without the marker, the next opening applies the journal, which changes nothing.
            let _ = marker::put(&open.data, clean).and_then(|()| open.data.sync_data());
        }
        // The lock is released here, because a forked child shares it.
        let _ = open.writer.unlock();
        is_whole
    }

    /// Changes nothing, because the journal belongs to the parent of this forked process.
    pub(in crate::engine::lmdb) fn forget(self) {
        std::mem::forget(self);
    }
}
