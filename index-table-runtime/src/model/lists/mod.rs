//! The lists of a table: the names and kinds in its rows, as this process knows them.
//!
//! The [catalog](Catalog) only grows, so each version of it reads the rows of all earlier ones. A row that needs something
//! new makes a version at once, for the whole process. In a store with several data files, and on a server, the version is
//! recorded before a row has it ([`Exchange`]): a number must mean the same list in files that are not open, and for other
//! clients. In a store with one data file, the version is *claimed* until a commit records it.
//!
//! Each commit of a data file writes the records that the file lacks, whatever it writes (`engine/lmdb/keep.rs`). So a list is
//! in each file that has a row of it.
//!
//! Other processes, and other clients of a server, also record versions. A row that needs a later version than the recorded one
//! makes this process read the record again. If another process has recorded a version, the claims of this process are lost:
//! a number may now mean another list. That changes the [lineage](Lists::lineage), and a transaction that began in another
//! lineage is run again.
//!
//! A row that is encoded again to be read, because it has an older version or lacks a field, has lists of its own, which are not
//! recorded ([`Lists::private_catalog`]). So a read transaction writes nothing.

mod copies;
mod record;
mod registry;
mod releases;
mod slots;
#[cfg(test)]
mod tests;

#[cfg(feature = "async")]
use std::cell::Cell;
use std::{
    any::TypeId,
    collections::BTreeMap,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use index_table_rows::{self as rows, Catalog, CollectionField, Fields, Unknown};
use serde::{Serialize, de::DeserializeOwned};

use self::slots::Slots;
pub(crate) use self::{
    copies::{CopyFault, Found, Unusable, check, choose},
    record::{LISTS, decode},
    registry::Registry,
    releases::{RELEASES, Releases},
};
use crate::{
    locks::Mutex,
    model::{
        error::{EncodeError, Error},
        key::{DecodeError, StoreFailure},
    },
};

/// The result of [`Lists::open`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Opened {
    /// The current catalog reads the rows of the data file.
    Taken,
    /// A number means another list in the data file.
    Contradicted,
}

/// Another process has recorded other lists than this process claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Contradicted;

impl Contradicted {
    /// Returns the error of a transaction that may use the claims.
    #[cold]
    pub(crate) fn error(table: &str) -> Error {
        Error::TransactionFailed {
            reason: format!(
                "another process has recorded other fields of the rows of table `{table}`; run it again"
            ),
        }
    }
}

/// The maximum number of attempts to record a version while other clients record others.
const MOST_EXCHANGES: u32 = 64;

/// Replaces the record of the lists on a server or of a shard map manager, if it is still the first argument. Returns false if it
/// was not, and `None` if versions are claimed.
pub(crate) type Exchange =
    Box<dyn Fn(Option<&[u8]>, &[u8]) -> Option<Result<bool, Error>> + Send + Sync>;

/// Reads the records of the lists again.
pub(crate) type Source = Box<dyn Fn() -> Result<Records, Error> + Send + Sync>;

/// The records of the lists of a table.
#[derive(Default)]
pub(crate) struct Records {
    /// The record of the shard map manager.
    pub(crate) manager: Option<Vec<u8>>,
    /// The records of the data files, or of the server.
    pub(crate) files: Vec<Vec<u8>>,
}

/// Appends the bytes of a value, and adds what it needs to the catalog.
type Record<'r> = dyn FnMut(&mut Catalog, &mut Vec<u8>) -> Result<(), rows::Error> + 'r;

/// Whether this thread may read the records of lists again.
#[cfg(feature = "async")]
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reading {
    Allowed,
    InPlace,
    /// A value was not read because of that.
    Missed,
}

#[cfg(feature = "async")]
thread_local! {
    static READS: Cell<Reading> = const { Cell::new(Reading::Allowed) };
}

