//! Batches of streamed changes.

use std::{fmt, ops::Deref, slice, sync::Arc, time::SystemTime, vec};

use crate::{
    model::{entity::Entity, error::Result},
    store::{Store, WriteTxn, watch::ChangeKind},
    upkeep::changes::{Consumer, Span},
};

/// A change of a row in the change stream of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StreamedChange<R: Entity> {
    /// The number of the change. The numbers of a table ascend in the order of the changes; in a sharded store, with gaps.
    /// If changes are lost, for example because an older backup was restored, later changes get the same numbers. So the
    /// number and the time together identify a change.
    pub number: u64,
    /// The time of the write, by the clock of the process that wrote it, in milliseconds.
    pub time: SystemTime,
    /// The kind; never [`Moved`](ChangeKind::Moved). A row whose primary key is updated is deleted and inserted.
    pub kind: ChangeKind,
    /// The primary key of the row.
    pub key: R::Key,
    /// The new row; for a deleted row, the old row.
    pub row: R,
    /// The number of the list of names and kinds that the row was written with. Later lists have greater numbers, and a number means the
    /// same list in all shards, copies and followers.
    pub list: u32,
    /// The names in this list, as serde writes them, in the order of the values in the row. They tell which release has
    /// written the row: a name that `R` does not read is a field that another release has added or removed. Empty if `R` uses
    /// `flatten` or `transparent`, because such a row has its names itself, or none.
    ///
    /// Consecutive changes of a batch with the same list share the names.
    pub names: Arc<[String]>,
}

/// Some changes of a change stream, in their order; from [`Changes::next_batch`](crate::Changes::next_batch). It is a slice of
/// [`StreamedChange`]s.
#[must_use = "the consumer gets the changes again until the batch is committed"]
pub struct ChangeBatch<R: Entity> {
    pub(super) consumer: Arc<Consumer>,
    pub(super) span: Span,
    pub(super) changes: Vec<StreamedChange<R>>,
}

impl<R: Entity> ChangeBatch<R> {
    /// Commits the batch: the consumer does not get these changes again. Committing an empty batch does nothing, except
    /// that the consumer skips changes that its former workers have committed.
    ///
    /// Cost: a transaction with one write, in each shard that has some of the changes.
    ///
    /// # Errors
    ///
    /// The errors of [`commit_in`](ChangeBatch::commit_in) and of [`Store::transaction`]. After an error, the consumer
    /// gets the changes again.
    pub fn commit(&self, store: &Store) -> Result<()> {
        if self.span.is_empty() {
            return Ok(());
        }
        store.transaction(|txn| self.commit_in(txn))
    }

    /// Commits the batch in a transaction, together with its other writes. So these writes are made exactly once.
    ///
    /// Cost: one look-up and one write.
    ///
    /// # Errors
    ///
    /// [`Error::BatchSuperseded`](crate::Error::BatchSuperseded) if the consumer has committed other changes since the batch was read, or was removed and
    /// created again; then roll back the transaction. [`Error::NoConsumer`](crate::Error::NoConsumer) if it was removed, [`Error::WrongStore`](crate::Error::WrongStore) in a
    /// transaction of another store; the [errors of writing](crate::Error#common-errors). After an error, nothing has changed.
    ///
    /// # Examples
    ///
    /// A table of totals that is kept up to date from the changes of the invoices:
    ///
    /// ```
    /// use index_table::{ChangeKind, IndexTable, Store};
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(Serialize, Deserialize, IndexTable)]
    /// #[table(changes)]
    /// struct Invoice {
    ///     #[primary_key]
    ///     number: u64,
    ///     customer: u64,
    /// }
    ///
    /// #[derive(Serialize, Deserialize, IndexTable)]
    /// struct Count {
    ///     #[primary_key]
    ///     customer: u64,
    ///     inserted: u64,
    /// }
    ///
    /// # fn main() -> index_table::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let store = Store::open(dir.path())?;
    /// let invoices = InvoiceRepository::open(&store)?;
    /// let counts = CountRepository::open(&store)?;
    /// store.transaction(|txn| invoices.insert(txn, &Invoice { number: 1, customer: 7 }))?;
    ///
    /// let mut changes = invoices.changes(&store, "counts")?;
    /// loop {
    ///     let batch = changes.next_batch(100)?;
    ///     if batch.is_empty() {
    ///         break;
    ///     }
    ///     store.transaction(|txn| {
    ///         for change in batch.iter().filter(|change| change.kind == ChangeKind::Inserted) {
    ///             let customer = change.row.customer;
    ///             let inserted = counts.get(txn, customer)?.map_or(0, |count| count.inserted);
    ///             counts.put(txn, &Count { customer, inserted: inserted + 1 })?;
    ///         }
    ///         batch.commit_in(txn)
    ///     })?;
    /// }
    /// assert_eq!(counts.get(&store.read()?, 7)?.map(|count| count.inserted), Some(1));
    /// # Ok(())
    /// # }
    /// ```
    pub fn commit_in(&self, txn: &mut WriteTxn<'_>) -> Result<()> {
        if self.span.is_empty() {
            return Ok(());
        }
        self.consumer.commit(txn, &self.span)
    }
}

impl<R: Entity> Deref for ChangeBatch<R> {
    type Target = [StreamedChange<R>];

    fn deref(&self) -> &[StreamedChange<R>] {
        &self.changes
    }
}

impl<'b, R: Entity> IntoIterator for &'b ChangeBatch<R> {
    type Item = &'b StreamedChange<R>;
    type IntoIter = slice::Iter<'b, StreamedChange<R>>;

    fn into_iter(self) -> Self::IntoIter {
        self.changes.iter()
    }
}

impl<R: Entity> IntoIterator for ChangeBatch<R> {
    type Item = StreamedChange<R>;
    type IntoIter = vec::IntoIter<StreamedChange<R>>;

    fn into_iter(self) -> Self::IntoIter {
        self.changes.into_iter()
    }
}

impl<R: Entity> fmt::Debug for ChangeBatch<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChangeBatch")
            .field("consumer", &self.consumer.name)
            .field("changes", &self.changes.len())
            .finish_non_exhaustive()
    }
}
