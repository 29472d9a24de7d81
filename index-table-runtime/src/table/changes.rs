//! The methods of tables with a change stream.

mod batch;

pub use batch::{ChangeBatch, StreamedChange};

use std::{fmt, sync::Arc, time::Duration};

use super::Table;
use crate::{
    model::{
        entity::Entity,
        error::{Error, Result},
        key::{DecodeError, Key as _, KeyReader, Unescaped},
        lists::Lists,
        row,
        stream::{StoredChange, StoredKind, Streamed, time_of},
    },
    store::{ReadTxn, Store, watch::ChangeKind},
    upkeep::changes::{self, ChangeConsumer, ChangeLag, Consumer},
};

impl<R: Entity> Table<R> {
    /// Returns the consumer with this name of the table's change stream, and creates it if it does not exist. A new
    /// consumer begins at the oldest change that is kept. Its position is in the store, and moves when a batch is
    /// committed.
    ///
    /// With `#[table(changes)]`, each transaction that writes rows of the table adds a change for each written row to
    /// the stream, in the order of the writes. So the stream has exactly the committed changes, in the order of the
    /// commits. `put` of an equal row changes nothing, and adds no change. Neither does [`upgrade`](Table::upgrade). A
    /// row whose primary key is updated is deleted and inserted.
    ///
    /// Cost: for each written row, one seek in the stream, and one write of the row, its primary key and 28 bytes. This
    /// call: one look-up, and one transaction for a new consumer.
    ///
    /// # Errors
    ///
    /// [`Error::KeyTooLong`] for a name of more than 480 bytes; the errors of [`Store::transaction`].
    ///
    /// # Examples
    ///
    /// ```
    /// use index_table::{ChangeKind, IndexTable, Store};
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(Debug, PartialEq, Serialize, Deserialize, IndexTable)]
    /// #[table(name = "invoices", changes)]
    /// struct Invoice {
    ///     #[primary_key]
    ///     number: u64,
    ///     amount: i64,
    /// }
    ///
    /// # fn main() -> index_table::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let store = Store::open(dir.path())?;
    /// let invoices = InvoiceRepository::open(&store)?;
    /// store.transaction(|txn| {
    ///     invoices.insert(txn, &Invoice { number: 7, amount: 30 })?;
    ///     invoices.update(txn, 7, |invoice| invoice.amount = 40)?;
    ///     invoices.delete(txn, 7).map(drop)
    /// })?;
    ///
    /// let mut changes = invoices.changes(&store, "mailer")?;
    /// let batch = changes.next_batch(100)?;
    /// for change in &batch {
    ///     println!("{}: {:?} {} {:?}", change.number, change.kind, change.key, change.row);
    /// }
    /// let kinds: Vec<_> = batch.iter().map(|change| change.kind).collect();
    /// assert_eq!(kinds, [ChangeKind::Inserted, ChangeKind::Updated, ChangeKind::Deleted]);
    /// assert_eq!(batch[2].row.amount, 40); // the deleted row
    /// batch.commit(&store)?;
    /// assert!(changes.next_batch(100)?.is_empty());
    /// # Ok(())
    /// # }
    /// ```
    pub fn changes(&self, store: &Store, consumer: &str) -> Result<Changes<R>>
    where
        R: Streamed,
    {
        let consumer = Arc::new(Consumer::open(store, &self.open, consumer)?);
        Ok(Changes { store: store.clone(), consumer, decode: read })
    }

    /// Returns the number of the last change in this snapshot; 0 if the stream has had no change. The rows of the
    /// snapshot include all changes up to this number, and no later change. So a consumer that has read the rows of the
    /// snapshot continues without a gap after [`skip_to`](Changes::skip_to) with this number.
    ///
    /// In a sharded store, the rows of the snapshot include all changes up to this number, and may include later
    /// changes. So use [`skip_before`](Changes::skip_before) there, which is exact.
    ///
    /// Cost: one seek, in each shard.
    ///
    /// # Errors
    ///
    /// The [errors of reading](crate::Error#common-errors).
    pub fn last_change(&self, txn: &ReadTxn<'_>) -> Result<u64>
    where
        R: Streamed,
    {
        changes::last_change(txn, &self.open)
    }

    /// Returns the consumers of the table's change stream, in the order of their names, with their lags.
    ///
    /// Cost: a look-up for each consumer.
    ///
    /// # Errors
    ///
    /// The [errors of reading](crate::Error#common-errors).
    pub fn change_consumers(&self, txn: &ReadTxn<'_>) -> Result<Vec<ChangeConsumer>>
    where
        R: Streamed,
    {
        changes::consumers(txn, &self.open)
    }

    /// Removes a consumer of the table's change stream with its position, for a consumer that is no longer used.
    /// Returns false if there is no such consumer. A [`Changes`] or a batch of the consumer then fails with
    /// [`Error::NoConsumer`].
    ///
    /// # Errors
    ///
    /// The errors of [`Store::transaction`].
    pub fn remove_change_consumer(&self, store: &Store, consumer: &str) -> Result<bool>
    where
        R: Streamed,
    {
        changes::remove_consumer(store, &self.open, consumer)
    }

    /// Creates the consumers of the table in another store, after the last change there, and returns their number. `from` is
    /// this table in that other store, and `txn` a snapshot of it.
    ///
    /// Use it when the rows of a store have been loaded into another store
    /// [without changes](crate::BulkLoad::without_changes): each consumer then receives exactly the changes that are made
    /// in the new store. An existing consumer moves forward to its last change. Write to neither store meanwhile. The
    /// workers of a consumer register again.
    ///
    /// # Errors
    ///
    /// [`Error::ChangesLeft`] if a consumer has not committed all changes of the other store, before any consumer is
    /// created; [`Error::WrongStore`] if `txn` is not of the other store; the errors of [`Store::transaction`].
    ///
    /// # Examples
    ///
    /// ```
    /// use index_table::{IndexTable, Store};
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(Serialize, Deserialize, IndexTable)]
    /// #[table(changes)]
    /// struct Invoice {
    ///     #[primary_key]
    ///     number: u64,
    /// }
    ///
    /// # fn main() -> index_table::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let (old, new) = (Store::open(dir.path().join("old"))?, Store::open(dir.path().join("new"))?);
    /// let (from, to) = (InvoiceRepository::open(&old)?, InvoiceRepository::open(&new)?);
    /// old.transaction(|txn| from.insert(txn, &Invoice { number: 1 }))?;
    /// from.changes(&old, "mailer")?.next_batch(100)?.commit(&old)?;
    ///
    /// let snapshot = old.read()?;
    /// let rows = from.all(&snapshot).rows().collect::<index_table::Result<Vec<_>>>()?;
    /// to.bulk_load(&new, rows).without_changes().run()?;
    /// assert_eq!(to.continue_consumers(&new, &from, &snapshot)?, 1);
    ///
    /// new.transaction(|txn| to.insert(txn, &Invoice { number: 2 }))?;
    /// let batch = to.changes(&new, "mailer")?.next_batch(100)?;
    /// assert_eq!(batch.iter().map(|change| change.key).collect::<Vec<_>>(), [2]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn continue_consumers(&self, store: &Store, from: &Self, txn: &ReadTxn<'_>) -> Result<u64>
    where
        R: Streamed,
    {
        changes::continue_consumers(store, &self.open, &changes::consumers(txn, &from.open)?)
    }

    /// Removes up to `limit` changes that the retention of the stream no longer keeps, oldest first, and returns their
    /// number.
    ///
    /// Writers remove old changes, too: every 64th change of the table removes up to 128 of them in its transaction. So
    /// this call is needed only for a table that is not written for a long time.
    ///
    /// The changes are removed in transactions of at most 1024, with a pause after each.
    ///
    /// # Errors
    ///
    /// The errors of [`Store::transaction`]. After an error, the changes of earlier transactions stay removed.
    pub fn remove_old_changes(&self, store: &Store, limit: u64) -> Result<u64>
    where
        R: Streamed,
    {
        changes::remove_old(store, &self.open, limit)
    }
}

