//! Beginning transactions, and the one in which the databases of a table are created.

use std::sync::PoisonError;

use heed::{CommitOrAbort, RwTxn};

use super::{
    env::Engine,
    gate::Kind,
    names::{Env, databases_of},
    tables::Tables,
    turn::Turn,
    txn::Txn,
    write::Writer,
};
use crate::{
    engine::Retry,
    model::{
        error::{Error, Result},
        schema::TableSchema,
    },
};

impl Engine {
    pub(crate) fn read(&self) -> Result<Txn<'_>> {
        let (txn, pass) = self.begin(Kind::Reader, Env::read_txn)?;
        Ok(Txn::reading(self, txn, pass))
    }

    pub(crate) fn write(&self) -> Result<Txn<'_>> {
        let (txn, turn) = self.begin_write()?;
        // Not where a table is opened: a file that is refused then has not been touched.
        self.reserve.ahead(|| self.used(), &self.map_size);
        Ok(Txn::writing(self, txn, turn))
    }

    pub(super) fn begin_write(&self) -> Result<(RwTxn<'_>, Turn<'_>)> {
        // The lock may have been held when the process was forked.
        self.refuse_forked()?;
        self.refuse_read_only()?;
        let mut writing = self.lock_writing();
        writing.scratch.forget_large();
        writing.retry = None;
        let (txn, pass) = self.begin(Kind::Writer, Env::write_txn)?;
        Ok((txn, Turn { _pass: pass, writing }))
    }

    /// Creates what is missing of a table, and lets `prepare` look at it, in one write transaction.
    pub(crate) fn open_table(
        &self,
        schema: &'static TableSchema,
        prepare: impl FnOnce(Writer<'_, '_>) -> Result<()>,
    ) -> Result<Tables<'static>, (Error, Option<Retry>)> {
        let (txn, mut turn) = self.begin_write().map_err(|error| (error, None))?;
        let opened = self.env.create_databases_and_commit(txn, |opener, txn| {
            let tables = Tables::new(schema, |name| {
                opener.create_database(txn, Some(name)).map_err(|error| self.error(error))
            })?;
            prepare(Writer::new(self, txn, &tables, &mut turn.writing))?;
            Ok(CommitOrAbort::<_, ()>::Commit(tables))
        });
        match opened {
            Ok(CommitOrAbort::Commit(tables)) => {
                let _ = self.catalog.set(tables.catalog);
                Ok(self.with_known(tables))
            }
            Ok(CommitOrAbort::Abort(())) => Err((Error::internal("a table was not opened"), None)),
            Err(failure) => Err(self.ended(failure, turn.writing.retry)),
        }
    }

    /// Notes that the table's databases are known, and in `tables`, whether all were before.
    pub(super) fn with_known<'d>(&self, tables: Tables<'d>) -> Tables<'d> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let schema = tables.schema;
        let indexes = schema.indexes.iter().map(|index| index.name);
        let mut were_known = true;
        for name in databases_of(schema.name, schema.has_eventual(), indexes) {
            were_known &= !known.insert(name);
        }
        tables.with_known(were_known)
    }
}
