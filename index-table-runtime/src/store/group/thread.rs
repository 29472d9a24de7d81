//! The thread that runs the submitted closures.

use std::{cell::Cell, collections::VecDeque, io, mem, sync::Arc, thread};

use super::{
    contained,
    job::{Done, Entry},
    queue::Queue,
};
use crate::{
    engine::{CommitFailure, Retry},
    model::error::{Error, Result},
    placement::shards::Locks,
    store::{Inner, ShardId, Store, WriteTxn, transaction::Rerun},
};

/// The name of the thread.
const NAME: &str = "group-writer";

thread_local! {
    /// In the thread of a writer, the [`Inner::id`] of its store.
    static WRITES_TO: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Fails if this thread would wait for itself by waiting for a writer of the store: if it has the write
/// transaction, or is the thread of such a writer, which drops captured values and wakes tasks.
pub(super) fn refuse_to_wait(store: &Inner) -> Result<()> {
    if WRITES_TO.get() == Some(store.id) {
        return Err(Error::WriteInProgress);
    }
    store.refuse_nested_write()
}

/// Starts the thread of a writer of the store with this [`Inner::id`], or of one shard of it.
pub(super) fn start(queue: &Arc<Queue>, store: u64, shard: Option<ShardId>) -> Result<()> {
    let ended = Ended(Arc::clone(queue));
    thread::Builder::new()
        .name(NAME.to_owned())
        .spawn(move || {
            WRITES_TO.set(Some(store));
            Groups::new(&ended.0, shard).run();
        })
        .map(drop)
        .map_err(|source| Error::Thread { name: NAME, source })
}

/// A guard that records the end of the thread, even after a panic, so that no caller waits forever.
struct Ended(Arc<Queue>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.end();
    }
}

struct Groups<'q> {
    queue: &'q Queue,
    /// The shard of the writer, in a sharded store.
    shard: Option<ShardId>,
    /// The closures from the queue, in order.
    entries: VecDeque<Entry>,
    /// The first closures that have to run again.
    again: Option<Again>,
    /// The number of first closures that run one by one, because the map has no room for all of them together.
    alone: usize,
    /// The shards that the next group of closures for keys locks first, because a closure needs them.
    locks: Locks,
}

/// Closures that are run again.
struct Again {
    rerun: Rerun,
    /// The number of closures, counted from the first one.
    entries: usize,
}

/// The closures that get a reply, each with the error that replaces its own result.
type Replies = Vec<(Done, Option<Error>)>;

/// The closures of a transaction.
#[derive(Default)]
struct Group {
    /// The closures in order, each with the error that replaces its own result.
    entries: Vec<(Entry, Option<Error>)>,
    /// Whether the first closure has failed, and its writes are not undone yet.
    spoiled: bool,
    /// The reason why the next closure runs again.
    rerun: Option<Rerun>,
}

impl<'q> Groups<'q> {
    const fn new(queue: &'q Queue, shard: Option<ShardId>) -> Self {
        let entries = VecDeque::new();
        Self { queue, shard, entries, again: None, alone: 0, locks: Locks::None }
    }

    fn run(mut self) {
        while !self.entries.is_empty() || self.queue.take(&mut self.entries) {
            let replies = self.write();
            self.reply(replies);
            // The replies come first, since a thread that waits for a reply may have a read transaction that blocks
            // the growth of the map.
            let replies = self.prepare();
            self.reply(replies);
        }
    }

    /// Delivers the results. These closures no longer keep the store open.
    fn reply(&mut self, replies: Replies) {
        self.alone = self.alone.saturating_sub(replies.len());
        for (done, error) in replies {
            // A waker that panics must not end the thread.
            contained(|| done.reply(error));
        }
    }

    /// Runs the taken closures, and closures that arrive while they run, in one transaction.
    fn write(&mut self) -> Replies {
        let Some(store) = self.store() else { return Replies::new() };
        let mut locks = mem::take(&mut self.locks);
        let key = self.entries.front().and_then(Entry::key);
        let begun = match (key, &self.shard) {
            (Some(key), _) => key.begin(&store, &locks),
            (None, None) => store.begin_write(),
            (None, Some(shard)) => store.begin_write_on(shard),
        };
        let mut txn = match begun {
            Ok(txn) => txn,
            Err(error) => {
                let failed = if key.is_some() { 1 } else { self.entries.len() };
                return self.fail(failed, &error);
            }
        };
        let Group { entries, spoiled, rerun } = self.fill(&mut txn);
        if matches!(rerun, Some(Rerun::Engine(_))) {
            // A closure for a key has reached shards in another order, or lacks room.
            txn.note_locks(&mut locks);
            self.locks = locks;
        }
        let next = rerun.map(|rerun| Again { rerun, entries: 1 });
        if rerun == Some(Rerun::Engine(Retry::Shards)) {
            // The transaction can't be committed without the shards that the closure needs.
            drop(txn);
            self.run_again(entries, next, Retry::Shards);
            return Replies::new();
        }
        if spoiled || entries.is_empty() {
            drop(txn);
        } else if let Err(failure) = txn.try_commit() {
            return self.failed(entries, next, failure);
        }
        self.again = next;
        entries.into_iter().map(|(entry, error)| (entry.done(), error)).collect()
    }

