use std::{fmt, marker::PhantomData, sync::Arc};

use super::{
    conditions::{Conditions, Hashed, Stop},
    entry_scan::EntryScan,
    request::ScanRequest,
};
use crate::{
    engine::Query,
    model::{
        entity::Entity,
        error::Result,
        schema::{Source, TableSchema},
    },
    placement::Reader,
    query::meter::Ledger,
    usage::TableCounters,
};

/// A [`Scan`](crate::Scan) that borrows no transaction; from [`Scan::query`](crate::Scan::query).
///
/// It is used to delete the rows of a scan. The deletion borrows the write transaction mutably, so the scan
/// can't borrow it.
#[must_use = "a query does nothing until it is run"]
pub struct DetachedQuery<R> {
    query: Result<Query>,
    schema: &'static TableSchema,
    hashed: Option<Arc<Hashed>>,
    stop: Option<Stop>,
    /// The counters of the repository's table, which identify the table.
    usage: Arc<TableCounters>,
    row: PhantomData<fn() -> R>,
}

/// The query of a [`DetachedQuery`], without the type of its rows.
pub(crate) struct Detached {
    query: Query,
    schema: &'static TableSchema,
    hashed: Option<Arc<Hashed>>,
    stop: Option<Stop>,
}

impl<R: Entity> DetachedQuery<R> {
    pub(super) fn new(request: ScanRequest<'_>) -> Self {
        let (schema, usage) = (request.schema, Arc::clone(request.ledger.usage));
        let (query, hashed, stop) = request.detach();
        Self { query, schema, hashed, stop, usage, row: PhantomData }
    }

    /// Returns the query, and the counters of its table.
    ///
    /// # Errors
    ///
    /// The reason why the scan can't run.
    pub(crate) fn into_parts(self) -> Result<(Detached, Arc<TableCounters>)> {
        let Self { query, schema, hashed, stop, usage, .. } = self;
        Ok((Detached { query: query?, schema, hashed, stop }, usage))
    }
}

impl Detached {
    pub(crate) const fn source(&self) -> Source {
        self.query.source
    }

    /// Appends the primary keys of the next rows to `keys`, up to a number of entries and of bytes, and their
    /// lengths to `lengths`. The next call continues after them. At the end, nothing is appended.
    pub(crate) fn next_keys(
        &mut self,
        reader: Reader<'_>,
        ledger: Ledger<'_>,
        max: (usize, usize),
        keys: &mut Vec<u8>,
        lengths: &mut Vec<usize>,
    ) -> Result<()> {
        let (query, mut conditions) = (self.query.clone(), Conditions::of(self.hashed.clone()));
        if let Some(stop) = &self.stop {
            Conditions::stop(&mut conditions, stop.clone());
        }
        let mut entries =
            EntryScan::cursor(Ok(reader), self.schema, ledger, query, conditions.as_ref());
        while lengths.len() < max.0 && keys.len() < max.1 {
            if !entries.advance()? {
                self.query.limit = Some(0);
                return Ok(());
            }
            let primary_key = entries.entry().primary_key;
            keys.extend_from_slice(primary_key);
            lengths.push(primary_key.len());
        }
        self.query.position = Some(entries.entry().position());
        self.query.inclusive = false;
        let read = lengths.len() as u64;
        self.query.limit = self.query.limit.map(|limit| limit.saturating_sub(read));
        Ok(())
    }
}

impl<R> fmt::Debug for DetachedQuery<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { query, schema, .. } = self;
        f.debug_struct("DetachedQuery")
            .field("table", &schema.name)
            .field("query", query)
            .finish_non_exhaustive()
    }
}
