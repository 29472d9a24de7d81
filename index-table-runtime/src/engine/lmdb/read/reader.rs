//! A [`Reader`]: one table in one transaction, and look-ups by physical keys.

use heed::{AnyTls, RoTxn};

use crate::{
    engine::{
        Space,
        lmdb::{
            env::Engine,
            layout::Layout,
            names::Database,
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
}

impl<'t> Reader<'t> {
    pub(in crate::engine::lmdb) const fn new(
        engine: &'t Engine,
        txn: &'t RoTxn<'t, AnyTls>,
        tables: &'t Tables<'t>,
    ) -> Self {
        Self { engine, txn, tables }
    }

    #[expect(clippy::inline_always, reason = "each point lookup would cost a call")]
    #[inline(always)]
    pub(super) fn value(self, database: &Database<'_>, key: &[u8]) -> Result<Option<&'t [u8]>> {
        if key.is_empty() || key.len() > MAX_KEY_LEN {
            // LMDB has no such key, and returns an error.
            return Ok(None);
        }
        database.get(self.txn, key).map_err(|error| self.engine.error(error))
    }

    /// Returns the last entry at or before this position.
    pub(in crate::engine::lmdb) fn at_or_below(
        self,
        database: &Database<'_>,
        at: &[u8],
    ) -> Result<Option<(&'t [u8], &'t [u8])>> {
        if at.is_empty() || at.len() > MAX_KEY_LEN {
            return Ok(None);
        }
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

    pub(in crate::engine::lmdb) fn database(self, source: Source) -> Result<&'t Database<'t>> {
        match source {
            Source::Facts => Ok(&self.tables.facts),
            Source::Index(position) => self.index(position).map(|(index, _)| &*index.database),
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

    fn bytes_in(self, database: &Database<'t>) -> Result<u64> {
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