/// Calls `read`, which decodes values. Returns `None` if the records of lists have to be read again before, which can block.
#[cfg(feature = "async")]
pub(crate) fn read_in_place<T>(read: impl FnOnce() -> T) -> Option<T> {
    struct Restored;

    impl Drop for Restored {
        fn drop(&mut self) {
            READS.set(Reading::Allowed);
        }
    }

    let _restored = Restored;
    READS.set(Reading::InPlace);
    let value = read();
    (READS.get() == Reading::InPlace).then_some(value)
}

/// The lists of a table.
pub(crate) struct Lists {
    /// All versions since the store was opened, because a reader may use any of them.
    versions: Slots<Catalog>,
    /// The position of the current version.
    current: AtomicUsize,
    /// The version that a data file has.
    recorded: AtomicU64,
    /// The position of that version.
    recorded_at: AtomicUsize,
    /// Changes when claims are lost.
    lineage: AtomicU64,
    /// The number of transactions of this process that write the table.
    writers: AtomicUsize,
    /// The hash in the last record that was seen.
    seen: AtomicU64,
    /// The version that the shard map manager is known to have.
    settled: AtomicU64,
    /// The catalogs of rows that are encoded to be read, which no data file has.
    private: Slots<Catalog>,
    /// The position of the last one.
    private_at: AtomicUsize,
    /// Counts the versions of all tables of the store.
    generation: Arc<AtomicU64>,
    growing: Mutex<()>,
    source: OnceLock<Source>,
    exchange: OnceLock<Exchange>,
    /// The number of lists when types of this process were first used to write the table.
    since: Mutex<BTreeMap<TypeId, usize>>,
}

impl Default for Lists {
    fn default() -> Self {
        let versions = Slots::default();
        let first = versions.push(Catalog::new()).unwrap_or_default();
        let private = Slots::default();
        let private_at = AtomicUsize::new(private.push(Catalog::new()).unwrap_or_default());
        Self {
            versions,
            current: AtomicUsize::new(first),
            recorded: AtomicU64::new(0),
            recorded_at: AtomicUsize::new(first),
            lineage: AtomicU64::new(0),
            writers: AtomicUsize::new(0),
            seen: AtomicU64::new(0),
            settled: AtomicU64::new(0),
            private,
            private_at,
            generation: Arc::default(),
            growing: Mutex::default(),
            source: OnceLock::new(),
            exchange: OnceLock::new(),
            since: Mutex::default(),
        }
    }
}

impl Lists {
    /// Creates lists that count their versions in `generation`.
    fn counted(generation: Arc<AtomicU64>) -> Self {
        Self { generation, ..Self::default() }
    }

    /// Returns the current catalog.
    #[inline]
    pub(crate) fn catalog(&self) -> &Catalog {
        self.at(&self.current)
    }

    /// Returns the catalog that a data file has.
    #[inline]
    fn recorded_catalog(&self) -> &Catalog {
        self.at(&self.recorded_at)
    }

    /// Returns the number of lists that a data file has.
    pub(crate) fn recorded_len(&self) -> usize {
        self.recorded_catalog().len()
    }

    #[inline]
    fn at(&self, position: &AtomicUsize) -> &Catalog {
        self.versions.get(position.load(Ordering::Acquire)).unwrap_or_else(|| empty())
    }

    /// Returns the catalog of rows that were [encoded to be read](Lists::encode_private).
    pub(crate) fn private_catalog(&self) -> &Catalog {
        self.private.get(self.private_at.load(Ordering::Acquire)).unwrap_or_else(|| empty())
    }

    /// Appends the bytes of a value that is only read in this process, by the [private catalog](Lists::private_catalog), which
    /// only grows. So reading neither claims a version nor writes.
    ///
    /// # Errors
    ///
    /// As for [`encode`](Lists::encode).
    pub(crate) fn encode_private<T: Serialize + ?Sized>(
        &self,
        value: &T,
        sorted: &'static [CollectionField],
        out: &mut Vec<u8>,
    ) -> Result<(), EncodeError> {
        match self.private_catalog().encode_sorted(value, sorted, out) {
            Err(error) if error.is_unrecorded() => {
                let _growing = self.growing.lock();
                let mut next = self.private_catalog().clone();
                next.record_sorted(value, sorted, out)?;
                match self.private.push(next) {
                    Some(position) => self.private_at.store(position, Ordering::Release),
                    None => return Err(rows::Error::from(rows::Reason::TooLarge).into()),
                }
                Ok(())
            }
            outcome => Ok(outcome?),
        }
    }

