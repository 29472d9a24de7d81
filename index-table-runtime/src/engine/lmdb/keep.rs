//! The records of lists: each commit of a data file writes those that the file lacks.
//!
//! So a file has the list of each of its rows, whatever wrote the row: a transaction, a load, a build, a move. A commit
//! compares one number, unless a table has new lists.
//!
//! The record stands twice: in the catalog, and in a database of its own, `.lists`. Two keys of one database would often be in
//! one page, but databases share no page. A further database costs a page of the file and a handle in LMDB. The copies are not
//! beside the sequences, which every file has too: the pages of sequences change with each row, and a file with damaged sequences
//! is refused. With a page of `.lists`, only copies are lost. Such a file is used without `.lists`: LMDB can crash on a damaged
//! page, so the pages are checked before it reads them, when the file is opened.
//!
//! The next commit that writes a record of the table, and the next opening of the table by a writer, writes a copy that is
//! damaged, missing or earlier than the other one. A damaged copy is only replaced, and `.lists` only written, if the pages of the
//! database are intact: LMDB frees the pages of a long value by the numbers that it finds in the first of them.
//!
//! The database gets the copies of all tables when it is created. So a table without a second copy has lost it, unless the file has
//! no `.lists`.

use std::sync::{Arc, atomic::Ordering};

use heed::{DatabaseOpener, RoTxn, RwTxn, WithoutTls};

use super::{
    begin::open_or_create,
    env::Engine,
    journal::recorder::Recorder,
    named::Named,
    names::{CATALOG, Database, FILE, LIST_COPIES},
    pages::{self, Fault},
    renamed::stored,
};
use crate::{
    engine::CommitFailure,
    model::{
        error::{Error, Result},
        lists::{Contradicted, LISTS, Lists, Registry, Unusable, choose, decode},
        schema::renamed_to,
    },
    usage::trace::damaged_list_copies,
};

/// The databases with the two copies of each record.
#[derive(Clone, Copy)]
pub(super) struct ListPlaces<'d> {
    pub(super) catalog: Database<'d>,
    /// `None` if the pages of the second copies are damaged.
    pub(super) copies: Option<Database<'d>>,
}

/// The records that a data file has after a commit.
#[derive(Default)]
pub(super) struct Kept {
    generation: u64,
    records: Vec<Record>,
}

struct Record {
    table: &'static str,
    /// The beginning of the names of its databases.
    databases: String,
    lists: Arc<Lists>,
    /// The version that the commit writes; `None` if the file has the record.
    written: Option<u64>,
}

impl Engine {
    /// Uses the lists of a store. A data file can be opened as a store of its own, and then be a shard.
    pub(crate) fn use_lists(&self, lists: &Arc<Registry>) {
        let mut own = self.lists.write();
        if !own.as_ref().is_some_and(|own| Arc::ptr_eq(own, lists)) {
            *own = Some(Arc::clone(lists));
            self.kept.store(u64::MAX, Ordering::Release);
        }
    }