/// Decodes a change. `names` has those of the change before it in the batch.
type Read<R> = fn(&Lists, &mut ListNames, u64, StoredChange<'_>) -> Result<StreamedChange<R>>;

/// The names in the list of the last row that was read.
#[derive(Default)]
struct ListNames {
    /// The version of the row, and the number of its list.
    of: Option<(u32, u32)>,
    names: Arc<[String]>,
}

impl ListNames {
    /// Returns the number of the list of a row, and its names.
    fn of(&mut self, lists: &Lists, bytes: &[u8]) -> Result<(u32, Arc<[String]>), DecodeError> {
        let (version, list) = row::list(bytes)?;
        if self.of != Some((version, list)) {
            let fields = lists.fields(row::body(bytes, version)?)?;
            self.names = fields.names().map(str::to_owned).collect();
            self.of = Some((version, list));
        }
        Ok((list, Arc::clone(&self.names)))
    }
}

fn read<R: Entity>(
    lists: &Lists,
    names: &mut ListNames,
    number: u64,
    stored: StoredChange<'_>,
) -> Result<StreamedChange<R>> {
    let failed = |error: DecodeError| Error::Corrupt {
        table: R::TABLE.name,
        index: None,
        key: format!("change {number} of its change stream"),
        reason: error.to_string(),
    };
    let unescaped = Unescaped::default();
    let key = R::Key::decode_owned(&mut KeyReader::new(stored.primary_key, &unescaped));
    let row = row::decode(lists, stored.row).map_err(failed)?;
    let (list, names) = names.of(lists, stored.row).map_err(failed)?;
    Ok(StreamedChange {
        number,
        time: time_of(stored.time),
        kind: match stored.kind {
            StoredKind::Inserted => ChangeKind::Inserted,
            StoredKind::Updated => ChangeKind::Updated,
            StoredKind::Deleted => ChangeKind::Deleted,
        },
        key: key.map_err(failed)?,
        row,
        list,
        names,
    })
}

/// A consumer of the change stream of a table; from [`Table::changes`].
///
/// Its position is in the store, so it continues after a restart, in this process or in another. The store stays open
/// as long as this value exists.
///
/// A consumer gets each change at least once: if it fails before it has committed a batch, it gets the changes again.
/// With [`commit_in`](ChangeBatch::commit_in), its own writes to the same store are made exactly once. For effects
/// elsewhere, the [number](StreamedChange::number) and the time of a change together identify duplicates.
///
/// Several workers can [share](Changes::share) the changes of a consumer. If two users of a consumer take the same
/// changes without `share`, the second commit fails with [`Error::BatchSuperseded`].
pub struct Changes<R: Entity> {
    store: Store,
    consumer: Arc<Consumer>,
    decode: Read<R>,
}

impl<R: Entity> Changes<R> {
    /// Returns the name of the consumer.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.consumer.name
    }

    /// Returns the next changes after the last committed change, at most `limit`, in their order. The batch is empty if
    /// there are none. Until a batch is committed, each call begins at the same change.
    ///
    /// Rows of an older version of the struct are converted, like rows of the table. So `previous` must be declared as
    /// long as the stream has such rows. A row that another release has written is read by names, and
    /// [`StreamedChange::names`] tells which.
    ///
    /// Cost: a seek for each change. The changes of the batch are in memory.
    ///
    /// # Errors
    ///
    /// [`Error::ChangesMissed`] if changes were removed before this consumer committed them, and
    /// [`Error::NoConsumer`] if the consumer was removed; [`Error::Corrupt`] for a change that can't be decoded, which
    /// [`skip_to`](Changes::skip_to) can skip; the errors of [`Store::read`].
    pub fn next_batch(&mut self, limit: usize) -> Result<ChangeBatch<R>> {
        self.consumer.number(&self.store)?;
        let (txn, mut changes) = (self.store.read()?, Vec::new());
        let (lists, mut names) = (&self.consumer.table.rows.lists, ListNames::default());
        let span = self.consumer.next(&txn, limit, |number, stored| {
            changes.push((self.decode)(lists, &mut names, number, stored)?);
            Ok(())
        })?;
        Ok(ChangeBatch { consumer: Arc::clone(&self.consumer), span, changes })
    }

    /// Makes this a worker of the consumer. The workers of a consumer, in one process or in several, share the keys of the
    /// rows by a hash, so the changes of a key reach one worker at a time, in their order.
    ///
    /// A worker takes its share of the keys in [`next_batch`](ChangeWorker::next_batch), which also extends its lease. It
    /// has to commit a batch before its lease ends. If the lease of a worker ends, because its process was killed or a
    /// batch took too long, the other workers take its keys, including the changes that it has not committed. A later
    /// commit of this worker fails with [`Error::BatchSuperseded`]. Other processes measure how long a lease was not
    /// extended, so a correction of the system's clock does not end or prolong it. A
    /// new worker gets its keys when the other workers call `next_batch`.
    ///
    /// As long as a worker has a lease, [`Changes::next_batch`] of the same consumer fails with
    /// [`Error::ConsumerShared`].
    ///
    /// # Examples
    ///
    /// ```
    /// use std::{thread, time::Duration};
    ///
    /// use index_table::{IndexTable, Result, Store};
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(Serialize, Deserialize, IndexTable)]
    /// #[table(changes)]
    /// struct Invoice {
    ///     #[primary_key]
    ///     number: u64,
    /// }
    ///
    /// # fn main() -> Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let store = Store::open(dir.path())?;
    /// let invoices = InvoiceRepository::open(&store)?;
    /// store.transaction(|txn| (0..100).try_for_each(|number| invoices.insert(txn, &Invoice { number })))?;
    /// let work = || -> Result<usize> {
    ///     let mut done = 0;
    ///     let mut worker = invoices.changes(&store, "mailer")?.share(Duration::from_secs(30));
    ///     while worker.consumer().lag()?.changes > 0 {
    ///         let batch = worker.next_batch(10)?; // empty, if others have the changes
    ///         batch.commit(&store)?;
    ///         done += batch.len();
    ///     }
    ///     worker.leave()?;
    ///     Ok(done)
    /// };
    /// let done: usize = thread::scope(|scope| {
    ///     let workers = [scope.spawn(work), scope.spawn(work)];
    ///     workers.into_iter().map(|worker| worker.join().unwrap()).sum::<Result<usize>>()
    /// })?;
    /// assert_eq!(invoices.changes(&store, "mailer")?.lag()?.changes, 0);
    /// assert_eq!(done, 100);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn share(self, lease: Duration) -> ChangeWorker<R> {
        ChangeWorker { changes: self, worker: changes::random(), lease }
    }

    /// Returns the changes that the consumer has not committed yet.
    ///
    /// Cost: three look-ups.
    ///
    /// # Errors
    ///
    /// [`Error::NoConsumer`]; the errors of [`Store::read`].
    pub fn lag(&self) -> Result<ChangeLag> {
        self.consumer.lag(&self.store.read()?)
    }

    /// Waits until there are changes that this consumer has not committed. Returns false if there are none after the timeout. If
    /// other workers [share](Changes::share) the consumer, these changes may be theirs.
    ///
    /// A commit of this process ends the wait at once. The store is read every 20 ms for commits of other processes, and every
    /// 100 ms on a server.
    ///
    /// Cost: that of [`lag`](Changes::lag) for each time that the store is read.
    ///
    /// # Errors
    ///
    /// [`Error::WriteInProgress`] if this thread has a write transaction of the store; [`Error::NoConsumer`]; the errors of
    /// [`Store::read`].
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use index_table::{IndexTable, Store};
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(Serialize, Deserialize, IndexTable)]
    /// #[table(changes)]
    /// struct Note {
    ///     #[primary_key]
    ///     id: u64,
    /// }
    ///
    /// # fn main() -> index_table::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let store = Store::open(dir.path())?;
    /// let notes = NoteRepository::open(&store)?;
    /// let mut changes = notes.changes(&store, "mailer")?;
    /// assert!(!changes.wait(Duration::from_millis(5))?);
    /// store.transaction(|txn| notes.insert(txn, &Note { id: 1 }))?;
    /// while changes.wait(Duration::from_millis(5))? {
    ///     changes.next_batch(100)?.commit(&store)?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn wait(&self, timeout: Duration) -> Result<bool> {
        self.consumer.wait(&self.store, timeout)
    }

    /// Waits as [`wait`](Changes::wait) does, without a thread that waits. For any executor. With the feature `async`.
    ///
    /// Cost: that of [`lag`](Changes::lag) in a thread of the store, at once, after each commit of this process, and every 100 ms.
    ///
    /// # Errors
    ///
    /// [`Error::NoConsumer`]; the errors of [`Store::read_async`].
    #[cfg(feature = "async")]
    pub fn wait_async(&self, timeout: Duration) -> crate::store::Call<bool> {
        self.consumer.wait_async(&self.store, timeout)
    }

    /// Continues at the oldest change that is kept, after [`Error::ChangesMissed`]. Returns the number of missed
    /// changes.
    ///
    /// To include the missed changes, read the whole table in a snapshot instead, and continue after the [last
    /// change](Table::last_change) of this snapshot with [`skip_to`](Changes::skip_to).
    ///
    /// # Errors
    ///
    /// [`Error::NoConsumer`]; the errors of [`Store::transaction`].
    pub fn skip_removed(&mut self) -> Result<u64> {
        self.consumer.skip_to(&self.store, 0)
    }

    /// Commits all changes that are visible to a transaction, without reading them. Returns the number of skipped changes. The
    /// position never moves back.
    ///
    /// A consumer that has read all rows of a snapshot continues with this call without a gap.
    ///
    /// # Errors
    ///
    /// [`Error::NoConsumer`]; the errors of [`Store::transaction`], and [`Error::WriteInProgress`] for a write transaction
    /// of this thread.
    ///
    /// # Examples
    ///
    /// ```
    /// use index_table::{IndexTable, Store};
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(Serialize, Deserialize, IndexTable)]
    /// #[table(changes)]
    /// struct Invoice {
    ///     #[primary_key]
    ///     number: u64,
    /// }
    ///
    /// # fn main() -> index_table::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let store = Store::open(dir.path())?;
    /// let invoices = InvoiceRepository::open(&store)?;
    /// store.transaction(|txn| (0..3).try_for_each(|number| invoices.insert(txn, &Invoice { number })))?;
    ///
    /// let mut changes = invoices.changes(&store, "search")?;
    /// let snapshot = store.read()?;
    /// let indexed: Vec<_> = invoices.all(&snapshot).keys().collect::<Result<_, _>>()?;
    /// store.transaction(|txn| invoices.insert(txn, &Invoice { number: 3 }))?;
    /// changes.skip_before(&snapshot)?;
    /// let later = changes.next_batch(100)?;
    /// assert_eq!((indexed.len(), later.len(), later[0].key), (3, 1, 3));
    /// # Ok(())
    /// # }
    /// ```
    pub fn skip_before(&mut self, txn: &ReadTxn<'_>) -> Result<u64> {
        self.consumer.skip_before(&self.store, txn)
    }

    /// Commits all changes up to this number, without reading them. Returns the number of skipped changes. The position
    /// never moves back. `u64::MAX` skips all changes.
    ///
    /// # Errors
    ///
    /// [`Error::NoConsumer`]; the errors of [`Store::transaction`].
    pub fn skip_to(&mut self, number: u64) -> Result<u64> {
        self.consumer.number(&self.store)?;
        self.consumer.skip_to(&self.store, number)
    }
}