    /// Whether the current catalog reads the rows of an earlier one.
    pub(crate) fn is_later(&self, earlier: &Catalog) -> bool {
        let current = self.catalog();
        current.version() > earlier.version() && current.extends(earlier)
    }

    /// Whether a version is claimed.
    pub(crate) fn has_claims(&self) -> bool {
        self.version() != self.recorded()
    }

    /// Returns the version of the current catalog.
    #[inline]
    pub(crate) fn version(&self) -> u64 {
        self.catalog().version()
    }

    /// Returns a number that changes with the current catalog.
    #[inline]
    pub(crate) fn position(&self) -> usize {
        self.current.load(Ordering::Acquire)
    }

    /// Returns a number that changes when claims are lost.
    #[inline]
    pub(crate) fn lineage(&self) -> u64 {
        self.lineage.load(Ordering::Acquire)
    }

    /// Appends the bytes of a value. If it needs something new, a version of the catalog is claimed.
    ///
    /// # Errors
    ///
    /// The errors of the value, and of a catalog that would be too large. `out` is as before.
    #[inline]
    pub(crate) fn encode<T: Serialize + ?Sized>(
        &self,
        value: &T,
        out: &mut Vec<u8>,
    ) -> Result<(), EncodeError> {
        match self.catalog().encode(value, out) {
            Err(error) if error.is_unrecorded() => {
                self.claim(out, &mut |catalog, out| catalog.record(value, out))
            }
            Err(error) => Err(error.into()),
            Ok(()) => Ok(()),
        }
    }

    /// Appends the bytes of a value with its collections in these fields sorted.
    ///
    /// # Errors
    ///
    /// As for [`encode`](Lists::encode).
    pub(crate) fn encode_sorted<T: Serialize + ?Sized>(
        &self,
        value: &T,
        sorted: &'static [CollectionField],
        out: &mut Vec<u8>,
    ) -> Result<(), EncodeError> {
        match self.catalog().encode_sorted(value, sorted, out) {
            Err(error) if error.is_unrecorded() => {
                self.claim(out, &mut |catalog, out| catalog.record_sorted(value, sorted, out))
            }
            Err(error) => Err(error.into()),
            Ok(()) => Ok(()),
        }
    }

    /// Reads a value.
    ///
    /// # Errors
    ///
    /// Those of [`Catalog::decode`], and of reading the records again.
    #[inline]
    pub(crate) fn decode<T: DeserializeOwned>(&self, bytes: &[u8]) -> Result<T, DecodeError> {
        self.read(|catalog| catalog.decode(bytes))
    }

    /// Reads a value, and sets `has_unread` to whether its type may leave something unread.
    ///
    /// # Errors
    ///
    /// As for [`decode`](Lists::decode).
    #[inline]
    pub(crate) fn decode_whole<T: DeserializeOwned>(
        &self,
        bytes: &[u8],
        has_unread: &mut bool,
    ) -> Result<T, DecodeError> {
        self.read(|catalog| catalog.decode_whole(bytes, has_unread))
    }

    /// Reads a value, and returns the fields that its type leaves unread, of the lists from the number `since` on.
    ///
    /// # Errors
    ///
    /// As for [`decode`](Lists::decode).
    pub(crate) fn unknown<T: DeserializeOwned>(
        &self,
        bytes: &[u8],
        since: usize,
    ) -> Result<(T, Unknown), DecodeError> {
        self.read(|catalog| catalog.unknown(bytes, since))
    }

