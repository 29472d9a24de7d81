//! The thread that runs what was submitted.

use std::{cell::Cell, collections::VecDeque, sync::Arc, thread};

use super::{
    contained,
    job::{Done, Entry},
    queue::Queue,
};
use crate::{
    model::error::{Error, Result},
    store::{Inner, Store, WriteTxn},
};

/// The name of the thread.
const NAME: &str = "group-writer";

thread_local! {
    /// The [`Inner::id`] of the store, in the thread of a writer.
    static WRITES_TO: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Whether this thread would wait for itself if it waited for a writer of the store: because it has the
/// write transaction, or is such a writer's own, which drops what closures hold, and wakes tasks.
pub(super) fn refuse_to_wait(store: &Inner) -> Result<()> {
    if WRITES_TO.get() == Some(store.id) {
        return Err(Error::WriteInProgress);
    }
    store.refuse_nested_write()
}

/// Starts the thread of a writer of the store with this [`Inner::id`].
pub(super) fn start(queue: &Arc<Queue>, most: usize, store: u64) -> Result<()> {
    let ended = Ended(Arc::clone(queue));
    thread::Builder::new()
        .name(NAME.to_owned())
        .spawn(move || {
            WRITES_TO.set(Some(store));
            Groups::new(&ended.0, most).run();
        })
        .map(drop)
        .map_err(|source| Error::Thread { name: NAME, source })
}

/// However the thread ends, nobody waits for it forever.
struct Ended(Arc<Queue>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.end();
    }
}

struct Groups<'q> {
    queue: &'q Queue,
    most: usize,
    /// Taken out of the queue, in their order.
    entries: VecDeque<Entry>,
    /// The first of them have met the end of the map.
    full: Option<Full>,
    /// How many of the first are run one by one, because together they don't fit into the map.
    alone: usize,
    /// The table of whose eventual indexes the queue was full for the first of them.
    blocked: Option<&'static str>,
}

struct Full {
    entries: usize,
    /// The size of the map.
    at: usize,
}

/// Those who get a reply, each with the error that is in the place of their own outcome.
type Replies = Vec<(Done, Option<Error>)>;

/// What a transaction holds.
#[derive(Default)]
struct Group {
    /// In their order, with the error that is in the place of their own outcome.
    entries: Vec<(Entry, Option<Error>)>,
    /// The first closure has failed, and what it has written is still there.
    spoiled: bool,
    /// The size of the map when the one that comes next met its end.
    full_at: Option<usize>,
    /// As in [`Groups`], for the one that comes next.
    blocked: Option<&'static str>,
}

impl<'q> Groups<'q> {
    const fn new(queue: &'q Queue, most: usize) -> Self {
        Self { queue, most, entries: VecDeque::new(), full: None, alone: 0, blocked: None }
    }

    fn run(mut self) {
        while !self.entries.is_empty() || self.queue.take(self.most, &mut self.entries) {
            let replies = self.write();
            self.reply(replies);
            // After the replies: who waits for one may be a reader that is in the way.
            let replies = self.grow();
            self.reply(replies);
            let replies = self.wait_for_room();
            self.reply(replies);
        }
    }

    /// Nothing of what gets a reply keeps the store open any more.
    fn reply(&mut self, replies: Replies) {
        self.alone = self.alone.saturating_sub(replies.len());
        for (done, error) in replies {
            // A waker that panics is not to end the thread.
            contained(|| done.reply(error));
        }
    }

