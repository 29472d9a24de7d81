//! The whole catalog, independent of open tables.
//!
//! Handles to databases are created with the process's turn to write, or right after the environment is opened,
//! because LMDB gives the same slot to two transactions that create a handle at the same time. A transaction has
//! the handles that existed when it began. Therefore, the handles of all tables are created when the store is
//! opened.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    sync::OnceLock,
};

use heed::{CommitOrAbort, RoTxn, WithoutTls};

use super::{
    begin::read_txn,
    env::Engine,
    error::{damaged, refused},
    gate::Kind,
    journal::changes::Operation,
    names::{
        CATALOG, Database, Env, FILE, LIST_COPIES, SEQUENCES, SHARD, SHARDS, databases_of, index_of,
    },
    pages::{BadPage, Damage, FREE_PAGES, Guard, is_checked},
    renamed::{record_of_index, stored},
};
use crate::{
    engine::{Records, Retry},
    model::{
        error::{Error, Result, StoreError, way_out},
        lists::{self, LISTS},
        schema::{IndexRecord, QUEUE, TableRecord, renamed_to},
        stream::STREAM,
    },
};

/// Returns the handle to a database, if the file has it.
pub(super) fn find<'e>(
    env: &'e Env,
    txn: RoTxn<'e, WithoutTls>,
    name: &str,
) -> heed::Result<Option<Database<'static>>> {
    let found = env.open_databases_and_commit(txn, |opener, txn| {
        let found: Option<Database<'_>> = opener.open_database(txn, Some(name))?;
        Ok::<_, heed::Error>(CommitOrAbort::<_, ()>::Commit(found))
    })?;
    Ok(found.commit().flatten())
}

/// Returns the names of the databases of all tables in the catalog, without indexes that are no longer declared.
fn declared(catalog: &Database<'_>, txn: &RoTxn<'_>) -> heed::Result<Vec<String>> {
    let mut names = vec![SEQUENCES.to_owned()];
    for record in catalog.iter(txn)? {
        let (table, record) = record?;
        // Names of tables have no dot. The text after a dot names a part of a table.
        let Ok(table) = str::from_utf8(table) else { continue };
        let Some(record) = TableRecord::read(record).ok().filter(|_| !table.contains('.')) else {
            continue;
        };
        let indexes = record.indexes.iter().map(|index| index.name.as_str());
        let has_queue = record.indexes.iter().any(IndexRecord::is_eventual);
        names.extend(databases_of(table, has_queue, indexes));
    }
    Ok(names)
}

/// Returns the table of a database and its part, if neither was renamed.
fn named_by(database: &str) -> Option<(String, Option<String>)> {
    let (table, part) = match database.split_once('.') {
        Some((table, part)) => (table, Some(part.to_owned())),
        None => (database, None),
    };
    (!table.is_empty()).then(|| (table.to_owned(), part))
}

/// Returns whether the damage of a database loses rows, and what is lost, with the way out unless that is a backup.
fn consequence(database: &str, named: Option<&(String, Option<String>)>) -> (bool, String) {
    const SALVAGE: &str = "`index-table salvage STORE TO` copies everything to a new store";
    match (database, named) {
        (_, Some((table, Some(part)))) if part == STREAM => (
            false,
            format!(
                "no row is lost, but changes in the stream of `{table}` are: `index-table salvage STORE TO` copies everything \
                 else to a new store"
            ),
        ),
        (_, Some((table, part))) => (part.is_none(), way_out(table, part.as_deref())),
        (FREE_PAGES, _) => (false, format!("no row is lost: {SALVAGE}")),
        (LIST_COPIES, _) => (false, format!("no row is lost, since the first copies are intact: {SALVAGE}")),
        (SEQUENCES, _) => (false, format!("no row is lost: {SALVAGE}, whose next numbers follow the last rows")),
        _ if database.starts_with(QUEUE) => (
            false,
            "no row is lost, but changes of eventual indexes are: `index-table salvage STORE TO` copies the rows to a new \
             store, and the program builds these indexes again"
                .to_owned(),
        ),
        (CATALOG, _) => (true, "all tables need it".to_owned()),
        _ => (true, "the records of shards are in it".to_owned()),
    }
}

