//! Members that join a journal, are closed, or leave the journal and come back.

use std::{
    fs::File,
    io,
    sync::{Arc, atomic::Ordering::SeqCst},
};

use super::{
    checkpoint::TRIES,
    common::{DATA_SYNC, Left, Open, Shard, Turn},
    marker::{self, Marker},
    member::Member,
    not_started::NotStarted,
    shards::{Joining, open},
};

const WRITTEN: &str = "another process has opened its directory since it left the store, and transactions of this process that began before \
                       still use it; attach the shard when they have ended";

const INCOMPLETE: &str = "a shard was closed after an error, before its data file was complete; its commits are in the journal, \
                          which is applied when the store is opened again";

impl Member {
    /// Adds a shard to the journal while it is running: pins its state, makes a checkpoint that has it, and then writes its
    /// marker. A shard that has left the journal, and whose environment was closed meanwhile, gets its place again.
    ///
    /// `is_known` if the store has had the shard before.
    pub(in crate::engine::lmdb) fn join(
        &self,
        joining: Joining,
        is_known: bool,
    ) -> Result<Self, NotStarted> {
        let (shard, common) = (joining.shard, &self.common);
        let (epoch, open) = open(joining, &common.journalled.identity)?;
        if epoch > common.journalled.epoch {
            let reason = "it was written after the journal of the other shards was started";
            return Err(NotStarted::Damaged(reason.to_owned()));
        }
        let data = open.data()?;
        let before = marker::find(&data)?.unwrap_or(Marker::None);
        let base = common.first_base(shard, is_known)?;
        let turn = common.turn();
        let at = {
            let is_free = |own: &Shard| own.number == shard && own.lock().is_none();
            let known = common.shards.iter().position(is_free);
            if known.is_none() && common.shards.len() >= common.room {
                let reason = "too many shards have been added since the store was opened; open it again, and then add the shard";
                return Err(io::Error::other(reason).into());
            }
            common.lock().open += 1;
            if let Some((at, own)) = known.and_then(|at| Some((at, common.shards.get(at)?))) {
                own.enter(open);
                at
            } else {
                common.shards.push(Shard::new(shard, open, true));
                common.shards.len() - 1
            }
        };
        let member = Self { common: Arc::clone(common), at };
        member.mark(&turn, &data, before)?;
        drop(turn);
        base.joined();
        if let Some(shard) = member.shard() {
            shard.join();
        }
        Ok(member)
    }

    /// Makes a checkpoint that has the shard, which was opened in its place, and then writes its marker. After an error, the shard
    /// is closed, and has its marker of before. If that could not be written, no shard is written until the next opening.
    fn mark(&self, turn: &Turn<'_>, data: &File, before: Marker) -> io::Result<()> {
        let (common, Some(shard)) = (&*self.common, self.shard()) else { return Ok(()) };
        let needed = Marker::Needed(common.journalled(shard.number));
        let marked = common.checkpoint_now(turn, TRIES).and_then(|()| {
            marker::put_durably(data, needed).inspect_err(|_| {
                // Nothing was written to the shard, so it is complete without the journal.
                if marker::put_durably(data, before).is_err() {
                    // Its marker may require the checkpoint, which must then stay the last one.
                    common.refuse(DATA_SYNC);
                }
            })
        });
        if marked.is_err() {
            common.count_closed();
            drop(shard.lock().take());
        }
        marked
    }

    /// Ends the journal of this data file. If LMDB can still write, and no error occurs, the data file is complete without the
    /// journal afterwards. Otherwise, the next opening applies the journal, and until then no shard is written.
    pub(in crate::engine::lmdb) fn close(&self, is_writable: bool) {
        let common = &*self.common;
        let turn = common.turn();
        common.record_streamed();
        let shard = self.shard();
        if is_writable {
            common.shrink_closed(&turn);
        }
        let open = shard.and_then(|shard| shard.lock().take());
        if let (Some(open), Some(shard)) = (&open, shard) {
            if self.complete(open, is_writable) {
                shard.closed.store(open.number, SeqCst);
            } else {
                // The next checkpoint would lack the state of this shard. Without checkpoints, the journal would grow with
                // each commit of the other shards.
                common.refuse(INCOMPLETE);
            }
            common.count_closed();
        }
        let mut state = common.lock();
        state.is_closed |= state.open == 0;
        let is_closed = state.is_closed;
        let archiver = if state.open == 0 { state.archiver.take() } else { None };
        drop(state);
        drop(turn);
        if let Some(job) = common.job.get().filter(|_| is_closed) {
            job.stop();
        }
        self.wait_for_base();
        if let Some(archiver) = archiver {
            archiver.close();
        }
        drop(open);
    }

