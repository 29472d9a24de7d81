//! The notes of a write transaction for subscribers.

use std::{collections::BTreeMap, task::Waker};

use super::subscriber::{Limits, Stored, Subscriber, Subscribers, WatchedChange, Watchers};
use crate::engine::CommitNumber;
use crate::model::maintain::Image;

/// The changes of one table in one write transaction, for the subscribers that existed at its first write; empty
/// if there were no subscribers.
///
/// Dropping it delivers nothing, so a rollback leaves no events.
pub(crate) struct Watched(Option<Box<Notes>>);

#[derive(Default)]
struct Notes {
    subscribers: Option<Subscribers>,
    /// The end of the ids of the noted subscribers. Later subscribers have missed earlier changes.
    until: u64,
    /// The changes by the subscribers' ids.
    pending: BTreeMap<u64, Pending>,
    /// The number of subscribers that have reached their limits.
    full: usize,
    /// Whether there are changes that can't be reported row by row.
    untold: bool,
}

/// The changes that a subscriber gets when they are committed.
#[derive(Default)]
pub(crate) struct Pending {
    pub(crate) changes: Vec<WatchedChange>,
    /// The bytes of the rows in `changes`.
    pub(crate) bytes: usize,
    /// The number of dropped changes. It is 0 while all changes may fit into the buffer.
    pub(crate) missed: u64,
}

impl Pending {
    fn push(&mut self, change: WatchedChange, limits: Limits) {
        self.bytes += change.bytes();
        if self.missed == 0 && limits.allow(self.changes.len() + 1, self.bytes) {
            self.changes.push(change);
        } else {
            self.miss(1);
        }
    }

    fn append(&mut self, more: Self, limits: Limits) {
        more.changes.into_iter().for_each(|change| self.push(change, limits));
        if more.missed > 0 {
            self.miss(more.missed);
        }
    }

    fn miss(&mut self, count: u64) {
        self.missed += count + std::mem::take(&mut self.changes).len() as u64;
    }
}

impl Watched {
    pub(crate) fn new(watchers: &Watchers) -> Self {
        if watchers.seems_empty() {
            return Self(None);
        }
        let (subscribers, until) = watchers.now();
        Self(Some(Box::new(Notes { subscribers, until, ..Notes::default() })))
    }

    /// Notes that a row has changed.
    #[inline]
    pub(crate) fn note(&mut self, old: Option<&Image>, new: Option<&Image>) {
        if let Some(notes) = &mut self.0 {
            notes.note(old, new);
        }
    }

    /// Whether a subscriber has room for another change.
    pub(crate) fn takes_notes(&self) -> bool {
        self.0.as_ref().is_some_and(|notes| notes.takes_more())
    }

    /// Notes a change that can't be reported row by row.
    pub(crate) fn note_untold(&mut self) {
        self.0.get_or_insert_default().untold = true;
    }

    /// Appends the notes of a nested transaction.
    pub(crate) fn add(&mut self, more: Self) {
        match (&mut self.0, more.0) {
            (Some(notes), Some(more)) => notes.add(*more),
            // A subscriber that was added in between has missed the earlier changes.
            (None, Some(more)) if more.untold => self.note_untold(),
            (_, None) | (None, Some(_)) => {}
        }
    }

    /// Delivers the notes after the commit with this number; `rows` is the number of written rows. The caller
    /// wakes the wakers when other threads can write again.
    ///
    /// A later subscriber reads a snapshot that contains the commit.
    #[inline]
    pub(crate) fn deliver(
        &mut self,
        watchers: &Watchers,
        commit: &CommitNumber,
        rows: u64,
        wakers: &mut Vec<Waker>,
    ) {
        if !watchers.is_empty() {
            let notes = self.0.take().unwrap_or_default();
            notes.deliver(watchers, commit, rows, wakers);
        }
    }
}

impl Notes {
    #[inline(never)]
    fn note(&mut self, old: Option<&Image>, new: Option<&Image>) {
        let (mut before, mut after) = (None, None);
        let Self { subscribers, pending, full, .. } = self;
        for subscriber in subscribers.iter().flat_map(|subscribers| subscribers.iter()) {
            let Subscriber { id, limits, .. } = &**subscriber;
            let noted = WatchedChange {
                before: seen_by(subscriber, old, &mut before),
                after: seen_by(subscriber, new, &mut after),
            };
            if noted.before.is_some() || noted.after.is_some() {
                let pending = pending.entry(*id).or_default();
                let was_over = pending.missed > 0;
                pending.push(noted, *limits);
                *full += usize::from(!was_over && pending.missed > 0);
            }
        }
    }

    fn takes_more(&self) -> bool {
        let all = self.subscribers.as_ref().map_or(0, |subscribers| subscribers.len());
        !self.untold && self.full < all
    }

    fn add(&mut self, more: Self) {
        let Self { subscribers, pending, full, .. } = self;
        self.untold |= more.untold;
        let mut later = more.pending;
        for subscriber in subscribers.iter().flat_map(|subscribers| subscribers.iter()) {
            if let Some(more) = later.remove(&subscriber.id) {
                pending.entry(subscriber.id).or_default().append(more, subscriber.limits);
            }
        }
        *full = pending.values().filter(|pending| pending.missed > 0).count();
    }

    #[cold]
    fn deliver(
        mut self,
        watchers: &Watchers,
        commit: &CommitNumber,
        rows: u64,
        wakers: &mut Vec<Waker>,
    ) {
        let (subscribers, _) = watchers.now();
        for subscriber in subscribers.iter().flat_map(|subscribers| subscribers.iter()) {
            let changes = self.pending.remove(&subscriber.id);
            if self.untold || (subscriber.id >= self.until && rows > 0) {
                wakers.extend(subscriber.miss(commit, rows));
            } else if let Some(changes) = changes {
                wakers.extend(subscriber.take(commit, changes));
            }
        }
    }
}

/// Returns the row if the subscriber watches it. The row is copied once, for the first such subscriber.
fn seen_by(
    subscriber: &Subscriber,
    row: Option<&Image>,
    stored: &mut Option<Stored>,
) -> Option<Stored> {
    let row = row.filter(|row| subscriber.watches(row))?;
    Some(stored.get_or_insert_with(|| Stored::of(row)).clone())
}