    /// Appends the row `new` with those fields of the row `old` that have these names. If there is no list of them, a version of the
    /// catalog is claimed.
    ///
    /// # Errors
    ///
    /// As for [`encode`](Lists::encode).
    pub(crate) fn carry(
        &self,
        new: &[u8],
        old: &[u8],
        names: &[String],
        out: &mut Vec<u8>,
    ) -> Result<(), EncodeError> {
        match self.catalog().carried(new, old, names, out) {
            Err(error) if error.is_unrecorded() => {
                self.claim(out, &mut |catalog, out| catalog.record_carried(new, old, names, out))
            }
            outcome => Ok(outcome?),
        }
    }

    /// Returns the number of lists when the type was first used to write the table. A field that the type does not know was added by
    /// a later release if it is in a later list, and otherwise it was removed.
    pub(crate) fn since(&self, of: TypeId) -> Option<usize> {
        self.since.lock().get(&of).copied()
    }

    /// Notes this number if it is smaller. Returns the smallest.
    pub(crate) fn note_since(&self, of: TypeId, since: usize) -> usize {
        let mut all = self.since.lock();
        let own = all.entry(of).or_insert(since);
        *own = since.min(*own);
        *own
    }

    /// Sets the number of lists when the type was first used to write the table.
    pub(crate) fn set_since(&self, of: TypeId, since: usize) {
        self.since.lock().insert(of, since);
    }