    /// Opens the database of the second copies. `None` if the file has none, or their pages are damaged.
    pub(super) fn open_copies<'e>(
        &self,
        opener: &DatabaseOpener<'e, WithoutTls>,
        txn: &RoTxn<'e>,
    ) -> heed::Result<Option<Database<'e>>> {
        if self.has_damaged_copies() {
            Ok(None)
        } else {
            opener.open_database(txn, Some(LIST_COPIES))
        }
    }

    /// Opens the database of the second copies for a writer. If the file has none, creates it, with a copy of each record in the
    /// catalog. `None` if their pages are damaged.
    pub(super) fn open_or_create_copies<'e>(
        &self,
        (opener, txn): (&DatabaseOpener<'e, WithoutTls>, &mut RwTxn<'e>),
        recorder: &mut Recorder,
        catalog: Option<Database<'_>>,
    ) -> Result<Option<Named<'e>>> {
        if !self.has_readable_copies(txn)? {
            return Ok(None);
        }
        let failed = |error| self.error(error);
        if let Some(found) = opener.open_database(txn, Some(LIST_COPIES)).map_err(failed)? {
            return Ok(Some(Named::new(found, LIST_COPIES)));
        }
        let created = open_or_create((opener, txn), recorder, LIST_COPIES).map_err(failed)?;
        let records = catalog.map(|catalog| self.records(&catalog, txn)).transpose()?;
        for (name, record) in records.unwrap_or_default() {
            let table = name.split_once('.').filter(|(_, part)| *part == LISTS);
            if let Some((table, _)) = table.filter(|_| decode(&record).is_some()) {
                created.put(txn, recorder, table.as_bytes(), &record).map_err(failed)?;
            }
        }
        Ok(Some(created))
    }

    /// Whether the pages of the second copies are intact in the state before a write transaction. They can be damaged while the file is
    /// open.
    ///
    /// Cost: reads of the names of all databases in the file, and of these pages.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the file can't be read.
    pub(super) fn has_readable_copies(&self, txn: &RwTxn<'_>) -> Result<bool> {
        if self.has_damaged_copies() {
            return Ok(false);
        }
        let (file, before) = (self.path.join(FILE), (txn.id() as u64).saturating_sub(1));
        match pages::look_at_copies(&file, before, LIST_COPIES) {
            Ok(None) => Ok(true),
            Ok(Some(damage)) => {
                self.note_damaged_copies(&damage);
                Ok(false)
            }
            // The next commit tries it again.
            Err(Fault::Damaged(_)) => Ok(false),
            Err(Fault::Io(source)) => Err(Error::io(&file, source)),
        }
    }

    /// Uses the file without the second copies from now on.
    pub(super) fn note_damaged_copies(&self, damage: &str) {
        if !self.has_damaged_copies.swap(true, Ordering::AcqRel) {
            damaged_list_copies(&self.path, damage);
        }
    }

    /// Whether the pages of the second copies were damaged when the file was opened, or later before a write.
    pub(super) fn has_damaged_copies(&self) -> bool {
        self.has_damaged_copies.load(Ordering::Acquire)
    }

    /// Writes the records that the data file lacks. A transaction that opens a table has `opened` the databases itself, and the
    /// file may have got another table.
    ///
    /// # Errors
    ///
    /// The errors of LMDB. [`Error::Corrupt`] if the file has lost both copies of a record, because later
    /// lists may have been in them. [`CommitFailure::Conflict`] if another process has recorded other lists of a table: rows of the
    /// transaction can be of lists that nobody records. Not with `opened`, because such a transaction has read them.
    #[inline]
    pub(super) fn keep_lists(
        &self,
        txn: &mut RwTxn<'_>,
        opened: Option<ListPlaces<'_>>,
        recorder: &mut Recorder,
    ) -> Result<Kept, CommitFailure> {
        let Some(lists) = self.lists.read().clone() else { return Ok(Kept::default()) };
        let generation = lists.generation();
        if opened.is_none() && generation == self.kept.load(Ordering::Acquire) {
            return Ok(Kept { generation, records: Vec::new() });
        }
        self.keep_new(&lists, generation, txn, opened, recorder)
    }

    #[cold]
    fn keep_new(
        &self,
        lists: &Registry,
        generation: u64,
        txn: &mut RwTxn<'_>,
        opened: Option<ListPlaces<'_>>,
        recorder: &mut Recorder,
    ) -> Result<Kept, CommitFailure> {
        let is_readable = self.has_readable_copies(txn).map_err(CommitFailure::Failed)?;
        let copies = if is_readable { self.copies.get().copied() } else { None };
        let own = self.catalog.get().map(|catalog| ListPlaces { catalog: *catalog, copies });
        let Some(places) = opened.or(own) else { return Ok(Kept::default()) };
        let mut kept = Kept { generation, records: Vec::new() };
        for (table, lists) in lists.all() {
            let found = places.catalog.get(txn, table.as_bytes());
            let found = found.map_err(|error| self.keep_failed(error))?;
            // A renamed table has its lists under the new name.
            if found.is_some_and(|record| renamed_to(record).is_none()) {
                let record = self.keep(txn, places, recorder, (table, lists), opened.is_some())?;
                kept.records.extend(record);
            } else {
                self.kept_tables.lock().remove(table);
            }
        }
        Ok(kept)
    }

    /// Writes the copies of the record of a table that the data file lacks.
    fn keep(
        &self,
        txn: &mut RwTxn<'_>,
        ListPlaces { catalog, copies }: ListPlaces<'_>,
        recorder: &mut Recorder,
        (table, lists): (&'static str, Arc<Lists>),
        is_opened: bool,
    ) -> Result<Option<Record>, CommitFailure> {
        let name = format!("{table}.{LISTS}");
        let first = (Some(catalog), CATALOG, name.as_str());
        let places = [first, (copies, LIST_COPIES, table)];
        let mut before = [None, None];
        for (before, (database, _, key)) in before.iter_mut().zip(places) {
            let found = database.map_or(Ok(None), |database| database.get(txn, key.as_bytes()));
            *before = found.map_err(|error| self.keep_failed(error))?.map(<[u8]>::to_vec);
        }
        let [first, second] = &before;
        let unusable = |unusable: Unusable| CommitFailure::Failed(unusable.error(table));
        let found = match choose(first.as_deref(), second.as_deref()) {
            // There is nothing to write. The error is that of opening the table, and not of the others.
            Err(_) if !lists.has_claims() => return Ok(None),
            found => found.map_err(unusable)?,
        };
        let databases = stored(&catalog, txn, table).map_err(|error| self.keep_failed(error))?;
        // Another process can have renamed the table, and created another one with its name and with other databases.
        let is_kept = |kept: &String| *kept == databases;
        if found.is_none() && self.kept_tables.lock().get(table).is_some_and(is_kept) {
            return Err(unusable(Unusable::GONE));
        }
        let databases = databases.into_owned();
        let (found, record) = found.map(|found| (found.catalog, found.record.to_vec())).unzip();
        let (record, written) = match lists.to_keep(found) {
            Ok(Some((version, record))) => (record, Some(version)),
            Err(Contradicted) if !is_opened => {
                return Err(CommitFailure::Conflict(Contradicted::error(table)));
            }
            Ok(None) | Err(Contradicted) => {
                let Some(record) = record else { return Ok(None) };
                (record, None)
            }
        };
        for (before, (database, name, key)) in before.iter().zip(places) {
            let Some(database) = database.filter(|_| before.as_ref() != Some(&record)) else {
                continue;
            };
            let is_damaged = before.as_ref().is_some_and(|before| decode(before).is_none());
            if is_damaged && !self.has_intact_pages(txn, name).map_err(CommitFailure::Failed)? {
                continue;
            }
            let put = database.put(txn, key.as_bytes(), &record);
            let put = put.and_then(|()| recorder.put(name, key.as_bytes(), &record));
            put.map_err(|error| self.keep_failed(error))?;
        }
        Ok(Some(Record { table, databases, lists, written }))
    }

    /// Whether the pages of a database are intact, in the state before the transaction.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the file can't be read.
    pub(super) fn has_intact_pages(&self, txn: &RwTxn<'_>, database: &str) -> Result<bool> {
        let (file, before) = (self.path.join(FILE), (txn.id() as u64).saturating_sub(1));
        pages::is_intact(&file, before, database).map_err(|source| Error::io(&file, source))
    }

    fn keep_failed(&self, error: heed::Error) -> CommitFailure {
        CommitFailure::Failed(self.error(error))
    }

    /// Notes that the records are in the data file.
    #[inline]
    pub(super) fn kept(&self, Kept { generation, records }: Kept) {
        self.kept.store(generation, Ordering::Release);
        for Record { table, databases, lists, written } in records {
            self.kept_tables.lock().insert(table, databases);
            if let Some(version) = written {
                lists.note_recorded(version);
            }
        }
    }
}