impl Engine {
    /// Creates the handles of all tables in the file, before other transactions begin.
    pub(super) fn open_known(&self) -> Result<()> {
        let mut known = BTreeSet::new();
        // Another process may have enlarged the file since LMDB has opened it.
        let (_pass, txn) = self.begin(Kind::Reader, read_txn)?.into_parts();
        let found = self.env()?.open_databases_and_commit(txn, |opener, txn| {
            let catalog: Option<Database<'_>> = opener.open_database(txn, Some(CATALOG))?;
            if let Some(catalog) = &catalog {
                for name in declared(catalog, txn)? {
                    let name = stored(catalog, txn, &name)?;
                    let found: Option<Database<'_>> = opener.open_database(txn, Some(&name))?;
                    if found.is_some() {
                        known.insert(name.into_owned());
                    }
                }
            }
            let copies = self.open_copies(opener, txn)?;
            let main: Option<Database<'_>> = opener.open_database(txn, None)?;
            Ok::<_, heed::Error>(CommitOrAbort::<_, ()>::Commit((catalog, copies, main)))
        });
        let found = found.map_err(|error| self.error(error))?;
        let (catalog, copies, main) = found.commit().unwrap_or_default();
        if let Some(main) = main {
            let _ = self.main.set(main);
        }
        if let Some(catalog) = catalog {
            let _ = self.catalog.set(catalog);
        }
        if let Some(copies) = copies {
            let _ = self.copies.set(copies);
        }
        *self.known.lock() = known;
        Ok(())
    }

    /// Whether the file has the own records of a shard. No other thread may have the engine.
    pub(super) fn has_own_records(&self) -> Result<bool> {
        self.has_database(SHARD)
    }

    /// Whether the file is that of a shard map manager. No other thread may have the engine.
    pub(super) fn has_shards(&self) -> Result<bool> {
        self.has_database(SHARDS)
    }

    fn has_database(&self, name: &str) -> Result<bool> {
        let (_pass, txn) = self.begin(Kind::Reader, read_txn)?.into_parts();
        let found = find(self.env()?, txn, name).map_err(|error| self.error(error))?;
        Ok(found.is_some())
    }

    /// Whether the catalog can be read without a turn to write.
    pub(crate) fn has_catalog(&self) -> bool {
        self.catalog.get().is_some()
    }

    /// Whether the file has entries of another program and no database of this crate.
    pub(crate) fn is_foreign(&self) -> Result<bool> {
        let Some(main) = self.main.get().filter(|_| !self.has_catalog()) else { return Ok(false) };
        let txn = self.begin(Kind::Reader, read_txn)?;
        let is_own = |name: &str| main.get(&txn, name.as_bytes()).map(|found| found.is_some());
        let found = main.is_empty(&txn).and_then(|is_empty| {
            let own = [CATALOG, SHARDS, SHARD, LIST_COPIES, SEQUENCES];
            let found: heed::Result<Vec<_>> = own.into_iter().map(is_own).collect();
            Ok(!is_empty && !found?.contains(&true))
        });
        found.map_err(|error| self.error(error))
    }

    /// Finds a database that another process may have created.
    pub(super) fn find_later(
        &self,
        handle: &OnceLock<Database<'static>>,
        name: &str,
    ) -> Result<()> {
        if handle.get().is_none() {
            self.refuse_forked()?;
            let _turn = self.lock_writing();
            let (_pass, txn) = self.begin(Kind::Writer, read_txn)?.into_parts();
            if let Some(found) = find(self.env()?, txn, name).map_err(|error| self.error(error))? {
                let _ = handle.set(found);
            }
        }
        Ok(())
    }

    /// Returns the second copy of the record of a table's lists, in a read transaction of its own: an unreadable page ends the
    /// transaction that reads it. `None` also if another process has created the database of the copies since this one has opened
    /// the store, and this one has opened no table since: the thread may have the turn to write, which a new handle would need.
    pub(crate) fn list_copy(&self, table: &str) -> Result<Option<Vec<u8>>> {
        let copies = self.copies.get().filter(|_| !self.has_damaged_copies());
        let Some(copies) = copies else { return Ok(None) };
        let txn = self.begin(Kind::Reader, read_txn)?;
        let copy = copies.get(&txn, table.as_bytes()).map(|copy| copy.map(<[u8]>::to_vec));
        copy.map_err(|error| self.error(error))
    }

