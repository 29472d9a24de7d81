//! The parts of a table's methods that don't depend on the type of its rows, so that they are compiled once.

use std::sync::Arc;

use super::Table;
use crate::{
    model::{
        entity::Entity,
        error::{Error, Result},
        key::DecodeError,
        row,
        schema::Source,
    },
    query::{self, Bounds, DistinctRequest, ScanRequest},
    store::{OpenTable, ReadTxn, WriteTxn},
    upkeep::cascade,
    usage::{Ledger, trace::span},
    write::{
        Scratch,
        rows::{self, Cascading},
    },
};

impl OpenTable {
    pub(super) fn ledger<'txn>(&'txn self, txn: &'txn ReadTxn<'_>) -> Ledger<'txn> {
        Ledger::new(&txn.session, &self.shared.usage)
    }

    pub(super) fn scan<'txn>(
        self: &'txn Arc<Self>,
        txn: &'txn ReadTxn<'_>,
        source: Source,
        bounds: Bounds,
    ) -> ScanRequest<'txn> {
        let reader = txn.reader_to_scan(self, source).map(|(reader, _)| reader);
        let request = ScanRequest::new(reader, self.schema, self.ledger(txn), source, bounds);
        if txn.has_aggregates(self) { request.with_totals(self.rows) } else { request }
    }

    pub(super) fn distinct<'txn>(
        self: &'txn Arc<Self>,
        txn: &'txn ReadTxn<'_>,
        source: Source,
        leading: Bounds,
    ) -> DistinctRequest<'txn> {
        let reader = txn.reader_to_scan(self, source);
        DistinctRequest::new(reader, self.schema, self.ledger(txn), source, leading)
    }

    /// Returns the bytes of the row with this key in a unique index.
    pub(super) fn row_by<'txn>(
        self: &'txn Arc<Self>,
        txn: &'txn ReadTxn<'_>,
        source: Source,
        key: &Bounds,
    ) -> Result<Option<&'txn [u8]>> {
        let ledger = self.ledger(txn);
        if key.is_hashed() {
            let reader = txn.reader_of(self, source);
            return ScanRequest::new(reader, self.schema, ledger, source, key.clone()).first_row();
        }
        let reader = txn.reader_of(self, source)?;
        query::row_by(reader, self.schema, ledger, source, key.range.start())
    }

    pub(super) fn delete(
        self: &Arc<Self>,
        txn: &mut WriteTxn<'_>,
        primary_key: &[u8],
    ) -> Result<bool> {
        if txn.is_each() {
            return txn.each(|txn| self.delete_in::<true>(txn, primary_key));
        }
        self.delete_in::<false>(txn, primary_key)
    }

    fn delete_in<const IS_EACH: bool>(
        self: &Arc<Self>,
        txn: &mut WriteTxn<'_>,
        primary_key: &[u8],
    ) -> Result<bool> {
        span!(TRACE, "delete", table = self.schema.name);
        let (mut writer, Scratch { old, .. }, written) = txn.row_writer(self)?;
        let row = (primary_key, Cascading::No);
        let deleted = rows::delete(self.rows, &mut writer, row, old, written)?;
        cascade::finish(txn, self, primary_key, deleted)
    }

    pub(super) fn delete_by(
        self: &Arc<Self>,
        txn: &mut WriteTxn<'_>,
        source: Source,
        key: Bounds,
    ) -> Result<bool> {
        if txn.is_each() {
            return txn.each(|txn| self.delete_by(txn, source, key.clone()));
        }
        span!(TRACE, "delete", table = self.schema.name);
        let reader = txn.reader_of(self, source);
        let request = ScanRequest::new(reader, self.schema, self.ledger(txn), source, key);
        let Some(key) = request.first_key()? else { return Ok(false) };
        let (mut writer, Scratch { old, .. }, written) = txn.row_writer(self)?;
        let row = (key.as_slice(), Cascading::No);
        let deleted = rows::delete(self.rows, &mut writer, row, old, written)?;
        cascade::finish(txn, self, &key, deleted)
    }

    #[cold]
    pub(super) fn corrupt(&self, source: Source, key: &[u8], error: DecodeError) -> Error {
        self.schema.corrupt(source, key, error)
    }
}

impl<R: Entity> Table<R> {
    /// Returns the row with these bytes.
    pub(super) fn decode(&self, bytes: &[u8], source: Source, key: &[u8]) -> Result<Option<R>> {
        match row::decode(bytes) {
            Ok(row) => Ok(Some(row)),
            Err(error) => Err(self.open.corrupt(source, key, error)),
        }
    }
}
