//! The methods of tables whose rows expire.

use std::{error, sync::Arc, time::SystemTime};

use super::Table;
use crate::{
    model::{
        entity::{Entity, IndexEntry},
        error::Result,
        expiry::{Expires, is_expired},
        row,
    },
    query::Scan,
    store::{ReadTxn, Store},
    upkeep::expiry::{self, Expired, Pass},
};

impl<R: Entity> Table<R> {
    /// Deletes up to `limit` rows that have expired at the time `now`, oldest first, and returns their number. A row
    /// has expired if its time is not later than `now`. [`Store::start_expiry_worker`] does this in the background.
    ///
    /// The rows are deleted in transactions of at most 256 rows. Such a transaction deletes no further row after 10 ms.
    /// If it takes longer with its commit, the next transaction deletes fewer rows. Between two transactions, other
    /// writers get their turn. If another writer gives a row a later time during this call, the row stays.
    ///
    /// A row that can't be deleted, because another row refers to it or because it can't be read, stays, and the rows after it are
    /// deleted. The same is true for rows in shards that are not available. [`expire_report`](Table::expire_report) returns them.
    /// With the feature `tracing`, the first of them is an event of the level `WARN`, and their number is
    /// [`Usage::refused_expiries`](crate::Usage::refused_expiries).
    ///
    /// Cost: one step for each row in the index, then a `delete`. Rows that can't be deleted are read by each call.
    ///
    /// # Errors
    ///
    /// [`Error::Archive`](crate::Error::Archive); [`Error::IndexNotReadable`](crate::Error::IndexNotReadable);
    /// the errors of [`Store::transaction`]. After an error, the rows of earlier batches stay deleted.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::{Duration, SystemTime};
    ///
    /// use index_table::{IndexTable, Store};
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(Serialize, Deserialize, IndexTable)]
    /// #[table(expires = ends)]
    /// struct Session {
    ///     #[primary_key]
    ///     id: u64,
    ///     ends: Option<SystemTime>,
    /// }
    ///
    /// # fn main() -> index_table::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let store = Store::open(dir.path())?;
    /// let sessions = SessionRepository::open(&store)?;
    /// let now = SystemTime::now();
    /// store.transaction(|txn| {
    ///     sessions.insert(txn, &Session { id: 1, ends: Some(now) })?;
    ///     sessions.insert(txn, &Session { id: 2, ends: Some(now + Duration::from_secs(60)) })?;
    ///     sessions.insert(txn, &Session { id: 3, ends: None })
    /// })?;
    /// assert_eq!(sessions.all(&store.read()?).count()?, 3);
    /// assert_eq!(sessions.live(&store.read()?).count()?, 2);
    /// assert_eq!(sessions.expire(&store, now, 1000)?, 1);
    /// assert_eq!(sessions.all(&store.read()?).count()?, 2);
    /// # Ok(())
    /// # }
    /// ```
    pub fn expire(&self, store: &Store, now: SystemTime, limit: u64) -> Result<u64>
    where
        R: Expires,
    {
        Ok(self.expire_report(store, now, limit)?.deleted)
    }

    /// As [`expire`](Table::expire), and returns the rows that could not be deleted as well.
    ///
    /// # Errors
    ///
    /// The errors of [`expire`](Table::expire).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::SystemTime;
    ///
    /// use index_table::{Error, IndexTable, Store};
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(Serialize, Deserialize, IndexTable)]
    /// #[table(expires = ends)]
    /// struct Session {
    ///     #[primary_key]
    ///     id: u64,
    ///     ends: SystemTime,
    /// }
    ///
    /// #[derive(Serialize, Deserialize, IndexTable)]
    /// #[index(session)]
    /// struct Audit {
    ///     #[primary_key]
    ///     id: u64,
    ///     #[references(Session)]
    ///     session: u64,
    /// }
    ///
    /// # fn main() -> index_table::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let store = Store::open(dir.path())?;
    /// let (sessions, audits) = (SessionRepository::open(&store)?, AuditRepository::open(&store)?);
    /// let ends = SystemTime::now();
    /// store.transaction(|txn| {
    ///     (1..=9).try_for_each(|id| sessions.insert(txn, &Session { id, ends }))?;
    ///     audits.insert(txn, &Audit { id: 1, session: 3 })
    /// })?;
    /// let expired = sessions.expire_report(&store, ends, 1000)?;
    /// assert_eq!((expired.deleted, expired.refused), (8, 1));
    /// assert!(matches!(expired.refusal, Some(Error::Referenced { .. })));
    /// # Ok(())
    /// # }
    /// ```
    pub fn expire_report(&self, store: &Store, now: SystemTime, limit: u64) -> Result<Expired>
    where
        R: Expires,
    {
        expiry::expire(store, &self.open, now, limit, &mut Pass::default())
    }

    /// Returns a scan of the rows that have not expired now, in the order of their primary keys. Other queries
    /// return expired rows until they are deleted; see [`Scan::live`].
    ///
    /// Cost: each row is decoded for the test, and decoded again if it is returned.
    pub fn live<'txn>(&'txn self, txn: &'txn ReadTxn<'_>) -> Scan<'txn, R>
    where
        R: Expires,
    {
        self.all(txn).live()
    }

    /// Sets the function that receives expired rows before they are deleted, batch by batch, from
    /// [`expire`](Table::expire) and from the workers of this process. It replaces the function that was set before.
    ///
    /// Each row is archived at least once. If the function fails, or the process ends before the deletion is
    /// committed, the rows are archived again later. So the function should be idempotent, and return when the rows
    /// are stored durably. A row that is changed between its archiving and its deletion stays, and is archived again
    /// when it expires.
    ///
    /// # Examples
    ///
    /// Rows are appended to a file, as JSON lines:
    ///
    /// ```
    /// use std::{fs::OpenOptions, io::Write, time::SystemTime};
    ///
    /// use index_table::{IndexTable, Store};
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(Serialize, Deserialize, IndexTable)]
    /// #[table(expires = ends)]
    /// struct Session {
    ///     #[primary_key]
    ///     id: u64,
    ///     ends: SystemTime,
    /// }
    ///
    /// # fn main() -> index_table::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("sessions.jsonl");
    /// # let store = Store::open(dir.path())?;
    /// let sessions = SessionRepository::open(&store)?;
    /// let file = path.clone();
    /// sessions.archive_expired(move |rows| {
    ///     let mut lines = Vec::new();
    ///     for row in rows {
    ///         serde_json::to_writer(&mut lines, row)?;
    ///         lines.push(b'\n');
    ///     }
    ///     let mut file = OpenOptions::new().create(true).append(true).open(&file)?;
    ///     file.write_all(&lines)?;
    ///     file.sync_all()
    /// });
    /// let now = SystemTime::now();
    /// store.transaction(|txn| sessions.insert(txn, &Session { id: 7, ends: now }))?;
    /// sessions.expire(&store, now, 1000)?;
    /// assert!(std::fs::read_to_string(&path).unwrap().starts_with("{\"id\":7,"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn archive_expired<E>(
        &self,
        archive: impl Fn(&[R]) -> Result<(), E> + Send + Sync + 'static,
    ) where
        R: Expires,
        E: Into<Box<dyn error::Error + Send + Sync>>,
    {
        let name = R::TABLE.name;
        let lists = Arc::clone(&self.open.rows.lists);
        let archive = move |rows: &[Vec<u8>]| {
            let (mut decoded, mut unreadable) = (Vec::with_capacity(rows.len()), Vec::new());
            for (at, row) in rows.iter().enumerate() {
                match row::decode(&lists, row) {
                    Ok(row) => decoded.push(row),
                    Err(error) => unreadable.push((at, error)),
                }
            }
            if !decoded.is_empty() {
                archive(&decoded).map_err(|error| expiry::failed(name, error))?;
            }
            Ok(unreadable)
        };
        *self.open.shared.archive() = Some(Arc::new(archive));
    }
}

/// Returns the row of a look-up, unless it has expired now.
#[doc(hidden)]
pub fn live<R: Expires>(found: Result<Option<R>>) -> Result<Option<R>> {
    Ok(found?.filter(|row| !is_expired(row, SystemTime::now())))
}

impl<'txn, E: IndexEntry<'txn>> Scan<'txn, E> {
    /// Keeps only the rows that have not expired now, as a [`filter`](Scan::filter).
    ///
    /// Cost: the same as a filter.
    pub fn live(self) -> Self
    where
        E::Row: Expires,
    {
        let now = SystemTime::now();
        self.filter(move |row| !is_expired(row, now))
    }
}