    /// Whether [`check_lists`](Self::check_lists) needs no turn to write.
    pub(crate) fn knows_lists(&self) -> bool {
        self.has_catalog() && self.has_list_copies()
    }

    /// Whether the file has got second copies of the records of lists, as far as this process knows.
    pub(crate) fn has_list_copies(&self) -> bool {
        self.copies.get().is_some() || self.has_damaged_copies()
    }

    /// Checks that each table has both copies of the record of its lists, and that they are equal.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] with the first table that has a damaged, missing or differing copy.
    pub(crate) fn check_lists(&self) -> Result<()> {
        self.find_later(&self.catalog, CATALOG)?;
        let has_copies = !self.has_damaged_copies();
        if has_copies {
            self.find_later(&self.copies, LIST_COPIES)?;
        }
        let Some(catalog) = self.catalog.get() else { return Ok(()) };
        let copies = self.copies.get().filter(|_| has_copies);
        let txn = self.begin(Kind::Reader, read_txn)?;
        self.check_whole(&txn, CATALOG)?;
        for (table, record) in self.records(catalog, &txn)? {
            if table.contains('.') || renamed_to(&record).is_some() {
                continue;
            }
            let first = catalog.get(&txn, format!("{table}.{LISTS}").as_bytes());
            let first = first.map_err(|error| self.error(error))?;
            let second = match copies {
                Some(copies) => {
                    copies.get(&txn, table.as_bytes()).map_err(|error| self.error(error))?
                }
                // A file of a release with one copy has no second ones.
                None if has_copies => first,
                None => None,
            };
            lists::check(&table, first, second)?;
        }
        Ok(())
    }

    /// Returns the error for damaged databases, with the consequences of the damage of each, those that lose rows first.
    pub(super) fn refuse_damage(&self, damages: &[Damage]) -> Result<()> {
        if damages.is_empty() {
            return Ok(());
        }
        // While the store is opened, there is no handle to the catalog.
        let is_readable =
            self.catalog.get().is_some() && damages.iter().all(|damage| damage.database != CATALOG);
        let records = if is_readable { self.all_records()? } else { Records::new() };
        let mut named = BTreeMap::new();
        if let Some(catalog) = self.catalog.get().filter(|_| is_readable) {
            let txn = self.begin(Kind::Reader, read_txn)?;
            for (table, record) in &records {
                let Ok(record) = TableRecord::read(record) else { continue };
                let parts = record.indexes.iter().map(|index| Some(index.name.clone()));
                for part in parts.chain([None, Some(STREAM.to_owned())]) {
                    let name = part.as_ref().map_or(table.clone(), |part| index_of(table, part));
                    let name = stored(catalog, &txn, &name).map_err(|error| self.error(error))?;
                    named.insert(name.into_owned(), (table.clone(), part));
                }
            }
        }
        let mut shown: Vec<_> = damages
            .iter()
            .map(|Damage { database, reason }| {
                let named = named.get(database).cloned().or_else(|| named_by(database));
                let (loses, consequence) = consequence(database, named.as_ref());
                (!loses, format!("{reason}; {consequence}"))
            })
            .collect();
        shown.sort_by_key(|(keeps, _)| *keeps);
        let shown: Vec<_> = shown.into_iter().map(|(_, shown)| shown).collect();
        Err(damaged(&self.path, shown.join(". Also, ")))
    }

    /// Returns checks of the pages of a snapshot.
    pub(super) fn guard(&self, txn: &RoTxn<'_, WithoutTls>) -> Result<Guard> {
        let path = self.path.join(FILE);
        let refused = |fault| refused(&self.path, fault);
        if let Some(guard) = Guard::new(&path, txn.id() as u64).map_err(refused)? {
            return Ok(guard);
        }
        // The snapshot is older than both states of the file. LMDB has the records of its databases.
        let Some(main) = self.main.get() else {
            let reason = "the snapshot is too old to check its pages; begin another transaction";
            let source = io::Error::new(io::ErrorKind::ResourceBusy, reason);
            return Err(Error::io(&self.path, source));
        };
        let mut records = Vec::new();
        for record in main.iter(txn).map_err(|error| self.error(error))? {
            let (name, record) = record.map_err(|error| self.error(error))?;
            records.push((String::from_utf8_lossy(name).into_owned(), record.to_vec()));
        }
        let last = self.env()?.info().last_page_number as u64;
        Guard::with(&path, last, records.into_iter()).map_err(refused)
    }

