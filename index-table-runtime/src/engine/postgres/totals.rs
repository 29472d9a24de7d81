//! The totals of the groups of an aggregate, as a transaction sees them: the sums of their stripes.

use std::vec;

use tokio_postgres::Row;

use super::{
    batch::Kind,
    connection::column,
    stripes::{AT_ONCE, PERIOD, Striped, end_of, new_key},
    txn::Txn,
};
use crate::model::{
    aggregate::{Totals, Unrecordable},
    error::Result,
    schema::TableSchema,
};

/// The totals of an aggregate in a transaction.
#[derive(Clone, Copy)]
pub(super) struct StoredTotals<'t> {
    pub(super) txn: &'t Txn<'t>,
    pub(super) schema: &'static TableSchema,
    pub(super) striped: &'t Striped,
}

impl<'t> StoredTotals<'t> {
    /// Returns the record of the totals; `None` if the group has no rows. The record of totals that don't agree with the
    /// rows can't be decoded, so that a verification finds it.
    fn record(self, group: &[u8], totals: &Totals) -> Result<Option<Vec<u8>>> {
        match totals.record(self.striped.declared) {
            Ok(record) => Ok(record),
            Err(Unrecordable::Negative) => Ok(Some(Vec::new())),
            Err(reason @ Unrecordable::Overflow) => {
                Err(self.striped.declared.unrecordable(self.schema, group, reason))
            }
        }
    }

    /// Returns the record of the totals of a group.
    pub(super) fn get(self, group: &[u8]) -> Result<Option<&'t [u8]>> {
        let table = &self.striped.relation.sql;
        let sql = format!("SELECT v FROM {table} WHERE k >= $1 AND k < $2");
        let mut totals = Totals::default();
        for row in self.txn.query(&sql, &[&group, &end_of(group)])? {
            totals.add_all(&self.striped.totals(column(&row, 0)?));
        }
        let Some(record) = self.record(group, &totals)? else { return Ok(None) };
        self.txn.lend(record).map(Some)
    }

    /// Returns the first group at or after a position, with its record.
    pub(super) fn at_or_above(self, from: &[u8]) -> Result<Option<(&'t [u8], &'t [u8])>> {
        let found = Groups::new(self, from, 4 * PERIOD.cast_signed()).next()?;
        let Some((group, record)) = found else { return Ok(None) };
        Ok(Some((self.txn.lend(group)?, self.txn.lend(record)?)))
    }

    /// Returns the number of groups.
    pub(super) fn count(self) -> Result<u64> {
        let (mut groups, mut count) = (Groups::new(self, &[], AT_ONCE), 0);
        while groups.next()?.is_some() {
            count += 1;
        }
        Ok(count)
    }

    /// Adds a change of the totals of a group.
    pub(super) fn add(self, group: &[u8], change: &Totals) -> Result<()> {
        let (key, merges) = new_key(group);
        let stripe = change.stripe(self.striped.declared);
        self.txn.change(&self.striped.relation, Kind::Add, &[&key, &stripe])?;
        if merges {
            self.txn.session().merge_later(self.striped, group);
        }
        Ok(())
    }

    /// Removes the totals of a group.
    pub(super) fn remove(self, group: &[u8]) -> Result<()> {
        let sql = format!("DELETE FROM {} WHERE k >= $1 AND k < $2", self.striped.relation.sql);
        self.txn.execute(&sql, &[&group, &end_of(group)]).map(drop)
    }
}

/// The groups from a position on, each with its totals.
struct Groups<'t> {
    of: StoredTotals<'t>,
    from: Vec<u8>,
    limit: i64,
    rows: vec::IntoIter<Row>,
    is_complete: bool,
    group: Option<(Vec<u8>, Totals)>,
}

impl<'t> Groups<'t> {
    fn new(of: StoredTotals<'t>, from: &[u8], limit: i64) -> Self {
        let from = match of.striped.split(from) {
            // No group is between two stripes of a group.
            Some((group, rest)) if !rest.is_empty() => end_of(group),
            _ => from.to_vec(),
        };
        let (rows, is_complete) = (Vec::new().into_iter(), false);
        Self { of, from, limit, rows, is_complete, group: None }
    }

    fn row(&mut self) -> Result<Option<Row>> {
        if self.rows.len() == 0 && !self.is_complete {
            let table = &self.of.striped.relation.sql;
            let sql = format!("SELECT k, v FROM {table} WHERE k >= $1 ORDER BY k LIMIT $2");
            let rows = self.of.txn.query(&sql, &[&self.from, &self.limit])?;
            self.is_complete = i64::try_from(rows.len()).is_ok_and(|len| len < self.limit);
            if let Some(last) = rows.last() {
                self.from = [column::<&[u8]>(last, 0)?, &[0]].concat();
            }
            self.rows = rows.into_iter();
        }
        Ok(self.rows.next())
    }

    /// Returns the next group that has rows, with its record.
    fn next(&mut self) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        loop {
            let Some(row) = self.row()? else {
                let Some((group, totals)) = self.group.take() else { return Ok(None) };
                return Ok(self.of.record(&group, &totals)?.map(|record| (group, record)));
            };
            let key = column::<&[u8]>(&row, 0)?;
            let group = self.of.striped.split(key).map_or(key, |(group, _)| group);
            let totals = self.of.striped.totals(column(&row, 1)?);
            match &mut self.group {
                Some((same, sum)) if same == group => sum.add_all(&totals),
                before => {
                    if let Some((group, totals)) = before.replace((group.to_vec(), totals))
                        && let Some(record) = self.of.record(&group, &totals)?
                    {
                        return Ok(Some((group, record)));
                    }
                }
            }
        }
    }
}