    /// Handles a group that could not be committed: it runs again, or its closures get the error.
    fn failed(
        &mut self,
        entries: Vec<(Entry, Option<Error>)>,
        next: Option<Again>,
        failure: CommitFailure,
    ) -> Replies {
        let Some(retry) = failure.retry() else {
            self.again = next;
            let error = Error::from(failure);
            let reply = |(entry, _): (Entry, _)| (entry.done(), Some(error.again()));
            return entries.into_iter().map(reply).collect();
        };
        self.run_again(entries, next, retry);
        Replies::new()
    }

    /// Puts the closures of a group back, with the next closure that runs again.
    fn run_again(
        &mut self,
        entries: Vec<(Entry, Option<Error>)>,
        next: Option<Again>,
        retry: Retry,
    ) {
        // If the next closure failed for the same reason, it runs again with the group.
        let more = next.filter(|next| matches!(next.rerun, Rerun::Engine(_)));
        let count = entries.len() + more.map_or(0, |more| more.entries);
        entries.into_iter().rev().for_each(|(entry, _)| self.entries.push_front(entry));
        self.again = Some(Again { rerun: Rerun::Engine(retry), entries: count });
    }

    /// Runs closures until there are no more, or the group is full.
    fn fill(&mut self, txn: &mut WriteTxn<'_>) -> Group {
        let most = if self.alone > 0 { 1 } else { self.queue.most() };
        let mut group = Group::default();
        while group.entries.len() < most {
            if self.entries.is_empty() {
                self.queue.take_more(most - group.entries.len(), &mut self.entries);
            }
            let Some(mut entry) = self.entries.pop_front() else { break };
            let is_for_key = entry.key().is_some();
            if group.entries.last().is_some_and(|(last, _)| last.key().is_some() != is_for_key) {
                // Its transaction begins in another way.
                self.entries.push_front(entry);
                break;
            }
            // The first closure needs no nested transaction, since the transaction is empty.
            let first = group.entries.is_empty();
            let (mut keeps, mut rerun) = (false, None);
            let mut run = |txn: &mut WriteTxn<'_>| {
                keeps = entry.run(txn);
                // A closure that ignores a refused write and returns `Ok` has succeeded.
                rerun = txn.rerun().filter(|rerun| !(keeps && matches!(rerun, Rerun::Queue(_))));
                keeps
            };
            let nested = if first {
                run(txn);
                // Tests whether other closures can still use the transaction.
                txn.nested_if(|_| true)
            } else {
                txn.nested_if(run)
            };
            group.spoiled = first && (!keeps || nested.is_err());
            // An error in the commit of a nested transaction is also an error of the outer transaction.
            let rerun = rerun.or_else(|| txn.rerun().filter(|it| matches!(it, Rerun::Engine(_))));
            match rerun {
                Some(Rerun::Engine(Retry::Pages)) if first => {}
                // The other closures have used up the room. This closure becomes the first of the next group.
                Some(Rerun::Engine(Retry::Pages)) => {
                    self.entries.push_front(entry);
                    break;
                }
                Some(_) => {
                    // The writes are undone even if the closure has ignored the error.
                    group.spoiled = first;
                    group.rerun = rerun;
                    self.entries.push_front(entry);
                    break;
                }
                None => {}
            }
            let error = nested.err().filter(|_| !entry.has_failed());
            group.entries.push((entry, error));
            if group.spoiled {
                break;
            }
        }
        group
    }

    /// Prepares another run of closures, or returns their errors. This thread must have no transaction.
    fn prepare(&mut self) -> Replies {
        let Some(Again { rerun, entries }) = self.again.take() else { return Replies::new() };
        let Some(first) = self.entries.front_mut() else { return Replies::new() };
        match first.prepare(rerun) {
            Ok(true) => Replies::new(),
            // Some of the closures may fit.
            Ok(false) if entries > 1 => {
                self.alone = entries;
                Replies::new()
            }
            Ok(false) => {
                let reply = |entry: Entry| {
                    let error = match rerun {
                        Rerun::Engine(
                            Retry::Map { map_size } | Retry::ShardMap { map_size, .. },
                        ) if !entry.has_failed() => Some(Error::MapFull { map_size }),
                        Rerun::Engine(Retry::Disk) if !entry.has_failed() => {
                            let path = entry.store().inner.engines.directory();
                            let source = io::ErrorKind::StorageFull.into();
                            Some(Error::DiskFull { path, source })
                        }
                        _ => None,
                    };
                    (entry.done(), error)
                };
                self.entries.pop_front().map(reply).into_iter().collect()
            }
            Err(error) => self.fail(entries, &error),
        }
    }

    /// Returns the error for each of the first closures.
    fn fail(&mut self, entries: usize, error: &Error) -> Replies {
        self.entries.drain(..entries).map(|entry| (entry.done(), Some(error.again()))).collect()
    }

    fn store(&self) -> Option<Store> {
        self.entries.front().map(Entry::store)
    }
}
