//! All of a [`Scan`](super::Scan) but the type of its entries: what is compiled once.

use super::{Cursor, Query, cursor, found, iter::Raw};
use crate::{
    engine::{Read, Reader},
    error::Result,
    schema::TableSchema,
    stats::Ledger,
};

/// A query that has not been run yet, and what runs it.
pub(super) struct Asked<'txn> {
    pub(super) reader: Result<Reader<'txn>>,
    pub(super) schema: &'static TableSchema,
    pub(super) ledger: Ledger<'txn>,
    pub(super) query: Query,
    /// Where it begins, unless it begins at its beginning.
    pub(super) after: Option<Cursor>,
}

impl<'txn> Asked<'txn> {
    /// What a cursor belongs to, as a number.
    pub(super) fn question(&self) -> u64 {
        cursor::question(self.schema, &self.query)
    }

    /// Runs it; with its [`question`](Asked::question), if that is known.
    pub(super) fn run(mut self, question: Option<u64>) -> Raw<'txn> {
        self.resolve(question);
        Raw::new(self.reader, self.schema, self.ledger, self.query)
    }

    pub(super) fn count(mut self) -> Result<u64> {
        self.resolve(None);
        let (reader, source) = (self.reader?, self.query.source);
        if self.query.limit == Some(0) {
            return Ok(0);
        }
        if self.query.bounds.is_hashed() {
            let mut meter = self.ledger.meter(source, None);
            return found::count(reader, self.schema, &mut meter, self.query);
        }
        let count = reader.count(self.query)?;
        self.ledger.count(source, count);
        Ok(count.found)
    }

    /// Makes the cursor the position of the query.
    fn resolve(&mut self, question: Option<u64>) {
        let Some(cursor) = self.after.take() else { return };
        let question = question.unwrap_or_else(|| self.question());
        match cursor.position_in(self.schema, &self.query, question) {
            Ok(position) => self.query.position = Some(position),
            Err(error) if self.reader.is_ok() => self.reader = Err(error),
            Err(_) => {}
        }
    }
}