    /// Checks the pages of a database, if this thread [checks pages](pages::checked).
    fn check_whole(&self, txn: &RoTxn<'_, WithoutTls>, database: &str) -> Result<()> {
        if !is_checked() {
            return Ok(());
        }
        self.guard(txn)?.whole(database).map_err(|bad| match bad {
            BadPage::Io(source) => Error::io(&self.path, source),
            BadPage::Damaged { page, reason } => {
                damaged(&self.path, format!("database `{database}`, page {page}: {reason}"))
            }
        })
    }

    /// Returns the contents of the catalog.
    pub(crate) fn all_records(&self) -> Result<Records> {
        self.find_later(&self.catalog, CATALOG)?;
        let txn = self.begin(Kind::Reader, read_txn)?;
        self.check_whole(&txn, CATALOG)?;
        self.catalog.get().map_or(Ok(Vec::new()), |it| self.records(it, &txn))
    }

    /// Removes the indexes that `choose` returns, with their records. Returns their names.
    ///
    /// The databases `in_use` are those of the open tables, and stay with their records. No table may be opened until the function
    /// returns.
    pub(crate) fn drop_indexes(
        &self,
        in_use: &BTreeSet<String>,
        choose: &mut dyn FnMut(&Records) -> Vec<String>,
    ) -> Result<Vec<String>, (Error, Option<Retry>)> {
        let (mut turn, txn) = self.begin_write().map_err(|error| (error, None))?;
        let (number, mut logged) = (txn.id(), None);
        let (mut dropped, mut removed) = (Vec::new(), Vec::new());
        let env = self.env().map_err(|error| (error, None))?;
        let outcome = env.create_databases_and_commit(txn, |opener, txn| {
            let catalog: Option<Database<'_>> = opener.open_database(txn, Some(CATALOG))?;
            let Some(catalog) = catalog else { return Ok(CommitOrAbort::Abort(())) };
            let recorder = &mut turn.writing.scratch.recorder;
            for index in choose(&self.records(&catalog, txn)?) {
                let name = &stored(&catalog, txn, &index)?.into_owned();
                // Another process may have renamed an index of a table that is open in this process.
                if in_use.contains(name) {
                    continue;
                }
                catalog.delete(txn, index.as_bytes())?;
                recorder.delete(CATALOG, index.as_bytes())?;
                removed.push(name.clone());
                if let Some((table, part)) = index.split_once('.') {
                    let record = record_of_index(table, part);
                    if catalog.delete(txn, record.as_bytes())? {
                        recorder.delete(CATALOG, record.as_bytes())?;
                    }
                }
                dropped.push(index);
                let database: Option<Database<'_>> = opener.open_database(txn, Some(name))?;
                let Some(database) = database else { continue };
                #[expect(unsafe_code, reason = "other handles to the database become invalid")]
                // SAFETY: only open tables have other handles to the database. No open table has it,
                // and the transaction has not written to it.
                unsafe {
                    database.remove(txn)?;
                }
                recorder.add(name, Operation::Drop)?;
            }
            logged = Some(self.log(&mut turn.writing).map_err(StoreError::into_error)?);
            Ok(CommitOrAbort::Commit(()))
        });
        self.conclude(&mut turn.writing, (number, logged), outcome, || {
            let mut known = self.known.lock();
            for name in &removed {
                known.remove(name);
            }
        })?;
        Ok(dropped)
    }

    pub(super) fn records(&self, catalog: &Database<'_>, txn: &RoTxn<'_>) -> Result<Records> {
        let records = catalog.iter(txn).map_err(|error| self.error(error))?;
        let records = records.map(|record| {
            let (name, record) = record.map_err(|error| self.error(error))?;
            Ok((String::from_utf8_lossy(name).into_owned(), record.to_vec()))
        });
        records.collect()
    }
}
