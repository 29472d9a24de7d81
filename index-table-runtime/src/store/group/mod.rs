//! Group commit: one thread runs closures from many threads and tasks, and commits many of them together.
//!
//! [`job`] is a closure with the sender of its result, and [`row_key`] is the key of a closure for some rows. [`queue`] has the waiting closures, [`thread`] runs
//! them, [`reply`] delivers results, and [`submission`] is for tasks that wait for room.

mod job;
mod queue;
mod reply;
mod row_key;
mod shards;
mod submission;
mod thread;

use std::{
    fmt, mem,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

#[cfg(feature = "async")]
pub(super) use self::queue::Queue;
#[cfg(not(feature = "async"))]
use self::queue::Queue;
pub(crate) use self::row_key::RowKey;
use self::{
    job::Entry,
    queue::{Refused, WithoutRoom},
};
pub use self::{reply::Submitted, submission::Submission};
use crate::{
    model::error::{Error, Result},
    store::{Inner, ShardId, Store, WriteTxn},
};
#[cfg(feature = "async")]
use crate::{model::shard::ShardNumber, store::shard_id};

/// The default limits: closures in the queue, and in a commit.
const QUEUE: usize = 1024;
const MOST: usize = 256;

impl Store {
    /// Starts a thread that commits the writes of many threads and tasks, many closures at a time.
    /// [`queue`](GroupWriter::queue) and [`most`](GroupWriter::most) change its limits.
    ///
    /// Clone the writer to share it; each call of this method starts another thread. The writer of a sharded
    /// store has a group and a thread for each shard that is written with the `submit_for` of a repository or with
    /// [`submit_on`](GroupWriter::submit_on), and one for closures of any shards ([`submit`](GroupWriter::submit)).
    ///
    /// # Errors
    ///
    /// [`Error::Forked`], and [`Error::Thread`] if the thread can't be started.
    ///
    /// # Examples
    ///
    /// ```
    /// use index_table::{IndexTable, Store};
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(Serialize, Deserialize, IndexTable)]
    /// struct Note {
    ///     #[primary_key]
    ///     id: u32,
    ///     text: String,
    /// }
    ///
    /// # fn main() -> index_table::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// let store = Store::open(dir.path())?;
    /// let notes = NoteRepository::open(&store)?;
    /// let writer = store.writer()?;
    ///
    /// std::thread::scope(|scope| {
    ///     for id in 0..8 {
    ///         let (writer, notes) = (writer.clone(), notes.clone());
    ///         scope.spawn(move || {
    ///             let note = Note { id, text: "from a thread".into() };
    ///             writer.submit(move |txn| notes.insert(txn, &note)).wait()
    ///         });
    ///     }
    /// });
    /// assert_eq!(notes.all(&store.read()?).count()?, 8);
    /// # Ok(())
    /// # }
    /// ```
    pub fn writer(&self) -> Result<GroupWriter> {
        self.inner.engines.refuse_forked()?;
        self.inner.engines.refuse_read_only()?;
        let queue = Queue::new(QUEUE, MOST);
        if self.inner.engines.several().is_some() {
            return Ok(GroupWriter::new(self, queue, Turn::Any(shards::Writers::default())));
        }
        GroupWriter::started(self, queue, None)
    }
}

/// A writer for many threads and tasks, which commits many closures together. From [`Store::writer`].
///
/// A thread takes the submitted closures in order, runs each in isolation, and commits them together, with
/// one wait for the disk. Closures that are submitted during a commit form the next group. Each closure gets its own
/// result as soon as the commit is durable according to the store's [`Durability`](crate::Durability).
///
/// - The closures run in the order of the calls, and of the first polls of futures. A caller that waits for
///   room in the queue keeps its position.
/// - A closure reads the writes of earlier closures. If it returns an error or panics, its writes are undone,
///   and the other closures are not affected.
/// - If the commit fails, all writes of the group are undone, and every closure of the group gets the error.
///   The writer continues with the next group.
/// - If the map is full, the earlier closures are committed, the map is enlarged, as by
///   [`Store::transaction`], and the closure runs again. If the queue of eventual indexes is full under
///   [`WhenFull::Wait`](crate::WhenFull::Wait), the closure runs again when the worker has made room, and
///   later closures wait for it. So a closure should have no effects outside the transaction.
/// - [`Store::write`] can be used at the same time. The transaction and the groups wait for each other.
///
/// A writer can be cloned, sent and shared. The writer and submitted closures keep the store open. When the
/// last clone is dropped, or at [`close`](GroupWriter::close), the thread finishes the submitted closures and
/// ends. A forked process doesn't have the thread: submitting fails with [`Error::Forked`].
///
/// Cost: a submission allocates twice, and wakes the thread if it sleeps. Each closure except the first of a
/// group runs in a nested transaction of LMDB, which copies each page that the closure changes. For a row
/// with three indexes, this adds a third to the work.
#[derive(Clone)]
pub struct GroupWriter {
    handle: Arc<Handle>,
}

