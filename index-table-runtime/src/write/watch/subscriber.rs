//! Who watches a table, and what waits for them.

use std::{
    collections::VecDeque,
    mem,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering, fence},
    },
    task::Waker,
};

use super::watched::Pending;
use crate::engine::{CommitNumber, Stamp};
use crate::{
    model::{maintain::Image, schema::Source},
    query::Bounds,
};

/// Those who watch a table.
#[derive(Default)]
pub(crate) struct Watchers {
    list: Mutex<List>,
    /// How many are in the list, for those who find nobody there, as most do.
    count: AtomicUsize,
}

#[derive(Default)]
struct List {
    /// By their ids. A list is never changed, since transactions keep it; there is none that is empty.
    subscribers: Option<Subscribers>,
    /// The id of the next one.
    next: u64,
}

pub(crate) type Subscribers = Arc<[Arc<Subscriber>]>;

impl Watchers {
    pub(crate) fn subscribe(&self, filters: Vec<Filter>, limits: Limits) -> Arc<Subscriber> {
        let mut list = self.list();
        let subscriber = Arc::new(Subscriber {
            id: list.next,
            filters: filters.into(),
            limits,
            buffer: Mutex::default(),
            filled: Condvar::new(),
        });
        list.next += 1;
        let others = list.subscribers.iter().flat_map(|others| others.iter());
        let all = others.chain([&subscriber]).cloned().collect();
        self.replace(&mut list, all);
        // Before a snapshot is read: see `is_empty`.
        fence(Ordering::SeqCst);
        subscriber
    }

    pub(crate) fn unsubscribe(&self, id: u64) {
        let mut list = self.list();
        let others = list.subscribers.iter().flat_map(|others| others.iter());
        let others = others.filter(|other| other.id != id).cloned().collect();
        self.replace(&mut list, others);
    }

    fn replace(&self, list: &mut List, subscribers: Subscribers) {
        self.count.store(subscribers.len(), Ordering::Relaxed);
        list.subscribers = (!subscribers.is_empty()).then_some(subscribers);
    }

    /// Whether nobody watches; who begins to at the same time may be overlooked.
    #[inline]
    pub(crate) fn seems_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// Whether nobody watches who could have read a snapshot without what was committed before this is
    /// asked: of two who write one place, put a fence, and read the other's, one sees the other.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        fence(Ordering::SeqCst);
        self.seems_empty()
    }

    /// Those who watch, and the id of the next one.
    pub(crate) fn now(&self) -> (Option<Subscribers>, u64) {
        let list = self.list();
        (list.subscribers.clone(), list.next)
    }

    /// There won't be any changes any more.
    pub(crate) fn close(&self) {
        let mut wakers = Vec::new();
        for subscriber in self.now().0.iter().flat_map(|subscribers| subscribers.iter()) {
            wakers.extend(subscriber.change(|buffer| buffer.closed = true));
        }
        super::wake(wakers);
    }

    fn list(&self) -> MutexGuard<'_, List> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Who watches: what, and what waits to be received.
pub(crate) struct Subscriber {
    pub(crate) id: u64,
    /// The rows that any of them finds; none: all.
    filters: Box<[Filter]>,
    pub(crate) limits: Limits,
    buffer: Mutex<Buffer>,
    pub(crate) filled: Condvar,
}

/// The rows that a scan finds.
pub(crate) struct Filter {
    pub(crate) source: Source,
    pub(crate) bounds: Bounds,
}

/// How much may wait.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) changes: usize,
    pub(crate) bytes: usize,
}

impl Limits {
    pub(crate) const fn allow(self, changes: usize, bytes: usize) -> bool {
        changes <= self.changes && (changes == 1 || bytes <= self.bytes)
    }
}

/// What waits to be received: first that changes were dropped, then those that came after.
#[derive(Default)]
pub(crate) struct Buffer {
    pub(crate) lagged: Option<Lagged>,
    /// With the numbers of their commits.
    pub(crate) changes: VecDeque<(Stamp, WatchedChange)>,
    /// Of the rows in `changes`.
    pub(crate) bytes: usize,
    pub(crate) waker: Option<Waker>,
    /// The store is closed.
    pub(crate) closed: bool,
}

impl Subscriber {
    pub(crate) fn watches(&self, row: &Image) -> bool {
        self.filters.is_empty()
            || self.filters.iter().any(|filter| filter.bounds.find(filter.source, row))
    }

    /// Takes the changes of a commit: all of them, or none, so that a commit is never received in part.
    pub(crate) fn take(&self, commit: Stamp, pending: Pending) -> Option<Waker> {
        let Pending { changes, bytes, missed } = pending;
        self.change(|buffer| {
            let all = (buffer.changes.len() + changes.len(), buffer.bytes + bytes);
            if missed == 0 && self.limits.allow(all.0, all.1) {
                buffer.bytes = all.1;
                buffer.changes.extend(changes.into_iter().map(|noted| (commit, noted)));
            } else {
                buffer.miss(commit, missed + changes.len() as u64);
            }
        })
    }

    /// Takes note of a commit whose changes it can't have.
    pub(crate) fn miss(&self, commit: Stamp, missed: u64) -> Option<Waker> {
        self.change(|buffer| buffer.miss(commit, missed))
    }

    /// The waker is to be woken without a lock.
    fn change(&self, change: impl FnOnce(&mut Buffer)) -> Option<Waker> {
        let mut buffer = self.buffer();
        change(&mut buffer);
        let waker = buffer.waker.take();
        drop(buffer);
        self.filled.notify_all();
        waker
    }

    pub(crate) fn buffer(&self) -> MutexGuard<'_, Buffer> {
        self.buffer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Buffer {
    fn miss(&mut self, commit_number: Stamp, missed: u64) {
        self.bytes = 0;
        let dropped = mem::take(&mut self.changes).len() as u64;
        let before = self.lagged.take().map_or(0, |lagged| lagged.missed);
        let commit_number = commit_number.commit_number();
        self.lagged = Some(Lagged { missed: before + dropped + missed, commit_number });
    }
}

/// A change as a subscriber gets it; a row that it doesn't watch is left out.
pub(crate) struct WatchedChange {
    pub(crate) before: Option<Stored>,
    pub(crate) after: Option<Stored>,
}

impl WatchedChange {
    pub(crate) fn bytes(&self) -> usize {
        let rows = [&self.before, &self.after];
        rows.into_iter().flatten().map(|stored| stored.bytes.len()).sum()
    }
}

/// A row's primary key and its bytes, which all subscribers share.
#[derive(Clone)]
pub(crate) struct Stored {
    bytes: Arc<[u8]>,
    key_len: usize,
}

impl Stored {
    pub(crate) fn of(row: &Image) -> Self {
        let (key, row) = (row.primary_key(), row.row());
        Self { bytes: [key, row].concat().into(), key_len: key.len() }
    }

    pub(crate) fn key(&self) -> &[u8] {
        self.bytes.split_at_checked(self.key_len).unwrap_or_default().0
    }

    pub(crate) fn row(&self) -> &[u8] {
        self.bytes.split_at_checked(self.key_len).unwrap_or_default().1
    }
}

/// Changes were dropped: there was no room for them, or they could not be told one by one. What is
/// watched is to be read again, in a transaction that begins after this was received; it has all that
/// was dropped. What is received next comes after that.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lagged {
    /// About how many changes were dropped, for a report: where they were not told one by one, all
    /// rows are counted that were written, and none that were repaired.
    pub missed: u64,
    /// The number of the last commit with such a change.
    pub commit_number: CommitNumber,
}
