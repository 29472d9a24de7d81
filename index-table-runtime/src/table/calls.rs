//! Asynchronous calls for single rows.

use std::{borrow::Borrow, sync::Arc, time::Duration};

use super::{KeyedTable, Table, encoded, keyed::encoded_argument, untyped::Writing};
use crate::{
    model::{
        entity::Entity,
        key::{Key, KeyBuf},
        schema::Source,
    },
    query::Bounds,
    store::{self, Call, Store, change_row, look_up, look_up_row, write_row},
    write::queue::IndexToken,
};

impl<R: Entity> KeyedTable<R> {
    /// Returns the row with this primary key, in a transaction of its own.
    pub fn get_async(&self, store: &Store, key: <R::Key as Key>::Arg<'_>) -> Call<Option<R>>
    where
        R: Send,
    {
        let (table, key) = (Table::clone(self), encoded_argument::<R>(key));
        look_up_row(store, &self.open, key, move |bytes, key| {
            table.decode(bytes, Source::Facts, key)
        })
    }

    /// Returns the row with this key in the unique index at this position, in a transaction of its own.
    pub fn get_by_async(&self, store: &Store, index: usize, key: Bounds) -> Call<Option<R>>
    where
        R: Send,
    {
        let table = self.clone();
        look_up(store, 1, move |txn| table.get_by(txn, index, key))
    }

    /// Adds a row, in a transaction of its own.
    pub fn insert_async(&self, store: &Store, row: &R) -> Call<()>
    where
        R: Send,
    {
        self.write_async(store, Writing::Insert, row)
    }

    /// Adds or replaces a row, in a transaction of its own.
    pub fn put_async(&self, store: &Store, row: &R) -> Call<()>
    where
        R: Send,
    {
        self.write_async(store, Writing::Put, row)
    }

    fn write_async(&self, store: &Store, writing: Writing, row: &R) -> Call<()>
    where
        R: Send,
    {
        let mut key = KeyBuf::new();
        row.primary_key(&mut key);
        let (open, copy) = (Arc::clone(&self.open), self.open.copy(row));
        write_row(store, open.row_key(key.as_bytes()), move |txn| match &copy {
            Ok(row) => open.write_row(txn, writing, &open.new_row(row)),
            Err(error) => Err(error.again()),
        })
    }

    /// Changes the row with this primary key, in a transaction of its own.
    pub fn update_async(
        &self,
        store: &Store,
        key: <R::Key as Key>::Arg<'_>,
        mut change: impl FnMut(&mut R) + Send + 'static,
    ) -> Call<bool> {
        let (table, key) = (Table::clone(self), encoded_argument::<R>(key));
        let row_key = self.open.row_key(key.as_bytes());
        change_row(store, row_key, move |txn| table.update_encoded(txn, &key, &mut change))
    }

    /// Removes the row with this primary key, in a transaction of its own.
    pub fn delete_async(&self, store: &Store, key: <R::Key as Key>::Arg<'_>) -> Call<bool> {
        let (open, key) = (Arc::clone(&self.open), encoded_argument::<R>(key));
        let row_key = open.row_key(key.as_bytes());
        write_row(store, row_key, move |txn| open.delete(txn, key.as_bytes()))
    }
}

impl<R: Entity> Table<R> {
    /// Returns the rows with these primary keys, in the given order, of one snapshot; `None` for a missing row. The keys have the form
    /// that [`keys`](crate::Scan::keys) yields. For any executor. With the feature `async`.
    ///
    /// Up to eight look-ups run in the thread of the task, unless they may have to wait for a disk.
    ///
    /// Cost: one look-up for each; each row is decoded.
    ///
    /// # Errors
    ///
    /// The errors of [`Store::read_async`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use index_table::{IndexTable, Result, Store};
    /// # use serde::{Deserialize, Serialize};
    /// # #[derive(Serialize, Deserialize, IndexTable)]
    /// # struct Note { #[primary_key] id: u32, text: String }
    /// async fn both(store: &Store, notes: &NoteRepository) -> Result<Vec<Option<Note>>> {
    ///     notes.get_many_async(store, [1, 2]).await
    /// }
    /// ```
    pub fn get_many_async<I>(&self, store: &Store, keys: I) -> Call<Vec<Option<R>>>
    where
        I: IntoIterator<Item: Borrow<R::Key>>,
        R: Send,
    {
        let (table, keys) = (self.clone(), keys.into_iter().map(encoded::<R>).collect::<Vec<_>>());
        look_up(store, keys.len(), move |txn| {
            keys.iter().map(|key| table.get_encoded(txn, key)).collect()
        })
    }

    /// Waits as [`wait_for`](Table::wait_for) does, without a thread that waits. For any executor. With the feature `async`.
    ///
    /// Cost: a read transaction in a thread of the store, at once, after each batch of applied messages, and every 100 ms.
    ///
    /// # Errors
    ///
    /// The errors of [`Store::read_async`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use index_table::{IndexTable, Result, Store};
    /// # use serde::{Deserialize, Serialize};
    /// # use std::time::Duration;
    /// # #[derive(Serialize, Deserialize, IndexTable)]
    /// # #[index(text, consistency = "eventual")]
    /// # struct Note { #[primary_key] id: u32, text: String }
    /// async fn insert_and_wait(store: &Store, notes: &NoteRepository, note: Note) -> Result<bool> {
    ///     let own = notes.clone();
    ///     let token = store
    ///         .transaction_async(move |txn| {
    ///             own.insert(txn, &note)?;
    ///             Ok(txn.token())
    ///         })
    ///         .await?;
    ///     notes.wait_for_async(store, &token, Duration::from_secs(5)).await
    /// }
    /// ```
    pub fn wait_for_async(
        &self,
        store: &Store,
        token: &IndexToken,
        timeout: Duration,
    ) -> Call<bool> {
        store::wait_for_async(store, &self.open, token, timeout)
    }
}