/// The state that the clones of a writer share. The thread has only the queue, so it does not keep the store
/// open.
struct Handle {
    queue: Arc<Queue>,
    store: Arc<Inner>,
    turn: Turn,
    /// Whether the end of the last clone ends the thread. The thread of asynchronous calls ends with the store.
    ends: bool,
}

/// The target of a group writer.
enum Turn {
    /// A store without shards, or one shard.
    One(Option<ShardId>),
    /// The writer of a sharded store: a writer for each shard, and for closures of any shards a thread that
    /// is started for the first of them.
    Any(shards::Writers),
}

impl Drop for Handle {
    fn drop(&mut self) {
        // In a forked process, the lock may be held by a thread that does not exist.
        if self.ends && self.store.engines.refuse_forked().is_ok() {
            self.queue.close();
        }
    }
}

/// Runs user code and catches its panic. The payload of the panic is not dropped, which could panic again.
pub(super) fn contained(run: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(run)) {
        mem::forget(panic);
    }
}

impl GroupWriter {
    fn new(store: &Store, queue: Queue, turn: Turn) -> Self {
        let (queue, store) = (Arc::new(queue), Arc::clone(&store.inner));
        Self { handle: Arc::new(Handle { queue, store, turn, ends: true }) }
    }

    /// Starts a writer with a thread.
    fn started(store: &Store, queue: Queue, shard: Option<ShardId>) -> Result<Self> {
        let writer = Self::new(store, queue, Turn::One(shard.clone()));
        thread::start(&writer.handle.queue, store.inner.id, shard)?;
        Ok(writer)
    }

    /// Starts a thread for asynchronous calls that write this shard, or any shards.
    #[cfg(feature = "async")]
    pub(super) fn start_queue(store: &Store, shard: Option<ShardNumber>) -> Result<Arc<Queue>> {
        let shard = shard.map(|shard| shard_id(store, shard)).transpose()?;
        let queue = Arc::new(Queue::new(QUEUE, MOST));
        thread::start(&queue, store.inner.id, shard)?;
        Ok(queue)
    }

    /// Returns the writer with this thread of asynchronous calls.
    #[cfg(feature = "async")]
    pub(super) fn of_queue(store: &Store, queue: &Arc<Queue>) -> Self {
        let (queue, store) = (Arc::clone(queue), Arc::clone(&store.inner));
        Self { handle: Arc::new(Handle { queue, store, turn: Turn::One(None), ends: false }) }
    }

    /// Starts the thread for closures of any shards, or returns the reason why it takes no closures.
    fn ready(&self) -> Result<()> {
        let Handle { queue, store, turn, .. } = &*self.handle;
        store.engines.refuse_forked()?;
        match turn {
            Turn::One(_) => Ok(()),
            Turn::Any(writers) => writers.start(|| thread::start(queue, store.id, None)),
        }
    }

