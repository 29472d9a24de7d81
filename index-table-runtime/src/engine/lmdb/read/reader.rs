//! A [`Reader`]: one table in one transaction, and look-ups by physical keys.

use std::ops::Bound;

use heed::{AnyTls, RoTxn};

use crate::{
    engine::{
        Space,
        lmdb::{
            env::Engine,
            layout::Layout,
            named::Named,
            pages::{Ahead, BadPage, Guard},
            tables::{Index, Tables},
        },
    },
    model::{
        error::{Error, Result},
        key::MAX_KEY_LEN,
        schema::{IndexSchema, Source},
    },
};

/// A reader of one table in one transaction.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'t> {
    pub(in crate::engine::lmdb) engine: &'t Engine,
    pub(super) txn: &'t RoTxn<'t, AnyTls>,
    pub(in crate::engine::lmdb) tables: &'t Tables<'t>,
    /// Checks pages before LMDB reads them.
    pub(super) guard: Option<&'t Guard>,
}

impl<'t> Reader<'t> {
    pub(in crate::engine::lmdb) const fn new(
        engine: &'t Engine,
        txn: &'t RoTxn<'t, AnyTls>,
        tables: &'t Tables<'t>,
    ) -> Self {
        Self { engine, txn, tables, guard: None }
    }

    /// Checks pages before LMDB reads them.
    pub(in crate::engine::lmdb) const fn guarded(self, guard: Option<&'t Guard>) -> Self {
        Self { guard, ..self }
    }

    /// Checks the pages of a look-up.
    #[cold]
    fn check_point(self, guard: &Guard, database: &Named<'_>, key: &[u8]) -> Result<()> {
        guard.point(database.name(), key).map_err(|bad| self.bad_page(database.name(), bad))
    }

    /// Checks the pages of a seek to a key and of a step from there.
    #[inline]
    pub(super) fn check_around(self, database: &Named<'_>, key: &[u8]) -> Result<()> {
        let Some(guard) = self.guard else { return Ok(()) };
        guard.around(database.name(), key).map_err(|bad| self.bad_page(database.name(), bad))
    }

    /// Returns the checks of a scan, if pages are checked.
    pub(super) fn ahead(
        self,
        database: &Named<'_>,
        from: Bound<&[u8]>,
        reverse: bool,
    ) -> Result<Option<Ahead<'t>>> {
        let Some(guard) = self.guard else { return Ok(None) };
        let ahead = guard.scan(database.name(), from, reverse);
        ahead.map(Some).map_err(|bad| self.bad_page(database.name(), bad))
    }

    /// Returns the error of a damaged page of a database.
    #[cold]
    pub(super) fn bad_page(self, database: &str, bad: BadPage) -> Error {
        self.tables.bad_page(&self.engine.path, database, bad)
    }

    #[expect(clippy::inline_always, reason = "each point lookup would cost a call")]
    #[inline(always)]
    pub(super) fn value(self, database: &Named<'_>, key: &[u8]) -> Result<Option<&'t [u8]>> {
        if key.is_empty() || key.len() > MAX_KEY_LEN {
            // LMDB has no such key, and returns an error.
            return Ok(None);
        }
        if let Some(guard) = self.guard {
            self.check_point(guard, database, key)?;
        }
        database.get(self.txn, key).map_err(|error| self.engine.error(error))
    }

    /// Returns the last entry at or before this position.
    pub(in crate::engine::lmdb) fn at_or_below(
        self,
        database: &Named<'_>,
        at: &[u8],
    ) -> Result<Option<(&'t [u8], &'t [u8])>> {
        if at.is_empty() || at.len() > MAX_KEY_LEN {
            return Ok(None);
        }
        self.check_around(database, at)?;
        let found = database.get_lower_than_or_equal_to(self.txn, at);
        found.map_err(|error| self.engine.error(error))
    }

    pub(in crate::engine::lmdb) fn index(
        self,
        position: usize,
    ) -> Result<(&'t Index<'t>, &'static IndexSchema)> {
        let index = self.tables.indexes.get(position);
        index.zip(self.tables.schema.indexes.get(position)).ok_or_else(|| {
            let table = self.tables.schema.name;
            Error::internal(format!("table `{table}` has no index at position {position}"))
        })
    }

    pub(in crate::engine::lmdb) fn database(self, source: Source) -> Result<&'t Named<'t>> {
        match source {
            Source::Facts => Ok(&self.tables.facts),
            Source::Index(position) => self.index(position).map(|(index, _)| &index.database),
        }
    }

    /// Returns the name of a database.
    pub(in crate::engine::lmdb) fn name_of(self, source: Source) -> Result<&'t str> {
        match source {
            Source::Facts => Ok(self.tables.facts.name()),
            Source::Index(position) => self.index(position).map(|(index, _)| index.database.name()),
        }
    }

    /// Returns the layout of an index; `None` for the fact table.
    pub(super) fn layout(self, source: Source) -> Option<Layout> {
        match source {
            Source::Facts => None,
            Source::Index(position) => self.index(position).ok().map(|(index, _)| index.layout),
        }
    }

    /// Returns the bytes of the pages of a database.
    pub(crate) fn bytes_of(self, source: Source) -> Result<u64> {
        self.bytes_in(self.database(source)?)
    }

    /// Returns the bytes of the pages of a space that has a database of its own.
    pub(crate) fn bytes_of_space(self, space: Space) -> Result<u64> {
        let small = self.tables.small(space).filter(|small| small.prefix.is_empty());
        small.map_or(Ok(0), |small| self.bytes_in(small.database))
    }

    fn bytes_in(self, database: &Named<'t>) -> Result<u64> {
        let stat = database.stat(self.txn).map_err(|error| self.engine.error(error))?;
        let pages = stat.branch_pages + stat.leaf_pages + stat.overflow_pages;
        Ok(pages as u64 * u64::from(stat.page_size))
    }

    /// Returns the number of leaves of a database.
    pub(crate) fn leaves_of(self, source: Source) -> Result<u64> {
        let stat = self.database(source)?.stat(self.txn);
        Ok(stat.map_err(|error| self.engine.error(error))?.leaf_pages as u64)
    }

    pub(in crate::engine::lmdb) fn len_of(self, source: Source) -> Result<u64> {
        self.database(source)?.len(self.txn).map_err(|error| self.engine.error(error))
    }
}
