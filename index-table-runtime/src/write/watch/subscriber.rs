//! The subscribers of a table, and their buffers.

use std::{
    collections::VecDeque,
    mem,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering, fence},
    },
    task::Waker,
};

use super::watched::Pending;
use crate::{
    engine::CommitNumber,
    locks::{Condvar, Mutex, MutexGuard},
};
use crate::{
    model::{lists::Lists, maintain::Image, schema::Source},
    query::Bounds,
};

/// The subscribers of a table.
#[derive(Default)]
pub(crate) struct Watchers {
    list: Mutex<List>,
    /// The length of the list, for a fast check of the usual case that it is empty.
    count: AtomicUsize,
}

#[derive(Default)]
struct List {
    /// The subscribers by id; `None` if there are none. Transactions share the list, so a change replaces it.
    subscribers: Option<Subscribers>,
    /// The next id.
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
        // Precedes the read of a snapshot; see `is_empty`.
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

    /// Whether there are no subscribers. A concurrent subscription may be missed.
    #[inline]
    pub(crate) fn seems_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// Returns true if no subscriber can have missed the last commit. A subscriber and a writer each write a
    /// variable, issue a fence, and read the variable of the other, so at least one of them sees the other's write.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        fence(Ordering::SeqCst);
        self.seems_empty()
    }

    /// Returns the subscribers and the next id.
    pub(crate) fn now(&self) -> (Option<Subscribers>, u64) {
        let list = self.list();
        (list.subscribers.clone(), list.next)
    }

    /// Ends the subscriptions: there will be no more changes.
    pub(crate) fn close(&self) {
        let mut wakers = Vec::new();
        for subscriber in self.now().0.iter().flat_map(|subscribers| subscribers.iter()) {
            wakers.extend(subscriber.change(|buffer| buffer.closed = true));
        }
        super::wake(wakers);
    }

    fn list(&self) -> MutexGuard<'_, List> {
        self.list.lock()
    }
}

/// A subscriber: its scans, and its buffer.
pub(crate) struct Subscriber {
    pub(crate) id: u64,
    /// The watched scans. The subscriber gets the rows that any of them finds, or all rows if it is empty.
    filters: Box<[Filter]>,
    pub(crate) limits: Limits,
    buffer: Mutex<Buffer>,
    pub(crate) filled: Condvar,
}

/// The rows that a scan finds.
pub(crate) struct Filter {
    pub(crate) source: Source,
    pub(crate) bounds: Bounds,
    pub(crate) lists: Arc<Lists>,
}

/// The limits of the buffer.
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

/// The buffer: first the notice that changes were dropped, then later changes.
#[derive(Default)]
pub(crate) struct Buffer {
    pub(crate) lagged: Option<Lagged>,
    /// The changes, with the numbers of their commits.
    pub(crate) changes: VecDeque<(CommitNumber, WatchedChange)>,
    /// The bytes of the rows in `changes`.
    pub(crate) bytes: usize,
    pub(crate) waker: Option<Waker>,
    /// Whether the store is closed.
    pub(crate) closed: bool,
}

impl Subscriber {
    pub(crate) fn watches(&self, row: &Image) -> bool {
        self.filters.is_empty()
            || self
                .filters
                .iter()
                .any(|filter| filter.bounds.find(&filter.lists, filter.source, row))
    }

    /// Buffers the changes of a commit, all or none, so that a commit is never received in part.
    pub(crate) fn take(&self, commit: &CommitNumber, pending: Pending) -> Option<Waker> {
        let Pending { changes, bytes, missed } = pending;
        self.change(|buffer| {
            let all = (buffer.changes.len() + changes.len(), buffer.bytes + bytes);
            if missed == 0 && self.limits.allow(all.0, all.1) {
                buffer.bytes = all.1;
                buffer.changes.extend(changes.into_iter().map(|noted| (commit.clone(), noted)));
            } else {
                buffer.miss(commit, missed + changes.len() as u64);
            }
        })
    }

    /// Records a commit whose changes do not fit.
    pub(crate) fn miss(&self, commit: &CommitNumber, missed: u64) -> Option<Waker> {
        self.change(|buffer| buffer.miss(commit, missed))
    }

    /// Changes the buffer and returns the waker. The caller must wake it without holding a lock.
    fn change(&self, change: impl FnOnce(&mut Buffer)) -> Option<Waker> {
        let mut buffer = self.buffer();
        change(&mut buffer);
        let waker = buffer.waker.take();
        drop(buffer);
        self.filled.notify_all();
        waker
    }

    pub(crate) fn buffer(&self) -> MutexGuard<'_, Buffer> {
        self.buffer.lock()
    }
}

impl Buffer {
    fn miss(&mut self, commit_number: &CommitNumber, missed: u64) {
        self.bytes = 0;
        let dropped = mem::take(&mut self.changes).len() as u64;
        let lagged = self.lagged.get_or_insert_default();
        lagged.missed += dropped + missed;
        lagged.commit_number.join(commit_number);
    }
}

/// The change for a subscriber, without rows that it does not watch.
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

/// Changes were dropped, because the buffer had no room or they can't be reported one by one. Read the table or
/// query again, in a transaction that begins after this event was received: its snapshot contains all dropped
/// changes, and later events continue it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Lagged {
    /// The approximate number of dropped changes, for a report. If the changes can't be reported one by one, the
    /// number includes all written rows and no repaired rows.
    pub missed: u64,
    /// The number of the last commit with a dropped change; in a sharded store, of the last such commit of each shard.
    pub commit_number: CommitNumber,
}