    /// Closes the shard as after an error, before its data file is complete.
    #[cfg(test)]
    pub(in crate::engine::lmdb) fn close_incomplete(&self) {
        self.close(false);
    }

    /// Removes the shard from the journal, which the other shards still use. This process no longer writes it. Returns
    /// whether the data file is complete. If it is not, the next opening of the store applies the journal, and until then no
    /// shard is written, because the next checkpoint would lack the state of this shard.
    ///
    /// `turn` waits for the turn to write, and returns it with whether LMDB can write. New writes are refused before that.
    pub(in crate::engine::lmdb) fn leave<T>(&self, turn: impl FnOnce() -> (T, bool)) -> bool {
        let Some(shard) = self.shard() else { return true };
        shard.has_left.store(true, SeqCst);
        // Before the turn to make a checkpoint, because a commit takes the locks in this order.
        let (own_turn, is_writable) = turn();
        let turn = self.common.turn();
        let open = shard.lock().take();
        let mut is_complete = true;
        if let Some(open) = &open {
            is_complete = self.complete(open, is_writable && open.is_mapped);
            if !is_complete {
                self.common.refuse(DATA_SYNC);
            }
            self.common.count_closed();
            let left = Left { slots: Arc::downgrade(&open.slots), number: open.number };
            *shard.left.lock() = Some(left);
        }
        drop((turn, own_turn));
        self.wait_for_base();
        drop(open);
        is_complete
    }

    /// Makes a checkpoint without the shard, which has left the journal. The shard still belongs to the store, but is not
    /// available.
    pub(in crate::engine::lmdb) fn leave_no_records(&self) -> io::Result<()> {
        if let Some(shard) = self.shard() {
            self.common.archive_missing(shard.number);
        }
        let turn = self.common.turn();
        self.common.checkpoint_now(&turn, TRIES)
    }

    /// Whether the shard has left the journal.
    pub(in crate::engine::lmdb) fn has_left(&self) -> bool {
        self.shard().is_some_and(|shard| shard.has_left.load(SeqCst))
    }

    /// Adds this shard again, which has left the journal, and whose environment is still open. Nothing may have been written
    /// to it since: the marker, the lock of the writer and the number of the last commit show that.
    pub(in crate::engine::lmdb) fn rejoin(&self, joining: Joining) -> Result<(), NotStarted> {
        let (number, common) = (joining.shard, &*self.common);
        let written = || NotStarted::from(io::Error::other(WRITTEN));
        let shard = self.shard().filter(|shard| shard.number == number).ok_or_else(written)?;
        let (slots, last) = {
            let left = shard.left.lock();
            let known = left.as_ref().ok_or_else(written)?;
            (known.slots.upgrade().ok_or_else(written)?, known.number)
        };
        let joining = Joining { slots: Some(slots), ..joining };
        let (epoch, open) = open(joining, &common.journalled.identity)?;
        if epoch != common.journalled.epoch || open.number != last {
            return Err(written());
        }
        let data = open.data()?;
        let before = marker::find(&data)?.unwrap_or(Marker::None);
        let base = common.first_base(number, true)?;
        let turn = common.turn();
        common.lock().open += 1;
        shard.enter(open);
        self.mark(&turn, &data, before)?;
        drop(turn);
        base.joined();
        shard.join();
        Ok(())
    }

    /// Makes the data file of a shard complete without the journal. Returns whether the data file is complete, and its marker
    /// says so. With the marker of before, the next opening needs the state of the shard in the journal, although it has
    /// nothing to apply.
    fn complete(&self, open: &Open, is_writable: bool) -> bool {
        if !is_writable || self.common.refused().is_some() || open.env.force_sync().is_err() {
            return false;
        }
        let shard = self.shard().map_or(0, |shard| shard.number);
        let clean = Marker::Clean(self.common.journalled(shard));
        open.data().and_then(|data| marker::put_durably(&data, clean)).is_ok()
    }
}
