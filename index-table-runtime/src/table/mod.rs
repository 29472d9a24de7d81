//! The base of repositories: a [`Table`] for each type of row. This module has the methods without a key or
//! an index as a parameter; [`keyed`] has the methods for generated code.

mod aggregates;
mod all_tables;
mod analyze;
#[cfg(feature = "async")]
mod calls;
mod changes;
mod diff;
mod expiry;
#[cfg(feature = "json")]
pub(crate) mod json;
mod keyed;
mod numbered;
mod parts;
mod queries;
mod ranges;
mod recorded;
mod recovery;
mod scrub;
mod shards;
mod sizes;
mod untyped;
mod whatif;

use std::{borrow::Borrow, fmt, marker::PhantomData, sync::Arc, time::Duration};

pub use aggregates::Aggregates;
pub use all_tables::{AggregateSize, IndexSize, StoreReport, TableSize};
pub use changes::{ChangeBatch, ChangeWorker, Changes, StreamedChange};
pub use diff::{ChangedField, RowDifference};
pub use expiry::live;
pub use keyed::KeyedTable;
pub use parts::{EncodedKey, Parts};
pub use ranges::RangeInfo;
pub use recorded::{
    MapKeys, RecordedTables, UntypedEntry, UntypedField, UntypedRange, UntypedTable,
};
pub use scrub::Scrub;
pub use shards::{ShardInfo, ShardStatus};
pub use whatif::{ImaginedAnalysis, ImaginedIndex};

use self::untyped::Writing;
use crate::{
    engine::Read as _,
    model::{
        entity::Entity,
        error::Result,
        key::{KeyBuf, Sequence},
        revision::{Revised, RevisionNumber as _},
        row_vtable::RowVtable,
        schema::Source,
    },
    query::{Bounds, GetMany, Scan},
    store::{self, OpenTable, ReadTxn, Store, WriteTxn, watch::Watch},
    upkeep::{
        build::Build,
        bulk::{self, BulkLoad},
        cascade,
        queue::{self as index_queue, DeadLetters, Drained},
        upgrade::Upgrade,
        verify::{Repair, Verify},
    },
    usage::{Usage, trace::span},
    write::{
        Scratch,
        queue::{self, IndexToken, Lag},
        rows,
    },
};

/// A table: its rows and its indexes. Each repository dereferences to the table of its rows, so these methods
/// are methods of every repository. The repository has further, generated methods that take a key or a field.
///
/// Like a repository, a table is a handle that threads can share.
///
/// # Examples
///
/// ```
/// use index_table::{IndexTable, Store, Table, WriteTxn};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Debug, PartialEq, Serialize, Deserialize, IndexTable)]
/// #[index(town)]
/// struct Person {
///     #[primary_key]
///     id: u32,
///     town: String,
/// }
///
/// # fn main() -> index_table::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let store = Store::open(dir.path())?;
/// let people = PersonRepository::open(&store)?;
/// store.transaction(|txn| {
///     people.insert(txn, &Person { id: 1, town: "Oslo".into() })?;
///     let old = people.replace(txn, &Person { id: 1, town: "Rome".into() })?;
///     assert_eq!(old.map(|row| row.town).as_deref(), Some("Oslo"));
///     Ok(())
/// })?;
///
/// let txn = store.read()?;
/// assert_eq!(people.all(&txn).count()?, 1);
/// # Ok(())
/// # }
/// ```
pub struct Table<R> {
    open: Arc<OpenTable>,
    row: PhantomData<fn() -> R>,
}

impl<R: Entity> Table<R> {
    /// The functions of the type of row, for code that is compiled once.
    const ROWS: &'static RowVtable = &RowVtable::of::<R>();

    /// Builds the indexes that are not readable yet, in batches. Between the batches, other threads can
    /// write.
    ///
    /// Cost: each row is read once, and each entry is written once.
    pub fn build<'t>(&'t self, store: &'t Store) -> Build<'t> {
        Build::new(store, &self.open)
    }

