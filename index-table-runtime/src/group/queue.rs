//! Where closures wait, as many as there is room for.

use std::{
    collections::{BTreeMap, VecDeque},
    mem,
    sync::{
        Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    task::Waker,
};

use super::{contained, job::Entry, reply::Submitted};
use crate::error::{Error, Result};

pub(super) struct Queue {
    capacity: usize,
    tickets: AtomicU64,
    state: Mutex<State>,
    /// There is something in it, or it is closed.
    work: Condvar,
    /// There is room in it, or it is closed.
    room: Condvar,
    ended: Condvar,
}

#[derive(Default)]
struct State {
    entries: VecDeque<Entry>,
    /// Tasks that wait for room, by their tickets. All are woken when there is some: one that was woken
    /// alone and is never polled again would keep the others waiting.
    tasks: BTreeMap<u64, Waker>,
    closed: bool,
    /// The thread is gone.
    ended: bool,
}

/// Why an entry is not in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    Full,
    Closed,
}

impl Queue {
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            capacity,
            tickets: AtomicU64::new(0),
            state: Mutex::default(),
            work: Condvar::new(),
            room: Condvar::new(),
            ended: Condvar::new(),
        }
    }

    /// By what a task that waits for room is known.
    pub(super) fn ticket(&self) -> u64 {
        self.tickets.fetch_add(1, Ordering::Relaxed)
    }

    /// Appends an entry, and waits for room unless that is refused. One that can't be accepted gets
    /// the error as its result.
    pub(super) fn push(&self, entry: Entry, may_wait: impl Fn() -> Result<()>) {
        let mut state = self.state();
        let error = loop {
            if state.closed {
                break Error::WriterClosed;
            }
            if state.entries.len() < self.capacity {
                return self.append(&mut state, entry);
            }
            if let Err(error) = may_wait() {
                break error;
            }
            state = wait(&self.room, state);
        };
        drop(state);
        entry.reply(Some(error));
    }

    /// Appends the entry that `make` makes if there is room. If there is none, the task is woken when
    /// there is some.
    pub(super) fn try_push<T, E>(
        &self,
        task: Option<(u64, &Waker)>,
        make: impl FnOnce() -> Option<(Entry, Submitted<T, E>)>,
    ) -> Result<Submitted<T, E>, Refused> {
        let mut state = self.state();
        if state.closed {
            return Err(Refused::Closed);
        }
        if state.entries.len() < self.capacity
            && let Some((entry, submitted)) = make()
        {
            self.append(&mut state, entry);
            return Ok(submitted);
        }
        if let Some((ticket, waker)) = task {
            let before = state.tasks.insert(ticket, waker.clone());
            // Without the lock: it may be the last to hold a task that is in the queue too.
            drop(state);
            drop(before);
        }
        Err(Refused::Full)
    }

    /// A task no longer waits for room.
    pub(super) fn leave(&self, ticket: u64) {
        let waker = self.state().tasks.remove(&ticket);
        // Without the lock.
        drop(waker);
    }

    fn append(&self, state: &mut State, entry: Entry) {
        state.entries.push_back(entry);
        if state.entries.len() == 1 {
            self.work.notify_one();
        }
    }

    /// Waits for entries, and takes what is there, up to `most`; `false`: there will be none.
    pub(super) fn take(&self, most: usize, to: &mut VecDeque<Entry>) -> bool {
        let mut state = self.state();
        while state.entries.is_empty() {
            if state.closed {
                return false;
            }
            state = wait(&self.work, state);
        }
        self.move_out(state, most, to);
        true
    }

    /// Takes what is there, up to `most`, and does not wait for it.
    pub(super) fn take_more(&self, most: usize, to: &mut VecDeque<Entry>) {
        let state = self.state();
        if !state.entries.is_empty() {
            self.move_out(state, most, to);
        }
    }

    fn move_out(&self, mut state: MutexGuard<'_, State>, most: usize, to: &mut VecDeque<Entry>) {
        let most = most.min(state.entries.len());
        to.extend(state.entries.drain(..most));
        let tasks = mem::take(&mut state.tasks);
        drop(state);
        self.room.notify_all();
        wake(tasks);
    }

    /// Refuses what comes from now on.
    pub(super) fn close(&self) {
        let tasks = {
            let mut state = self.state();
            state.closed = true;
            mem::take(&mut state.tasks)
        };
        self.work.notify_all();
        self.room.notify_all();
        wake(tasks);
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state().closed
    }

    /// The thread is done. What is left, if it has died, is told so.
    pub(super) fn end(&self) {
        self.close();
        let entries = mem::take(&mut self.state().entries);
        contained(|| drop(entries));
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
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn wait<'q>(condition: &Condvar, state: MutexGuard<'q, State>) -> MutexGuard<'q, State> {
    condition.wait(state).unwrap_or_else(PoisonError::into_inner)
}

fn wake(tasks: BTreeMap<u64, Waker>) {
    for task in tasks.into_values() {
        // One that panics is not to keep the others waiting, or to end the thread.
        contained(|| task.wake());
    }
}
