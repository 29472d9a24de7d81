//! The recoveries of queues and change streams, without the type of the rows, for tools.

use super::recorded::UntypedTable;
use crate::{
    model::error::Result,
    store::{ReadTxn, Store},
    upkeep::{
        changes::{self, Consumer},
        queue::{self, DeadLetters, Drained},
    },
};

impl UntypedTable {
    /// Returns the dead letters of the table's eventual indexes; none without such an index.
    ///
    /// # Errors
    ///
    /// The [errors of reading](crate::Error#common-errors).
    pub fn dead_letters(&self, txn: &ReadTxn<'_>) -> Result<DeadLetters> {
        let open = self.open_table();
        if !open.schema.has_eventual() {
            return Ok(Vec::new());
        }
        queue::list_dead_letters(open, txn.reader(open)?)
    }

    /// Applies the dead letters again, as [`Table::retry_dead_letters`](super::Table::retry_dead_letters) does.
    ///
    /// # Errors
    ///
    /// The errors of [`Store::transaction`].
    pub fn retry_dead_letters(&self, store: &Store) -> Result<Drained> {
        queue::retry_dead_letters(store, self.open_table())
    }

    /// Removes a dead letter, so that the entries of its row stay as they are: `repair` corrects them. `shard` is its
    /// [shard](crate::DeadLetter::shard). Returns false if there is no such message.
    ///
    /// # Errors
    ///
    /// The errors of [`Store::transaction`].
    pub fn drop_dead_letter(
        &self,
        store: &Store,
        shard: Option<&str>,
        number: u64,
    ) -> Result<bool> {
        let open = self.open_table();
        Ok(open.schema.has_eventual() && queue::drop_dead_letter(store, open, (shard, number))?)
    }

    /// Moves a consumer of the change stream forward to the change with this number, and at least to the oldest change that is kept.
    /// Returns the number of skipped changes.
    ///
    /// # Errors
    ///
    /// The errors of [`Store::transaction`].
    pub fn skip_changes(&self, store: &Store, consumer: &str, number: u64) -> Result<u64> {
        let consumer = Consumer::open(store, self.open_table(), consumer)?;
        consumer.number(store)?;
        consumer.skip_to(store, number)
    }

    /// Removes a consumer of the change stream. Returns false if there is none with this name.
    ///
    /// # Errors
    ///
    /// The errors of [`Store::transaction`].
    pub fn remove_consumer(&self, store: &Store, consumer: &str) -> Result<bool> {
        changes::remove_consumer(store, self.open_table(), consumer)
    }
}