    /// Adds a row. A field with `#[revision]` is stored as 1, whatever its value in `row` is.
    ///
    /// Cost: one write for the row and one for each index entry.
    ///
    /// # Errors
    ///
    /// [`Error::DuplicateKey`](crate::Error::DuplicateKey), [`Error::UniqueViolation`](crate::Error::UniqueViolation), [`Error::MissingReference`](crate::Error::MissingReference), [`Error::KeyTooLong`](crate::Error::KeyTooLong) and
    /// [`Error::Codec`](crate::Error::Codec), after which nothing has changed; the [errors of writing](crate::Error#common-errors).
    pub fn insert(&self, txn: &mut WriteTxn<'_>, row: &R) -> Result<()> {
        let open = &self.open;
        open.write_row(txn, Writing::Insert, &open.new_row(row))
    }

    /// Calls `row` with the next number, adds the returned row, and returns the number. For tables whose primary key
    /// is one number. The next number is one above all assigned numbers and all primary keys in the table; the first
    /// number is 1. In a table whose primary key is the fields of `shard_by` and then one number, the repository has its
    /// own `insert_with`, which also takes these fields, and numbers the rows within them.
    ///
    /// On a server, each store takes blocks of numbers, so that clients don't wait for each other. The numbers of several
    /// stores don't ascend together, and unused numbers of a block, of a transaction that was rolled back, and of an
    /// operation that failed are gaps.
    ///
    /// Cost: the same as [`insert`](Table::insert), and one seek to the last row, one look-up and one write; on a server, the
    /// same as `insert`, and two round trips for each block.
    ///
    /// # Errors
    ///
    /// The errors of [`insert`](Table::insert), [`Error::SequenceExhausted`](crate::Error::SequenceExhausted), [`Error::OtherKey`](crate::Error::OtherKey), and [`Error::NotOffered`](crate::Error::NotOffered) for a table
    /// in several shards. After an error, nothing has changed, and the number is not assigned.
    pub fn insert_with(
        &self,
        txn: &mut WriteTxn<'_>,
        row: impl FnOnce(R::Key) -> R,
    ) -> Result<R::Key>
    where
        R::Key: Sequence,
    {
        span!(TRACE, "insert", table = R::TABLE.name);
        self.insert_after(txn, &[], row)
    }

    /// Adds a row, or replaces the row with the same primary key. If the table already has an equal row
    /// of the current version, it is not written. The order of the elements of a `HashSet` or
    /// `HashMap` is ignored.
    ///
    /// If the rows have a field with `#[revision]`, the row is always written, with its revision plus 1. A
    /// row that does not exist yet has revision 0.
    ///
    /// Cost: one look-up, one write for the row and one for each index entry that changes.
    ///
    /// # Errors
    ///
    /// [`Error::UniqueViolation`](crate::Error::UniqueViolation), [`Error::MissingReference`](crate::Error::MissingReference), [`Error::KeyTooLong`](crate::Error::KeyTooLong) and [`Error::Codec`](crate::Error::Codec), and
    /// [`Error::Conflict`](crate::Error::Conflict) if the stored row has another revision, after which nothing has changed; the
    /// [errors of writing](crate::Error#common-errors).
    pub fn put(&self, txn: &mut WriteTxn<'_>, row: &R) -> Result<()> {
        let open = &self.open;
        open.write_row(txn, Writing::Put, &open.new_row(row))
    }

    /// Writes a row like [`put`](Table::put), and returns the replaced row.
    ///
    /// Cost: the same as [`put`](Table::put), and one more look-up; the old row is decoded.
    ///
    /// # Errors
    ///
    /// The errors of [`put`](Table::put).
    pub fn replace(&self, txn: &mut WriteTxn<'_>, row: &R) -> Result<Option<R>> {
        txn.operate(|txn| {
            span!(TRACE, "put", table = R::TABLE.name);
            let (mut writer, scratch, written) = txn.row_writer(&self.open)?;
            let mut key = KeyBuf::new();
            row.primary_key(&mut key);
            let key = key.as_bytes();
            let before = match writer.reader().fact(key)? {
                Some(bytes) => self.decode(bytes, Source::Facts, key)?,
                None => None,
            };
            let row = &self.open.new_row(row);
            rows::put(&self.open.rows, &mut writer, row, scratch, written)?;
            Ok(before)
        })
    }

