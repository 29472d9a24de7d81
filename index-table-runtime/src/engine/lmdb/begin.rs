//! Starting transactions, and creating the databases of a table in a write transaction.

use std::sync::{PoisonError, atomic::Ordering};

use heed::{CommitOrAbort, RwTxn};

use super::{
    env::Engine,
    gate::Kind,
    journal::changes::Operation,
    names::{CATALOG, Database, Env, databases_of},
    tables::Tables,
    turn::Turn,
    txn::Txn,
    write::Writer,
};
use crate::{
    engine::Retry,
    model::{
        error::{Error, Result, StoreError},
        reference::{MARK, Referrer},
        schema::{Parts, TableSchema},
    },
};

impl Engine {
    pub(crate) fn read(&self) -> Result<Txn<'_>> {
        let (txn, pass) = self.begin(Kind::Reader, Env::read_txn)?;
        Ok(Txn::reading(self, txn, pass))
    }

    pub(crate) fn write(&self) -> Result<Txn<'_>> {
        let (txn, turn) = self.begin_write()?;
        // Opening a table does not enlarge the reserve, so that a file that is refused does not change.
        self.reserve.ahead(|| self.used(), &self.map_size);
        Ok(Txn::writing(self, txn, turn))
    }

    pub(super) fn begin_write(&self) -> Result<(RwTxn<'_>, Turn<'_>)> {
        // Another thread may have held the lock when the process was forked.
        self.refuse_forked()?;
        self.refuse_read_only()?;
        if self.is_joining.load(Ordering::Relaxed) {
            return Err(Error::internal("a shard is written before its journal is started"));
        }
        if let Some(journal) = self.journal.get() {
            journal.wait_for_room();
        }
        let mut writing = self.lock_writing();
        writing.scratch.forget_large();
        writing.retry = None;
        if let Some(journal) = self.journal.get() {
            // Checked under the lock: a commit that fails marks the journal before another transaction begins.
            if let Some(reason) = journal.refused() {
                return Err(self.reopen_needed(reason));
            }
            journal.begin();
        }
        let (txn, pass) = self.begin(Kind::Writer, Env::write_txn)?;
        writing.scratch.recorder.begin(txn.id());
        Ok((txn, Turn { _pass: pass, writing }))
    }

    /// Creates the missing databases of a table, and calls `prepare`, in one write transaction.
    pub(crate) fn open_table(
        &self,
        schema: &'static TableSchema,
        parts: Parts,
        prepare: impl FnOnce(Writer<'_, '_>) -> Result<()>,
    ) -> Result<Tables<'static>, (Error, Option<Retry>)> {
        let (txn, mut turn) = self.begin_write().map_err(|error| (error, None))?;
        let (number, mut logged) = (txn.id(), None);
        let opened = self.env.create_databases_and_commit(txn, |opener, txn| {
            let recorder = &mut turn.writing.scratch.recorder;
            let catalog = opener.open_database(txn, Some(CATALOG));
            let referrers = match catalog.map_err(|error| self.error(error))? {
                Some(catalog) => referrers(schema.name, catalog, txn, |error| self.error(error))?,
                None => Vec::new(),
            };
            let tables = Tables::new(schema, parts, referrers, |name| {
                let found =
                    if recorder.is_on() { opener.open_database(txn, Some(name)) } else { Ok(None) };
                if let Some(found) = found.map_err(|error| self.error(error))? {
                    return Ok(found);
                }
                let created = opener.create_database(txn, Some(name));
                let database = created.and_then(|database| {
                    recorder.add(name, Operation::Create)?;
                    Ok(database)
                });
                database.map_err(|error| self.error(error))
            })?;
            prepare(Writer::new(self, txn, &tables, &mut turn.writing))?;
            logged = Some(self.log(&mut turn.writing).map_err(StoreError::into_error)?);
            Ok(CommitOrAbort::<_, ()>::Commit(tables))
        });
        let opened = opened
            .map_err(|failure| self.not_committed(&mut turn.writing, logged.as_ref(), failure));
        match opened {
            Ok(CommitOrAbort::Commit(tables)) => {
                if let Some(logged) = logged {
                    self.logged(logged, number);
                }
                let _ = self.catalog.set(*tables.catalog);
                Ok(self.with_known(tables, parts))
            }
            Ok(CommitOrAbort::Abort(())) => Err((Error::internal("a table was not opened"), None)),
            Err(failure) => Err(self.ended(failure, turn.writing.retry)),
        }
    }

    /// Marks the table's databases as known. Records in `tables` whether all of them were known before.
    pub(super) fn with_known<'d>(&self, tables: Tables<'d>, parts: Parts) -> Tables<'d> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let schema = tables.schema;
        let indexes = schema.indexes.iter().map(|index| index.name);
        let indexes = indexes.chain(parts.names());
        let mut were_known = true;
        for name in databases_of(schema.name, schema.has_eventual(), indexes) {
            were_known &= !known.insert(name);
        }
        for reference in parts.references {
            were_known &= known.contains(reference.to.name);
        }
        tables.with_known(were_known)
    }
}

/// Returns the references to a table that the catalog records.
fn referrers(
    table: &'static str,
    catalog: Database<'_>,
    txn: &RwTxn<'_>,
    failed: impl Fn(heed::Error) -> Error,
) -> Result<Vec<Referrer>> {
    let (prefix, mut found) = (format!("{table}."), Vec::new());
    let mut from = format!("{prefix}{MARK}").into_bytes();
    loop {
        let record = catalog.get_greater_than_or_equal_to(txn, &from).map_err(&failed)?;
        let Some((key, record)) = record else { return Ok(found) };
        let part = key.strip_prefix(prefix.as_bytes()).and_then(|it| str::from_utf8(it).ok());
        let Some(part) = part.filter(|part| part.starts_with(MARK)) else { return Ok(found) };
        found.extend(Referrer::decode(table, part, record)?);
        from = [key, &[0]].concat();
    }
}
