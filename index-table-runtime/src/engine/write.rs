//! Writing one table in one transaction.

use super::{Ascending, Space};
use crate::model::{
    error::Result,
    maintain::Sink,
    schema::{IndexSchema, Source},
    stream::Place,
};

/// Writing one table in one transaction. Changes of facts and entries come through [`Sink::change`].
pub(crate) trait Write: Sink {
    /// Writes many entries of an index, or facts, in the order of the database. Returns their number. The outcome is
    /// the same as writing the entries one by one, as changes, but may be faster. Entries that are out of order have
    /// the same outcome, without the speed.
    fn append(&mut self, source: Source, entries: &mut dyn Ascending) -> Result<u64> {
        let mut count = 0;
        while let Some(entry) = entries.next()? {
            self.change(entry.put(source))?;
            count += 1;
        }
        Ok(count)
    }

    /// Lets [`insert_fact`](Write::insert_fact) and [`insert_entry`](Write::insert_entry) return true before the engine has
    /// the result, until [`settle_new`](Write::settle_new) or [`abandon_new`](Write::abandon_new). Returns false if they
    /// still return their results.
    fn defer_new(&mut self) -> bool {
        false
    }

    /// Sends all changes since [`defer_new`](Write::defer_new), and returns whether all new keys were free. If not, none of
    /// the changes were made. In a transaction with [`Txn::assume_new`](super::Txn::assume_new), returns true, and the
    /// commit conflicts if a key was taken.
    fn settle_new(&mut self) -> Result<bool> {
        Ok(true)
    }

    /// Removes all changes since [`defer_new`](Write::defer_new), after an error. If that is impossible, the transaction
    /// fails.
    fn abandon_new(&mut self) {}

    /// Writes a fact unless its primary key is taken. Returns false if it is taken, and nothing has changed.
    fn insert_fact(&mut self, primary_key: &[u8], row: &[u8]) -> Result<bool>;

    /// Writes the entry of a key in an index with at most one entry for each key, unless the key has an entry.
    /// Returns false if it has one, and nothing has changed.
    fn insert_entry(
        &mut self,
        index: usize,
        key: &[u8],
        primary_key: &[u8],
        data: &[u8],
    ) -> Result<bool>;

    /// Writes an entry of an index with at most one entry for each key, and keeps the entries of other rows with
    /// the same key; see law 2.
    ///
    /// # Errors
    ///
    /// [`Error::KeyTooLong`](crate::Error::KeyTooLong) if the entry is not the first of its key, and its keys are
    /// too long together. After this error, nothing has changed.
    fn put_shared(
        &mut self,
        index: usize,
        key: &[u8],
        primary_key: &[u8],
        data: &[u8],
    ) -> Result<()>;

    /// Removes an entry that `put_shared` can write, and keeps the entries of other rows with the same key.
    fn remove_shared(&mut self, index: usize, key: &[u8], primary_key: &[u8]) -> Result<()>;

    /// Sends the changes that the engine has delayed. An error may concern any of them.
    fn flush(&mut self) -> Result<()> {
        Ok(())
    }

    /// Empties an index.
    fn clear(&mut self, index: usize) -> Result<()>;

    /// Replaces a small record.
    fn put(&mut self, space: Space, key: &[u8], record: &[u8]) -> Result<()>;

    /// Writes a small record whose key is new. If transactions of other clients can write at the same time, a taken key is a
    /// conflict, and no record is replaced.
    fn put_new(&mut self, space: Space, key: &[u8], record: &[u8]) -> Result<()> {
        self.put(space, key, record)
    }

    /// Removes a small record.
    fn remove(&mut self, space: Space, key: &[u8]) -> Result<()>;

    /// Removes small records, and writes others. A server gets a constant number of statements.
    fn exchange(
        &mut self,
        space: Space,
        removed: &[Vec<u8>],
        written: &[(Vec<u8>, Vec<u8>)],
    ) -> Result<()> {
        one_by_one(self, space, removed, written)
    }

    /// Returns the place of the next change in the stream of the table, if transactions of other clients can write
    /// changes at the same time. Such a change gets its number later.
    fn place_of_change(&mut self) -> Option<Place> {
        None
    }

    /// Removes all small records of the table in a space.
    fn clear_space(&mut self, space: Space) -> Result<()>;

    /// Returns the name of the layout in which the engine stores an index; part of the index's record.
    fn layout(&self, index: &IndexSchema) -> &'static str;
}

/// Removes small records, and writes others, each by itself.
pub(crate) fn one_by_one(
    writer: &mut (impl Write + ?Sized),
    space: Space,
    removed: &[Vec<u8>],
    written: &[(Vec<u8>, Vec<u8>)],
) -> Result<()> {
    removed.iter().try_for_each(|key| writer.remove(space, key))?;
    written.iter().try_for_each(|(key, record)| writer.put(space, key, record))
}
