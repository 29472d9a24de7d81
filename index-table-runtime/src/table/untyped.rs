//! The parts of a table's methods that don't depend on the type of its rows, so that they are compiled once.

use std::sync::Arc;

use super::Table;
use crate::{
    model::{
        entity::Entity,
        error::{Error, Result},
        key::DecodeError,
        maintain::Image,
        row,
        schema::Source,
    },
    placement::Writer,
    query::{self, Bounds, DistinctRequest, Ledger, ScanRequest},
    store::{OpenTable, ReadTxn, WriteTxn},
    upkeep::cascade,
    usage::{RowWrite, trace::span},
    write::{
        Scratch,
        rows::{self, Cascading, LoadRow},
    },
};

/// How a row is written.
#[derive(Clone, Copy)]
pub(super) enum Writing {
    Insert,
    Put,
    /// In the place of the row with the same key in the unique index at this position.
    PutBy(usize),
}

impl OpenTable {
    pub(super) fn ledger<'txn>(&'txn self, txn: &'txn ReadTxn<'_>) -> Ledger<'txn> {
        Ledger::new(&txn.session, &self.shared.usage, &self.rows.lists)
    }

    pub(super) fn scan<'txn>(
        self: &'txn Arc<Self>,
        txn: &'txn ReadTxn<'_>,
        source: Source,
        bounds: Bounds,
    ) -> ScanRequest<'txn> {
        let reader = txn.reader_to_scan(self, source).map(|(reader, _)| reader).map_err(Box::new);
        let mut request = ScanRequest::new(reader, self.schema, self.ledger(txn), source, bounds);
        if txn.has_aggregates(self) {
            request.use_totals(&self.rows);
        }
        request
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
            let reader = txn.reader_of(self, source).map_err(Box::new);
            return ScanRequest::new(reader, self.schema, ledger, source, key.clone()).first_row();
        }
        let reader = txn.reader_of(self, source)?;
        query::row_by(reader, self.schema, ledger, source, key.range.start())
    }

    /// Writes a row.
    pub(super) fn write_row(
        self: &Arc<Self>,
        txn: &mut WriteTxn<'_>,
        how: Writing,
        row: &dyn LoadRow,
    ) -> Result<()> {
        txn.operate(|txn| match how {
            Writing::Insert => {
                span!(TRACE, "insert", table = self.schema.name);
                let (mut writer, Scratch { new, tried, .. }, written) = txn.row_writer(self)?;
                row.load(new, tried)?;
                rows::insert(&self.rows, &mut writer, new, written)
            }
            Writing::Put => {
                span!(TRACE, "put", table = self.schema.name);
                let (mut writer, scratch, written) = txn.row_writer(self)?;
                rows::put(&self.rows, &mut writer, row, scratch, written)
            }
            Writing::PutBy(index) => {
                span!(TRACE, "put", table = self.schema.name);
                txn.reader_of(self, Source::Index(index))?;
                let (mut writer, Scratch { old, new, tried }, written) = txn.row_writer(self)?;
                row.load(new, tried)?;
                rows::put_by(&self.rows, &mut writer, index, old, new, written)
            }
        })
    }

    /// Writes back the row, of which `change` loads the stored and the new version. `change` is called once, and
    /// returns false if there is no such row. Then this returns false.
    pub(super) fn update_row(
        self: &Arc<Self>,
        txn: &mut WriteTxn<'_>,
        change: &mut dyn FnMut(&Writer<'_, '_>, &mut Scratch) -> Result<bool>,
    ) -> Result<bool> {
        txn.operate_once(|txn| {
            span!(TRACE, "update", table = self.schema.name);
            let (mut writer, scratch, written) = txn.row_writer(self)?;
            if !change(&writer, scratch)? {
                return Ok(false);
            }
            let Scratch { old, new, .. } = scratch;
            rows::update(&self.rows, &mut writer, old, new, written, RowWrite::Update)?;
            Ok(true)
        })
    }

    /// Removes the row that `load` loads. `load` returns false if there is no such row.
    pub(super) fn remove_row(
        self: &Arc<Self>,
        txn: &mut WriteTxn<'_>,
        primary_key: &[u8],
        load: &mut dyn FnMut(&Writer<'_, '_>, &mut Image) -> Result<bool>,
    ) -> Result<()> {
        txn.operate(|txn| {
            span!(TRACE, "delete", table = self.schema.name);
            let (mut writer, Scratch { old, .. }, written) = txn.row_writer(self)?;
            if !load(&writer, old)? {
                return Ok(());
            }
            let deleted =
                rows::delete_loaded(&self.rows, &mut writer, Cascading::No, old, written)?;
            cascade::finish(txn, self, primary_key, deleted).map(drop)
        })
    }

    pub(super) fn delete(
        self: &Arc<Self>,
        txn: &mut WriteTxn<'_>,
        primary_key: &[u8],
    ) -> Result<bool> {
        txn.operate(|txn| {
            span!(TRACE, "delete", table = self.schema.name);
            let (mut writer, Scratch { old, .. }, written) = txn.row_writer(self)?;
            let row = (primary_key, Cascading::No);
            let deleted = rows::delete(&self.rows, &mut writer, row, old, written)?;
            cascade::finish(txn, self, primary_key, deleted)
        })
    }

    pub(super) fn delete_by(
        self: &Arc<Self>,
        txn: &mut WriteTxn<'_>,
        source: Source,
        key: &Bounds,
    ) -> Result<bool> {
        txn.operate(|txn| {
            span!(TRACE, "delete", table = self.schema.name);
            let reader = txn.reader_of(self, source).map_err(Box::new);
            let ledger = self.ledger(txn);
            let request = ScanRequest::new(reader, self.schema, ledger, source, key.clone());
            let Some(key) = request.first_key()? else { return Ok(false) };
            let (mut writer, Scratch { old, .. }, written) = txn.row_writer(self)?;
            let row = (key.as_slice(), Cascading::No);
            let deleted = rows::delete(&self.rows, &mut writer, row, old, written)?;
            cascade::finish(txn, self, &key, deleted)
        })
    }

    #[cold]
    pub(super) fn corrupt(&self, source: Source, key: &[u8], error: DecodeError) -> Error {
        self.schema.corrupt(source, key, error)
    }

    /// Returns the error for a row with this key in a unique index.
    #[cold]
    pub(super) fn corrupt_by(
        self: &Arc<Self>,
        txn: &ReadTxn<'_>,
        source: Source,
        key: &Bounds,
        error: DecodeError,
    ) -> Error {
        if error.is_of_conversion() {
            let reader = txn.reader_of(self, source).map_err(Box::new);
            let ledger = self.ledger(txn);
            let request = ScanRequest::new(reader, self.schema, ledger, source, key.clone());
            if let Ok(Some(primary_key)) = request.first_key() {
                return self.corrupt(Source::Facts, &primary_key, error);
            }
        }
        self.corrupt(source, key.range.start(), error)
    }
}

impl<R: Entity> Table<R> {
    /// Returns the row with these bytes.
    pub(super) fn decode(&self, bytes: &[u8], source: Source, key: &[u8]) -> Result<Option<R>> {
        match row::decode(&self.open.rows.lists, bytes) {
            Ok(row) => Ok(Some(row)),
            Err(error) => Err(self.open.corrupt(source, key, error)),
        }
    }
}