    /// Sets the maximum number of closures in the queue, at least one. Default: 1024. A further submission
    /// waits or is refused, so that neither memory nor waiting times grow without bound if the disk can't
    /// keep up.
    ///
    /// The limits belong to the writer and all its clones; set them before the first submission. In a sharded
    /// store, the queue of each shard has them.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> index_table::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// let store = index_table::Store::open(dir.path())?;
    /// let writer = store.writer()?.queue(10_000).most(500);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn queue(self, closures: usize) -> Self {
        self.handle.queue.set_capacity(closures.max(1));
        self
    }

    /// Sets the maximum number of closures in one commit, at least one. Default: 256. It limits how long the
    /// first of them waits for the last, and how much is undone if the commit fails.
    #[must_use]
    pub fn most(self, closures: usize) -> Self {
        self.handle.queue.set_most(closures.max(1));
        self
    }

    /// Submits a closure, and waits for room in the queue if it is full. The returned value is a future, and
    /// has a [`wait`](Submitted::wait) for threads. Dropping it does not cancel the closure.
    ///
    /// In a store with shards, the closure may use any shards. Its group locks all of
    /// them, so the `submit_for` of a repository is better for a closure that uses one shard, and usually no other.
    ///
    /// If the closure can't be accepted, for example after [`close`](GroupWriter::close), its result is the
    /// error. Often, the error's type has to be named: `Ok::<_, Error>(value)`.
    ///
    /// This method can block, so don't call it in a thread that runs tasks; use
    /// [`submit_async`](GroupWriter::submit_async) and [`try_submit`](GroupWriter::try_submit).
    ///
    /// On a store with several shards, these closures have a group that locks all shards. Use the `submit_for` of a repository, or
    /// [`submit_on`](GroupWriter::submit_on), for the groups of single shards.
    ///
    /// # Errors
    ///
    /// Errors of the result: the errors of the closure and of [`Store::transaction`]; [`Error::Panicked`],
    /// [`Error::WriterClosed`], [`Error::Forked`], and [`Error::WriteInProgress`] if the queue is full and
    /// this thread has a write transaction, for which the queued closures wait.
    ///
    /// # Examples
    ///
    /// ```
    /// # use index_table::{Error, IndexTable, Result, Store};
    /// # use serde::{Deserialize, Serialize};
    /// # #[derive(Serialize, Deserialize, IndexTable)]
    /// # struct Note { #[primary_key] id: u32, text: String }
    /// # fn main() -> Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let store = Store::open(dir.path())?;
    /// # let notes = NoteRepository::open(&store)?;
    /// let writer = store.writer()?;
    /// // Submit all closures, and then wait for the results: the closures share one commit, or a few.
    /// let submitted: Vec<_> = (0..100)
    ///     .map(|id| {
    ///         let (notes, note) = (notes.clone(), Note { id: id % 99, text: "new".into() });
    ///         writer.submit(move |txn| notes.insert(txn, &note))
    ///     })
    ///     .collect();
    /// let results: Vec<Result<()>> = submitted.into_iter().map(|one| one.wait()).collect();
    /// assert!(matches!(results[99], Err(Error::DuplicateKey { .. })));
    /// assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 99);
    /// # Ok(())
    /// # }
    /// ```
    pub fn submit<T, E, F>(&self, body: F) -> Submitted<T, E>
    where
        T: Send + 'static,
        E: From<Error> + Send + 'static,
        F: FnMut(&mut WriteTxn<'_>) -> Result<T, E> + Send + 'static,
    {
        self.push(None, body)
    }

    fn push<T, E, F>(&self, key: Option<RowKey>, body: F) -> Submitted<T, E>
    where
        T: Send + 'static,
        E: From<Error> + Send + 'static,
        F: FnMut(&mut WriteTxn<'_>) -> Result<T, E> + Send + 'static,
    {
        let Handle { queue, store, .. } = &*self.handle;
        let (entry, submitted) = Entry::new(store, key, body);
        match self.ready() {
            // If this thread has a write transaction, it must not wait, since the queued closures wait for
            // it.
            Ok(()) => queue.push(entry, || thread::refuse_to_wait(store)),
            Err(error) => entry.reply(Some(error)),
        }
        submitted
    }

    /// Submits a closure if there is room in the queue, and returns it otherwise.
    ///
    /// # Errors
    ///
    /// [`QueueFull`] with the closure. The result has all other errors, as with
    /// [`submit`](GroupWriter::submit).
    ///
    /// # Examples
    ///
    /// ```
    /// # use index_table::{Error, IndexTable, Result, Store};
    /// # use serde::{Deserialize, Serialize};
    /// # #[derive(Serialize, Deserialize, IndexTable)]
    /// # struct Note { #[primary_key] id: u32, text: String }
    /// # fn main() -> Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let store = Store::open(dir.path())?;
    /// # let notes = NoteRepository::open(&store)?;
    /// let writer = store.writer()?.queue(10);
    /// let txn = store.write()?; // the writer has to wait
    /// let mut accepted = Vec::new();
    /// for id in 0..100 {
    ///     let (notes, note) = (notes.clone(), Note { id, text: "new".into() });
    ///     match writer.try_submit(move |txn| notes.insert(txn, &note)) {
    ///         Ok(submitted) => accepted.push(submitted),
    ///         Err(full) => drop(full.0), // try again later, or report that the queue is full
    ///     }
    /// }
    /// assert!(accepted.len() < 100);
    /// drop(txn);
    /// accepted.into_iter().try_for_each(|submitted| submitted.wait())?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn try_submit<T, E, F>(&self, body: F) -> Result<Submitted<T, E>, QueueFull<F>>
    where
        T: Send + 'static,
        E: From<Error> + Send + 'static,
        F: FnMut(&mut WriteTxn<'_>) -> Result<T, E> + Send + 'static,
    {
        self.try_push(None, body)
    }

    fn try_push<T, E, F>(
        &self,
        key: Option<RowKey>,
        body: F,
    ) -> Result<Submitted<T, E>, QueueFull<F>>
    where
        T: Send + 'static,
        E: From<Error> + Send + 'static,
        F: FnMut(&mut WriteTxn<'_>) -> Result<T, E> + Send + 'static,
    {
        let Handle { queue, store, .. } = &*self.handle;
        if let Err(error) = self.ready() {
            return Ok(Submitted::refused(store, error));
        }
        let mut body = Some(body);
        let make = || body.take().map(|body| Entry::new(store, key, body));
        let pushed = queue.try_push(WithoutRoom::Refuse, make);
        match (pushed, body) {
            (Ok((_, submitted)), _) => Ok(submitted),
            (Err(Refused::Full), Some(body)) => Err(QueueFull(body)),
            (Err(_), _) => Ok(Submitted::refused(store, Error::WriterClosed)),
        }
    }

    /// Submits a closure and waits for its result, from async code of any runtime. The returned future first
    /// waits for room in the queue, and then for the commit.
    ///
    /// The closure is submitted at the first poll. Dropping the future while it waits for room cancels the
    /// closure. Dropping it later does not cancel the closure.
    ///
    /// # Errors
    ///
    /// Errors of its output: as with [`submit`](GroupWriter::submit).
    ///
    /// # Examples
    ///
    /// ```
    /// # use index_table::{GroupWriter, IndexTable, Result, Store};
    /// # use serde::{Deserialize, Serialize};
    /// # #[derive(Serialize, Deserialize, IndexTable)]
    /// # struct Note { #[primary_key] id: u32, text: String }
    /// async fn add(writer: &GroupWriter, notes: NoteRepository, note: Note) -> Result<()> {
    ///     writer.submit_async(move |txn| notes.insert(txn, &note)).await
    /// }
    /// ```
    pub fn submit_async<T, E, F>(&self, body: F) -> Submission<T, E, F>
    where
        T: Send + 'static,
        E: From<Error> + Send + 'static,
        F: FnMut(&mut WriteTxn<'_>) -> Result<T, E> + Send + 'static,
    {
        Submission::new(self.clone(), None, body)
    }

    /// Refuses later submissions of all clones, and finishes earlier submissions. Returns when these are finished and
    /// the thread has released the store. A second call only waits.
    ///
    /// # Errors
    ///
    /// [`Error::WriteInProgress`] in a closure of the writer, in the `drop` of a captured value, and in a
    /// thread with a write transaction, for which the queued closures would wait; [`Error::Forked`]. After an
    /// error, the writer is not closed.
    pub fn close(&self) -> Result<()> {
        let Handle { queue, store, turn, .. } = &*self.handle;
        store.engines.refuse_forked()?;
        thread::refuse_to_wait(store)?;
        queue.close();
        match turn {
            Turn::One(_) => queue.wait_for_the_end(),
            Turn::Any(writers) => {
                if writers.is_started() {
                    queue.wait_for_the_end();
                }
                writers.close();
            }
        }
        Ok(())
    }

    /// Whether the writer refuses submissions.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.handle.store.engines.refuse_forked().is_err() || self.handle.queue.is_closed()
    }
}

impl fmt::Debug for GroupWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupWriter").field("store", &self.handle.store.id).finish_non_exhaustive()
    }
}

/// The queue of a [`GroupWriter`] has no room for this closure; from
/// [`try_submit`](GroupWriter::try_submit). With the feature `async`, too many calls wait, so this call was refused.
pub struct QueueFull<F>(pub F);

impl<F> fmt::Debug for QueueFull<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("QueueFull").finish_non_exhaustive()
    }
}

impl<F> fmt::Display for QueueFull<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the queue of the store's writes or calls is full; try again in a moment")
    }
}

impl<F> std::error::Error for QueueFull<F> {}