    /// Returns the row with this primary key. The key has the form that [`keys`](Scan::keys) yields: for a
    /// primary key of several fields, a tuple.
    ///
    /// Cost: one look-up; the row is decoded.
    ///
    /// # Errors
    ///
    /// The [errors of reading](crate::Error#common-errors).
    ///
    /// # Examples
    ///
    /// ```
    /// use index_table::{IndexTable, Store};
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(Serialize, Deserialize, IndexTable)]
    /// #[index(guest)]
    /// struct Seat {
    ///     #[primary_key]
    ///     row: String,
    ///     #[primary_key]
    ///     number: u32,
    ///     guest: String,
    /// }
    ///
    /// # fn main() -> index_table::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let store = Store::open(dir.path())?;
    /// let seats = SeatRepository::open(&store)?;
    /// store.transaction(|txn| {
    ///     seats.insert(txn, &Seat { row: "B".into(), number: 7, guest: "Ann".into() })?;
    ///     let keys: Vec<_> = seats.find_by_guest(txn, "Ann").keys().collect::<Result<_, _>>()?;
    ///     for key in &keys {
    ///         assert_eq!(seats.get_key(txn, key)?.map(|seat| seat.number), Some(7));
    ///         assert!(seats.update_key(txn, key, |seat| seat.guest = "Bob".into())?);
    ///     }
    ///     for key in keys {
    ///         assert!(seats.delete_key(txn, key)?);
    ///     }
    ///     Ok(())
    /// })
    /// # }
    /// ```
    pub fn get_key(&self, txn: &ReadTxn<'_>, key: impl Borrow<R::Key>) -> Result<Option<R>> {
        self.get_encoded(txn, &encoded::<R>(key))
    }

    /// Changes the row with this primary key, in the form that [`keys`](Scan::keys) yields. Returns false if
    /// there is no such row.
    ///
    /// Cost: one look-up, one write for the row and one for each index entry that changes.
    ///
    /// # Errors
    ///
    /// The errors of [`put`](Table::put), and if the primary key was changed, [`Error::DuplicateKey`](crate::Error::DuplicateKey) if another row
    /// has the new key, and [`Error::Referenced`](crate::Error::Referenced) if rows refer to the former key. After an error, nothing has changed.
    pub fn update_key(
        &self,
        txn: &mut WriteTxn<'_>,
        key: impl Borrow<R::Key>,
        change: impl FnOnce(&mut R),
    ) -> Result<bool> {
        self.update_encoded(txn, &encoded::<R>(key), change)
    }

    /// Deletes the row with this primary key, in the form that [`keys`](Scan::keys) yields. Returns false if
    /// there is no such row.
    ///
    /// Cost: one look-up, then one write for the row and one for each index entry.
    ///
    /// # Errors
    ///
    /// [`Error::Referenced`](crate::Error::Referenced) if rows of other tables refer to the row, after which nothing has changed; the
    /// [errors of writing](crate::Error#common-errors).
    pub fn delete_key(&self, txn: &mut WriteTxn<'_>, key: impl Borrow<R::Key>) -> Result<bool> {
        self.open.delete(txn, encoded::<R>(key).as_bytes())
    }

    /// Deletes a row if it has the same revision as the stored row.
    ///
    /// Cost: two look-ups, then one write for the row and one for each index entry; the stored row is decoded
    /// twice.
    ///
    /// # Errors
    ///
    /// [`Error::Conflict`](crate::Error::Conflict) if the stored row has another revision or does not exist, after which nothing has changed;
    /// the [errors of writing](crate::Error#common-errors).
    ///
    /// # Examples
    ///
    /// ```
    /// use index_table::{Error, IndexTable, Store};
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(Serialize, Deserialize, IndexTable)]
    /// struct Note {
    ///     #[primary_key]
    ///     id: u32,
    ///     #[revision]
    ///     revision: u64,
    ///     text: String,
    /// }
    ///
    /// # fn main() -> index_table::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let store = Store::open(dir.path())?;
    /// let notes = NoteRepository::open(&store)?;
    /// let mut txn = store.write()?;
    /// notes.insert(&mut txn, &Note { id: 1, revision: 0, text: "draft".into() })?;
    /// let read = notes.get(&txn, 1)?.expect("a note");
    /// notes.update(&mut txn, 1, |note| note.text = "final".into())?;
    ///
    /// let deleted = notes.delete_if(&mut txn, &read);
    /// assert!(matches!(deleted, Err(Error::Conflict { expected: 1, found: Some(2), .. })));
    /// # Ok(())
    /// # }
    /// ```
    pub fn delete_if(&self, txn: &mut WriteTxn<'_>, row: &R) -> Result<()>
    where
        R: Revised,
    {
        let mut key = KeyBuf::new();
        row.primary_key(&mut key);
        let row = (key.as_bytes(), row.revision().number());
        txn.operate(|txn| {
            span!(TRACE, "delete", table = R::TABLE.name);
            let (mut writer, Scratch { old, .. }, written) = txn.row_writer(&self.open)?;
            let deleted = rows::delete_if(&self.open.rows, &mut writer, row, old, written)?;
            cascade::finish(txn, &self.open, key.as_bytes(), deleted).map(drop)
        })
    }

    /// Returns the rows with these primary keys, in the given order; `None` for a missing row. The keys have
    /// the form that [`keys`](Scan::keys) yields, owned or borrowed.
    ///
    /// Cost: one look-up for each; each row is decoded.
    pub fn get_many<'txn, I>(
        &'txn self,
        txn: &'txn ReadTxn<'_>,
        keys: I,
    ) -> GetMany<'txn, R, I::IntoIter>
    where
        I: IntoIterator<Item: Borrow<R::Key>>,
    {
        GetMany::new(txn.reader(&self.open), self.open.ledger(txn), keys.into_iter())
    }

    /// Returns a scan of all rows, in the order of their primary keys.
    pub fn all<'txn>(&'txn self, txn: &'txn ReadTxn<'_>) -> Scan<'txn, R> {
        Scan { request: self.open.scan(txn, Source::Facts, Bounds::new()), entry: PhantomData }
    }

    /// Loads many rows in a new transaction, in sorted order, when [`run`](BulkLoad::run) is called. The
    /// iterator yields rows or references to rows.
    ///
    /// Cost: less than half the cost of single inserts in one transaction.
    pub fn bulk_load<'a, I: IntoIterator>(
        &'a self,
        store: &'a Store,
        rows: I,
    ) -> BulkLoad<'a, 'a, R, I::IntoIter> {
        BulkLoad::new(&self.open, bulk::Target::Store(store), rows.into_iter())
    }

    /// Loads many rows as part of a transaction, as [`bulk_load`](Table::bulk_load) does.
    pub fn bulk_load_in<'a, 's, I: IntoIterator>(
        &'a self,
        txn: &'a mut WriteTxn<'s>,
        rows: I,
    ) -> BulkLoad<'a, 's, R, I::IntoIter> {
        BulkLoad::new(&self.open, bulk::Target::Txn(txn), rows.into_iter())
    }

    /// Watches the changes that this process commits after `start`: the changes of all rows, or of the rows
    /// that a scan finds.
    ///
    /// Cost: nothing before `start`; then each change is compared with the watched scans.
    pub const fn watch<'a>(&'a self, store: &'a Store) -> Watch<'a, R> {
        Watch::new(store, &self.open)
    }

    /// Returns the usage of the table and its indexes, in this process and since the table was opened.
    ///
    /// Cost: a few counters for each index are read.
    #[must_use]
    pub fn usage(&self) -> Usage {
        Usage::of(&self.open.shared.usage)
    }

    /// Compares the table's indexes with its rows.
    ///
    /// Cost: each row is read twice, and each entry once; see [`Verify`].
    pub fn verify<'txn>(&'txn self, txn: &'txn ReadTxn<'_>) -> Verify<'txn> {
        Verify::of(&self.open, txn)
    }

    /// Corrects the entries of the indexes from the rows.
    ///
    /// Cost: the same as [`verify`](Table::verify), and one write for each difference.
    pub fn repair<'txn, 's>(&'txn self, txn: &'txn mut WriteTxn<'s>) -> Repair<'txn, 's> {
        Repair::new(txn, &self.open)
    }

    /// Applies up to this number of messages to the eventual indexes, in batches. Each batch is a
    /// transaction. A table without eventual indexes has no messages. If the messages of one shard can't be applied, those of the
    /// other shards are, and then the error is returned.
    ///
    /// Cost: for each message a look-up of its row, and a look-up and a write for each entry.
    ///
    /// # Errors
    ///
    /// The errors of [`Store::transaction`].
    pub fn drain(&self, store: &Store, messages: u64) -> Result<Drained> {
        index_queue::drain(store, &self.open, messages)
    }

    /// Waits until the eventual indexes contain the writes of a transaction. Returns `false` after the
    /// timeout. Otherwise, later transactions see these entries.
    ///
    /// # Errors
    ///
    /// The errors of [`Store::read`]; [`Error::WriteInProgress`](crate::Error::WriteInProgress) if this thread has a write transaction, which would wait
    /// for itself.
    pub fn wait_for(&self, store: &Store, token: &IndexToken, timeout: Duration) -> Result<bool> {
        store::wait_for(store, &self.open, token, timeout)
    }

    /// Returns the lag of the eventual indexes behind the rows.
    ///
    /// In a sharded store, it has the messages of all shards. Cost: two look-ups in each shard.
    ///
    /// # Errors
    ///
    /// The [errors of reading](crate::Error#common-errors).
    pub fn lag(&self, txn: &ReadTxn<'_>) -> Result<Lag> {
        queue::lag_of(R::TABLE, txn.reader(&self.open)?)
    }

    /// Returns the dead letters: the messages that could not be applied to eventual indexes, each with its
    /// error.
    ///
    /// # Errors
    ///
    /// The [errors of reading](crate::Error#common-errors).
    pub fn dead_letters(&self, txn: &ReadTxn<'_>) -> Result<DeadLetters> {
        index_queue::list_dead_letters(&self.open, txn.reader(&self.open)?)
    }

    /// Applies the dead letters again, in one transaction.
    ///
    /// # Errors
    ///
    /// The errors of [`Store::transaction`].
    pub fn retry_dead_letters(&self, store: &Store) -> Result<Drained> {
        index_queue::retry_dead_letters(store, &self.open)
    }

    /// Rewrites the rows of older versions in the current version, in separate transactions. A table without
    /// a `previous` version has no such rows.
    ///
    /// Cost: each row is read, and each row of an older version is written.
    pub fn upgrade<'a>(&'a self, store: &'a Store) -> Upgrade<'a> {
        Upgrade::new(store, &self.open)
    }
}

/// Returns the stored form of a primary key.
fn encoded<R: Entity>(key: impl Borrow<R::Key>) -> KeyBuf {
    let mut encoded = KeyBuf::new();
    encoded.push(key.borrow());
    encoded
}

impl<R> Clone for Table<R> {
    fn clone(&self) -> Self {
        Self { open: Arc::clone(&self.open), row: PhantomData }
    }
}

impl<R> fmt::Debug for Table<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Table").field(&self.open.schema.name).finish()
    }
}

/// A repository, with a constant that fails if another type has its name.
pub trait Named<const CHECKED: bool> {
    /// The repository.
    type Repository;
}

impl<T> Named<true> for T {
    type Repository = T;
}

/// Compiles only if `T` is the repository of `R`, and not another type with its name.
///
/// # Panics
///
/// Panics at compile time if it is not.
#[must_use]
pub const fn is_repository<T, R>(message: &str) -> bool {
    assert!(align_of::<T>() == align_of::<KeyedTable<R>>(), "{}", message);
    true
}