    /// Runs what was taken, and what comes meanwhile, in one transaction.
    fn write(&mut self) -> Replies {
        let Some(store) = self.store() else { return Replies::new() };
        let mut txn = match store.write() {
            Ok(txn) => txn,
            Err(error) => return self.fail(self.entries.len(), &error),
        };
        let Group { entries, spoiled, mut full_at, blocked } = self.fill(&store, &mut txn);
        self.blocked = blocked;
        let committed = if spoiled || entries.is_empty() {
            drop(txn);
            Ok(())
        } else {
            txn.commit()
        };
        let mut full = usize::from(full_at.is_some());
        let replies = match committed {
            Ok(()) => entries.into_iter().map(|(entry, error)| (entry.done(), error)).collect(),
            Err(Error::MapFull { map_size }) => {
                (full_at, self.blocked) = (Some(map_size), None);
                full += entries.len();
                entries.into_iter().rev().for_each(|(entry, _)| self.entries.push_front(entry));
                Replies::new()
            }
            Err(error) => {
                entries.into_iter().map(|(entry, _)| (entry.done(), Some(error.again()))).collect()
            }
        };
        self.full = full_at.map(|at| Full { entries: full, at });
        replies
    }

    /// Runs closures until there is none, or enough.
    fn fill(&mut self, store: &Store, txn: &mut WriteTxn<'_>) -> Group {
        let most = if self.alone > 0 { 1 } else { self.most };
        let mut group = Group::default();
        while group.entries.len() < most {
            if self.entries.is_empty() {
                self.queue.take_more(most - group.entries.len(), &mut self.entries);
            }
            let Some(mut entry) = self.entries.pop_front() else { break };
            // The first needs no transaction of its own: there is nothing yet that it could spoil.
            let first = group.entries.is_empty();
            let (mut keeps, mut blocked) = (false, None);
            let mut run = |txn: &mut WriteTxn<'_>| {
                keeps = entry.run(txn);
                blocked = txn.refused().filter(|_| !keeps);
                keeps
            };
            let nested = if first {
                run(txn);
                // Whether the transaction is good for others.
                txn.nested(|_| true)
            } else {
                txn.nested(run)
            };
            group.spoiled = first && (!keeps || nested.is_err());
            group.full_at = store.inner.engine.full_at();
            if group.full_at.is_some() {
                // Whatever the closure has made of it, and even if it went on.
                group.spoiled = first;
                self.entries.push_front(entry);
                break;
            }
            if !first && store.inner.engine.is_too_large() {
                // The others have taken the room: it is the first of the next group.
                self.entries.push_front(entry);
                break;
            }
            if blocked.is_some() {
                group.blocked = blocked;
                self.entries.push_front(entry);
                break;
            }
            let error = nested.err().filter(|_| !entry.has_failed());
            group.entries.push((entry, error));
            if group.spoiled {
                break;
            }
        }
        group
    }

    /// Maps more if that was needed, so that those who needed it are run again. Without a transaction
    /// of this process.
    fn grow(&mut self) -> Replies {
        let (Some(Full { entries, at }), Some(store)) = (self.full.take(), self.store()) else {
            return Replies::new();
        };
        match store.inner.engine.grow(at) {
            Ok(true) => Replies::new(),
            // Some of them may fit.
            Ok(false) if entries > 1 => {
                self.alone = entries;
                Replies::new()
            }
            Ok(false) => {
                let entry = self.entries.pop_front();
                let reply = entry.map(|entry| {
                    let error = (!entry.has_failed()).then_some(Error::MapFull { map_size: at });
                    (entry.done(), error)
                });
                reply.into_iter().collect()
            }
            Err(error) => self.fail(entries, &error),
        }
    }

    /// Waits for the workers if the first has to, so that it is run again, or gets the error that it has
    /// returned when it has waited for long enough. Without a transaction, which they would wait for.
    fn wait_for_room(&mut self) -> Replies {
        let (Some(table), Some(first)) = (self.blocked.take(), self.entries.front_mut()) else {
            return Replies::new();
        };
        let error = match first.wait_for_room(table) {
            Ok(true) => return Replies::new(),
            Ok(false) => None,
            Err(error) => Some(error),
        };
        self.entries.pop_front().map(|entry| (entry.done(), error)).into_iter().collect()
    }

    /// The first so many get an error.
    fn fail(&mut self, entries: usize, error: &Error) -> Replies {
        self.entries.drain(..entries).map(|entry| (entry.done(), Some(error.again()))).collect()
    }

    fn store(&self) -> Option<Store> {
        self.entries.front().map(Entry::store)
    }
}