impl<R: Entity> fmt::Debug for Changes<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Changes").field("name", &self.name()).finish_non_exhaustive()
    }
}

/// A worker of a consumer that several workers share; from [`Changes::share`].
///
/// When it is dropped, its keys become free after its lease. [`leave`](ChangeWorker::leave) frees them at once.
pub struct ChangeWorker<R: Entity> {
    changes: Changes<R>,
    worker: u64,
    lease: Duration,
}

impl<R: Entity> ChangeWorker<R> {
    /// Returns the next changes of the worker's keys, at most `limit`, in their order, and extends its lease. The batch
    /// is empty if there are none, or if the other workers still have all keys. Don't use an earlier uncommitted batch
    /// of this worker after this call, because other workers may have its keys.
    ///
    /// Cost: a write transaction, with a look-up for each of 32 parts of the keys. All changes since the worker's last
    /// commit are read, including the changes of other workers. The changes of the batch are kept in memory.
    ///
    /// # Errors
    ///
    /// The errors of [`Changes::next_batch`] and of [`Store::transaction`].
    pub fn next_batch(&mut self, limit: usize) -> Result<ChangeBatch<R>> {
        let Changes { store, consumer, decode } = &self.changes;
        consumer.number(store)?;
        let (mut changes, mut names) = (Vec::new(), ListNames::default());
        let worker = (self.worker, self.lease);
        let span = consumer.next_of_worker(store, worker, limit, &mut |next| {
            match next {
                None => changes.clear(),
                Some((number, stored)) => {
                    changes.push(decode(&consumer.table.rows.lists, &mut names, number, stored)?);
                }
            }
            Ok(())
        })?;
        Ok(ChangeBatch { consumer: Arc::clone(consumer), span, changes })
    }

    /// Returns the consumer.
    #[must_use]
    pub fn consumer(&self) -> &Changes<R> {
        &self.changes
    }

    /// Ends the lease, and frees the keys for other workers at once. A batch of this worker can't be committed
    /// afterwards.
    ///
    /// # Errors
    ///
    /// The errors of [`Store::transaction`]. After an error, the keys become free after the lease.
    pub fn leave(self) -> Result<()> {
        self.changes.consumer.leave(&self.changes.store, self.worker)
    }
}

impl<R: Entity> fmt::Debug for ChangeWorker<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChangeWorker")
            .field("consumer", &self.changes.name())
            .field("lease", &self.lease)
            .finish_non_exhaustive()
    }
}