    /// Returns the fields of a row.
    ///
    /// # Errors
    ///
    /// Those of [`Catalog::fields`], and of reading the records again.
    #[inline]
    pub(crate) fn fields<'t>(&'t self, bytes: &'t [u8]) -> Result<Fields<'t, 't>, DecodeError> {
        self.read(|catalog| catalog.fields(bytes))
    }

    /// Appends a copy of these fields of a row to `out`; see [`Catalog::copy_fields`]. If the row is new, it can be of a claimed
    /// list.
    ///
    /// # Errors
    ///
    /// The errors of [`Catalog::copy_fields`], and of reading the records again.
    #[inline]
    pub(crate) fn copy_fields(
        &self,
        row: &[u8],
        is_new: bool,
        names: &[&[&'static str]],
        out: &mut Vec<u8>,
    ) -> Result<bool, DecodeError> {
        let first = if is_new { self.catalog() } else { self.stored_catalog() };
        match first.copy_fields(row, names, out) {
            Ok(has_all) => Ok(has_all),
            Err(error) if error.is_unrecorded() => {
                self.read_again(&mut |catalog| catalog.copy_fields(row, names, out))
            }
            Err(error) => Err(DecodeError::Fields(error)),
        }
    }

    /// Reads bytes of a row by the recorded lists. Claimed lists are tried last, because another process may have recorded others
    /// with their numbers; but first while this process writes the table, because no other process records lists then.
    #[inline]
    fn read<'t, T>(
        &'t self,
        mut read: impl FnMut(&'t Catalog) -> Result<T, rows::Error>,
    ) -> Result<T, DecodeError> {
        match read(self.stored_catalog()) {
            Ok(value) => Ok(value),
            Err(error) if error.is_unrecorded() => self.read_again(&mut read),
            Err(error) => Err(DecodeError::Fields(error)),
        }
    }

    /// Returns the catalog by which stored rows are read.
    #[inline]
    fn stored_catalog(&self) -> &Catalog {
        if self.is_written() { self.catalog() } else { self.recorded_catalog() }
    }

    /// Whether a transaction of this process writes the table.
    #[inline]
    fn is_written(&self) -> bool {
        self.writers.load(Ordering::Acquire) > 0
    }

    #[cold]
    fn read_again<'t, T>(
        &'t self,
        read: &mut impl FnMut(&'t Catalog) -> Result<T, rows::Error>,
    ) -> Result<T, DecodeError> {
        #[cfg(feature = "async")]
        if READS.get() == Reading::InPlace {
            READS.set(Reading::Missed);
            // `read_in_place` drops it.
            return Err(DecodeError::Short);
        }
        // If the records can't be read, claims could give the row another meaning.
        if self.refresh().map_err(|error| DecodeError::Store(StoreFailure::new(error)))? {
            match read(self.recorded_catalog()) {
                Err(error) if error.is_unrecorded() => {}
                outcome => return outcome.map_err(DecodeError::Fields),
            }
        }
        read(self.catalog()).map_err(DecodeError::Fields)
    }

    /// Returns the fields that were copied from a row.
    ///
    /// # Errors
    ///
    /// Those of [`Catalog::part`], and of reading the records again.
    #[inline]
    pub(crate) fn part<'t>(&'t self, copy: &'t [u8]) -> Result<Fields<'t, 't>, DecodeError> {
        self.read(|catalog| catalog.part(copy))
    }

    /// Appends a row in the [exact form](crate::model::exact), without its type.
    ///
    /// # Errors
    ///
    /// As for [`decode`](Lists::decode). `out` may then have a part of the row.
    #[cfg(feature = "json")]
    pub(crate) fn append_json(&self, bytes: &[u8], out: &mut String) -> Result<(), DecodeError> {
        let start = out.len();
        self.read(|catalog| {
            out.truncate(start);
            let row = catalog.row(bytes, crate::model::key::kept_text);
            crate::model::exact::append(&row, out)
                .map_err(|error| row.failure().unwrap_or_else(|| serde::ser::Error::custom(error)))
        })
    }

    /// Passes a row that was read to its end, without its type.
    ///
    /// # Errors
    ///
    /// As for [`decode`](Lists::decode).
    #[cfg(feature = "json")]
    pub(crate) fn untyped<'t>(&'t self, bytes: &'t [u8]) -> Result<rows::Row<'t>, DecodeError> {
        self.read(|catalog| {
            catalog.decode::<serde::de::IgnoredAny>(bytes)?;
            Ok(catalog.row(bytes, crate::model::key::kept_text))
        })
    }

    /// Makes the next version of the catalog.
    #[cold]
    fn claim(&self, out: &mut Vec<u8>, record: &mut Record<'_>) -> Result<(), EncodeError> {
        let start = out.len();
        let made = self.make_next(&mut |catalog| {
            out.truncate(start);
            record(catalog, out)
        });
        if made.is_err() {
            out.truncate(start);
        }
        made
    }

    fn make_next(
        &self,
        record: &mut dyn FnMut(&mut Catalog) -> Result<(), rows::Error>,
    ) -> Result<(), EncodeError> {
        // Another process may have recorded what the value needs. If this fails, the exchange or the commit finds it.
        let _ = self.refresh();
        for _ in 0..MOST_EXCHANGES {
            let (before, next) = {
                let _growing = self.growing.lock();
                let before = self.catalog().clone();
                let mut next = before.clone();
                record(&mut next)?;
                if next.version() == before.version() {
                    return Ok(());
                }
                if self.exchange.get().is_none() {
                    return self.claimed(next);
                }
                (before, next)
            };
            let bytes = record::encode(&before);
            let bytes = (before.version() > 0).then_some(bytes.as_slice());
            match self.exchange.get().and_then(|it| it(bytes, &record::encode(&next))) {
                None => {
                    let _growing = self.growing.lock();
                    // Otherwise, another thread has made a version, and the value is written with that.
                    if self.catalog() == &before {
                        return self.claimed(next);
                    }
                }
                Some(Ok(true)) => {
                    let version = next.version();
                    self.take(next);
                    self.settled.store(version, Ordering::Release);
                    return Ok(());
                }
                Some(Ok(false)) => drop(self.refresh()?),
                Some(Err(error)) => return Err(error.into()),
            }
        }
        Err(Error::RetriesExhausted { attempts: MOST_EXCHANGES }.into())
    }

    fn claimed(&self, next: Catalog) -> Result<(), EncodeError> {
        if self.publish(next) {
            Ok(())
        } else {
            Err(rows::Error::from(rows::Reason::TooLarge).into())
        }
    }

    /// Makes a version current, while `growing` is locked. Returns false if there are too many versions.
    fn publish(&self, next: Catalog) -> bool {
        let Some(position) = self.versions.push(next) else { return false };
        // A commit that has a row of this version sees the other generation, and then waits for `growing`.
        self.generation.fetch_add(1, Ordering::AcqRel);
        self.current.store(position, Ordering::Release);
        true
    }

    /// Sets how versions are recorded on a server.
    pub(crate) fn set_exchange(&self, exchange: Exchange) {
        let _ = self.exchange.set(exchange);
    }

    /// Sets where [`refresh`](Lists::refresh) reads the records.
    pub(crate) fn set_source(&self, source: Source) {
        let _ = self.source.set(source);
    }

    /// Reads the records again. Returns true if the current catalog has changed.
    ///
    /// # Errors
    ///
    /// The errors of reading the records.
    #[cold]
    pub(crate) fn refresh(&self) -> Result<bool, Error> {
        let Some(source) = self.source.get() else { return Ok(false) };
        let Records { manager, files } = source()?;
        // A damaged record is reported when the table is opened, and by `check`.
        let manager = manager.as_deref().and_then(decode);
        let has_manager = manager.is_some();
        let mut changed = manager.is_some_and(|catalog| self.take(catalog));
        for catalog in files.iter().filter_map(|record| decode(record)) {
            // A data file that contradicts the manager is refused when it is opened.
            if !has_manager || catalog.extends(self.recorded_catalog()) {
                changed |= self.take(catalog);
            }
        }
        Ok(changed)
    }

    /// Lets the shard map manager have the lists of a data file that was opened. It can lack them if the data file was a store of its
    /// own, or if the manager is new. Returns false if a number means another list there.
    ///
    /// # Errors
    ///
    /// The errors of the manager.
    pub(crate) fn settle(&self) -> Result<bool, Error> {
        let Some(exchange) = self.exchange.get() else { return Ok(true) };
        for _ in 0..MOST_EXCHANGES {
            let (version, record) = self.record();
            if version == 0 || version == self.settled.load(Ordering::Acquire) {
                return Ok(true);
            }
            let is_recorded = exchange(Some(&record), &record).transpose()?;
            if is_recorded != Some(false) {
                self.settled.store(version, Ordering::Release);
                return Ok(true);
            }
            self.refresh()?;
            let extends = |own: Catalog| self.version() > version && self.catalog().extends(&own);
            if !decode(&record).is_some_and(extends) {
                return Ok(false);
            }
        }
        Err(Error::RetriesExhausted { attempts: MOST_EXCHANGES })
    }

    /// Forgets what the shard map manager has, because there is another one.
    pub(crate) fn unsettle(&self) {
        self.settled.store(0, Ordering::Release);
    }

    /// Returns the record that a data file with the record `found` lacks, with its version. If `found` contradicts the claims, takes
    /// it.
    ///
    /// # Errors
    ///
    /// [`Contradicted`]: a transaction that uses the claims must not be committed.
    pub(crate) fn to_keep(
        &self,
        found: Option<Catalog>,
    ) -> Result<Option<(u64, Vec<u8>)>, Contradicted> {
        if let Some(found) = found {
            let is_later = {
                let _growing = self.growing.lock();
                self.is_later(&found)
            };
            if !is_later {
                let before = self.lineage();
                self.take(found);
                return if self.lineage() == before { Ok(None) } else { Err(Contradicted) };
            }
        }
        let _growing = self.growing.lock();
        Ok((self.version() > 0).then(|| self.record()))
    }

    /// Takes the lists of a record that a transaction finds. If this copy of the record is damaged, reads both copies.
    ///
    /// # Errors
    ///
    /// The errors of reading the records.
    pub(crate) fn see(&self, record: &[u8]) -> Result<(), Error> {
        let hash = record::hash_of(record);
        if self.seen.load(Ordering::Relaxed) == hash {
            return Ok(());
        }
        match decode(record) {
            Some(catalog) => drop(self.take(catalog)),
            // It is reported when the table is opened, and by `check`.
            None => drop(self.refresh()?),
        }
        self.seen.store(hash, Ordering::Relaxed);
        Ok(())
    }

    /// Takes the catalog of a data file that is opened. If it is a `shard`, no other process has recorded it, and its
    /// numbers must mean the same lists.
    pub(crate) fn open(&self, recorded: Catalog, is_shard: bool) -> Opened {
        if self.catalog().extends(&recorded) {
            self.note_recorded(recorded.version());
            return Opened::Taken;
        }
        if is_shard && !recorded.extends(self.recorded_catalog()) {
            return Opened::Contradicted;
        }
        self.take(recorded);
        Opened::Taken
    }

    /// Takes a catalog that a data file has, unless the recorded one extends it. Returns true if the current catalog has changed.
    /// A table of another process can have the name of one that this process knew.
    pub(crate) fn take(&self, recorded: Catalog) -> bool {
        let _growing = self.growing.lock();
        let before = self.recorded_catalog();
        if before.extends(&recorded) {
            return false;
        }
        let version = recorded.version();
        if self.catalog().extends(&recorded) {
            // Another transaction of this process has recorded it.
            self.set_recorded(version);
            return false;
        }
        let is_lost = self.catalog() != before || !recorded.extends(before);
        // Before and after, so that a transaction that began in between and uses the claims is in another lineage too.
        let change_lineage = || {
            if is_lost {
                self.lineage.fetch_add(1, Ordering::AcqRel);
            }
        };
        change_lineage();
        let is_published = self.publish(recorded);
        if is_published {
            self.set_recorded(version);
        }
        change_lineage();
        is_published
    }

    /// Notes that a data file has this version.
    pub(crate) fn note_recorded(&self, version: u64) {
        let _growing = self.growing.lock();
        if self.recorded() < version {
            self.set_recorded(version);
        }
    }

    /// Sets the recorded version, while `growing` is locked.
    fn set_recorded(&self, version: u64) {
        let current = self.current.load(Ordering::Acquire);
        let has_version =
            |at: &usize| self.versions.get(*at).is_some_and(|it| it.version() == version);
        if let Some(at) = (0..=current).rev().find(has_version) {
            self.recorded_at.store(at, Ordering::Release);
        }
        self.recorded.store(version, Ordering::Release);
    }

    /// Notes that a transaction of this process writes the table.
    pub(crate) fn begin(self: &Arc<Self>) -> Lineage {
        self.writers.fetch_add(1, Ordering::AcqRel);
        Lineage { begun: self.lineage(), lists: Arc::clone(self), is_over: false }
    }

    /// Returns the version that a data file has.
    pub(crate) fn recorded(&self) -> u64 {
        self.recorded.load(Ordering::Acquire)
    }

    /// Returns the record of the current catalog, with its version.
    pub(crate) fn record(&self) -> (u64, Vec<u8>) {
        let catalog = self.catalog();
        (catalog.version(), record::encode(catalog))
    }
}

fn empty() -> &'static Catalog {
    static EMPTY: OnceLock<Catalog> = OnceLock::new();
    EMPTY.get_or_init(Catalog::new)
}

/// The claims that a transaction may use for the rows that it writes.
pub(crate) struct Lineage {
    lists: Arc<Lists>,
    begun: u64,
    is_over: bool,
}

impl Lineage {
    /// Whether claims were lost since the transaction first used the table.
    #[inline]
    pub(crate) fn is_lost(&self) -> bool {
        self.lists.lineage() != self.begun
    }
}

impl Lineage {
    /// Notes that the transaction makes no further versions, before it ends: then other processes can record lists, so stored rows
    /// are read by the recorded ones first.
    pub(crate) fn end(&mut self) {
        if !self.is_over {
            self.is_over = true;
            self.lists.writers.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

impl Drop for Lineage {
    fn drop(&mut self) {
        self.end();
    }
}
