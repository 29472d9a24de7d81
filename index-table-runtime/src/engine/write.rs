//! Writing one table in one transaction.

use super::{Ascending, Space};
use crate::model::{
    error::Result,
    maintain::Sink,
    schema::{IndexSchema, Source},
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

    /// Removes a small record.
    fn remove(&mut self, space: Space, key: &[u8]) -> Result<()>;

    /// Removes all small records of the table in a space.
    fn clear_space(&mut self, space: Space) -> Result<()>;

    /// Returns the name of the layout in which the engine stores an index; part of the index's record.
    fn layout(&self, index: &IndexSchema) -> &'static str;
}
