//! The queue of closures, followed by the closures that wait for room.

use std::{
    collections::VecDeque,
    mem,
    sync::atomic::{AtomicUsize, Ordering},
};

use super::{contained, job::Entry, reply::Submitted};
use crate::{
    locks::{Condvar, Mutex, MutexGuard, rank},
    model::error::{Error, Result},
};

pub(in crate::store) struct Queue {
    /// The number of entries with room.
    capacity: AtomicUsize,
    /// The maximum number of entries in a commit.
    most: AtomicUsize,
    state: Mutex<State, rank::GroupQueue>,
    /// Notified when the queue is not empty, or is closed.
    work: Condvar,
    /// Notified when the queue has room, or is closed.
    room: Condvar,
    ended: Condvar,
}

#[derive(Default)]
struct State {
    /// The entries in order, with ascending numbers. They include closures without room, for which a thread
    /// or task waits, so that later closures don't overtake them.
    entries: VecDeque<(u64, Entry)>,
    /// The number of the next entry.
    next: u64,
    closed: bool,
    /// Whether the thread has ended.
    ended: bool,
}

/// The reason why an entry is not in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    Full,
    Closed,
}

/// The handling of an entry without room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WithoutRoom {
    Refuse,
    /// The entry waits for room until it [leaves](Queue::leave).
    Wait,
}

impl Queue {
    pub(super) fn new(capacity: usize, most: usize) -> Self {
        Self {
            capacity: AtomicUsize::new(capacity),
            most: AtomicUsize::new(most),
            state: Mutex::default(),
            work: Condvar::new(),
            room: Condvar::new(),
            ended: Condvar::new(),
        }
    }

    /// Changes the number of entries with room. Wakes the threads that wait for room.
    pub(super) fn set_capacity(&self, capacity: usize) {
        let state = self.state();
        self.capacity.store(capacity, Ordering::Relaxed);
        drop(state);
        self.room.notify_all();
    }

    pub(super) fn set_most(&self, most: usize) {
        self.most.store(most, Ordering::Relaxed);
    }

    pub(super) fn most(&self) -> usize {
        self.most.load(Ordering::Relaxed)
    }

    pub(super) fn capacity(&self) -> usize {
        self.capacity.load(Ordering::Relaxed)
    }

    /// Appends an entry, and waits until it has room unless waiting is refused. An entry that can't be
    /// accepted gets the error as its result.
    pub(super) fn push(&self, entry: Entry, may_wait: impl FnOnce() -> Result<()>) {
        let mut state = self.state();
        let accepted = if state.closed {
            Err(Error::WriterClosed)
        } else if state.entries.len() < self.capacity() {
            Ok(())
        } else {
            may_wait()
        };
        if let Err(error) = accepted {
            drop(state);
            return entry.reply(Some(error));
        }
        let number = self.append(&mut state, entry);
        while self.waiting(&state, number).is_some() {
            state = wait(&self.room, state);
        }
    }

    /// Appends the entry that `make` returns if there is room, or if the entry waits for room. Returns the
    /// number of the entry.
    pub(super) fn try_push<T, E>(
        &self,
        without_room: WithoutRoom,
        make: impl FnOnce() -> Option<(Entry, Submitted<T, E>)>,
    ) -> Result<(u64, Submitted<T, E>), Refused> {
        let mut state = self.state();
        if state.closed {
            return Err(Refused::Closed);
        }
        if (state.entries.len() < self.capacity() || without_room == WithoutRoom::Wait)
            && let Some((entry, submitted)) = make()
        {
            return Ok((self.append(&mut state, entry), submitted));
        }
        Err(Refused::Full)
    }

    /// Removes the entry with this number if it waits for room, or if it has room and `cancels` is set.
    pub(super) fn leave(&self, number: u64, cancels: bool) {
        let mut state = self.state();
        let at = state.entries.binary_search_by_key(&number, |(number, _)| *number).ok();
        let at = at.filter(|at| cancels || *at >= self.capacity());
        let entry = at.and_then(|at| state.entries.remove(at));
        // User code must not run under the lock.
        drop(state);
        if cancels && entry.is_some() {
            self.room.notify_all();
        }
        drop(entry);
    }

    /// Returns the number of entries that the thread has not taken.
    #[cfg(feature = "async")]
    pub(in crate::store) fn len(&self) -> usize {
        self.state().entries.len()
    }

    fn append(&self, state: &mut State, entry: Entry) -> u64 {
        let number = state.next;
        state.next += 1;
        state.entries.push_back((number, entry));
        if state.entries.len() == 1 {
            self.work.notify_one();
        }
        number
    }

    /// Returns the position of the entry with this number if it waits for room.
    fn waiting(&self, state: &State, number: u64) -> Option<usize> {
        let at = state.entries.binary_search_by_key(&number, |(number, _)| *number).ok();
        at.filter(|at| *at >= self.capacity())
    }

    /// Waits for entries, and takes the entries of a commit. Returns false if there will be none.
    pub(super) fn take(&self, to: &mut VecDeque<Entry>) -> bool {
        let mut state = self.state();
        while state.entries.is_empty() {
            if state.closed {
                return false;
            }
            state = wait(&self.work, state);
        }
        self.move_out(state, self.most(), to);
        true
    }

    /// Takes up to `most` entries without waiting.
    pub(super) fn take_more(&self, most: usize, to: &mut VecDeque<Entry>) {
        let state = self.state();
        if !state.entries.is_empty() {
            self.move_out(state, most, to);
        }
    }

    fn move_out(&self, mut state: MutexGuard<'_, State>, most: usize, to: &mut VecDeque<Entry>) {
        let most = most.min(state.entries.len());
        to.extend(state.entries.drain(..most).map(|(_, entry)| entry));
        drop(state);
        self.room.notify_all();
    }

    /// Refuses later entries, and entries that wait for room.
    pub(in crate::store) fn close(&self) {
        let refused = {
            let mut state = self.state();
            state.closed = true;
            let accepted = self.capacity().min(state.entries.len());
            state.entries.split_off(accepted)
        };
        self.work.notify_all();
        self.room.notify_all();
        refuse(refused);
    }

    pub(in crate::store) fn is_closed(&self) -> bool {
        self.state().closed
    }

    /// Records that the thread has ended. If it has panicked, the remaining entries get an error.
    pub(super) fn end(&self) {
        self.close();
        let entries = mem::take(&mut self.state().entries);
        refuse(entries);
        self.state().ended = true;
        self.ended.notify_all();
    }

    pub(super) fn wait_for_the_end(&self) {
        let mut state = self.state();
        while !state.ended {
            state = wait(&self.ended, state);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

fn wait<'q>(condition: &Condvar, state: MutexGuard<'q, State>) -> MutexGuard<'q, State> {
    condition.wait(state)
}

/// Drops entries, which report that the writer is closed. A panic in one entry must not affect the others.
fn refuse(entries: VecDeque<(u64, Entry)>) {
    for entry in entries {
        contained(|| drop(entry));
    }
}
