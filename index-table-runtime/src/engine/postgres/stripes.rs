//! The totals of groups, in stripes.
//!
//! If each transaction changed the record of a group, all transactions with rows of the group would conflict. So a write
//! adds a stripe of its own: the change of the totals, under the key of the group and [`SUFFIX`] random bytes. It reads
//! nothing, so insertions into a group don't conflict with each other. (Beside transactions that read rows, the server
//! can refuse any serializable transaction.) The totals are the sum of the stripes, in the snapshot of the reader. A
//! record under the key of the group itself is a stripe as well; replacing the totals writes it.
//!
//! After the commit of one in [`PERIOD`] stripes, on average, the stripes of its group are merged into one, in a
//! transaction of its own that locks and removes them. The sum is the same before and after, so it conflicts with no
//! snapshot, and merges of several clients skip each other's stripes.

use std::{
    hash::{BuildHasher as _, RandomState},
    sync::Arc,
    vec,
};

use tokio_postgres::{Row, types::ToSql};

use super::{
    batch::Kind,
    connection::{Connection, Outcome, Response, Sent},
    names::Relation,
    pool::Pool,
    read::{Reader, column},
    txn::Txn,
    write::Writer,
};
use crate::{
    engine::Space,
    model::{
        aggregate::{AggregateSchema, Totals, Unrecordable, WHOLE_TABLE},
        error::Result,
        key::{KeyReader, Unescaped},
    },
};

/// The number of random bytes at the end of the key of a stripe.
const SUFFIX: usize = size_of::<u64>();

/// One in this number of stripes lets its group be merged.
const PERIOD: u64 = 64;

/// The maximum number of stripes that are read or merged at once.
const AT_ONCE: i64 = 4096;

/// The aggregate of a table on the server.
#[derive(Debug, Clone)]
pub(super) struct Striped {
    pub(super) relation: Relation,
    pub(super) declared: &'static AggregateSchema,
}

/// A group whose stripes are merged after the commit.
pub(super) type Group = (Striped, Vec<u8>);

impl Striped {
    /// Splits the key of a stripe, or a position among the keys, after the group. Returns `None` if it ends before the end of
    /// a group.
    fn split<'k>(&self, key: &'k [u8]) -> Option<(&'k [u8], &'k [u8])> {
        if self.declared.key.is_empty() {
            return key.split_at_checked(WHOLE_TABLE.len());
        }
        let unescaped = Unescaped::default();
        let mut reader = KeyReader::new(key, &unescaped);
        for field in self.declared.key {
            field.shape.skip(&mut reader).ok()?;
        }
        key.split_at_checked(key.len().checked_sub(reader.rest().len())?)
    }

    fn totals(&self, record: &[u8]) -> Totals {
        Totals::of_stripe(record, self.declared).unwrap_or_else(|_| Totals::unreadable())
    }
}

/// Returns a key after all stripes of a group, and before the next group. No key of a group begins with another.
fn end_of(group: &[u8]) -> Vec<u8> {
    [group, &[0xFF; SUFFIX + 1]].concat()
}

/// Returns a key for a new stripe, and whether the stripes of the group are merged after it.
fn new_key(group: &[u8]) -> (Vec<u8>, bool) {
    // Each `RandomState` has different keys.
    let suffix = RandomState::new().hash_one(group);
    ([group, &suffix.to_be_bytes()].concat(), suffix.is_multiple_of(PERIOD))
}

/// The groups from a position on, each with its totals.
pub(super) struct Groups<'t> {
    txn: &'t Txn<'t>,
    striped: &'t Striped,
    from: Vec<u8>,
    limit: i64,
    rows: vec::IntoIter<Row>,
    is_complete: bool,
    group: Option<(Vec<u8>, Totals)>,
}

impl<'t> Groups<'t> {
    fn new(reader: Reader<'t>, striped: &'t Striped, from: &[u8], limit: i64) -> Self {
        let from = match striped.split(from) {
            // No group is between two stripes of a group.
            Some((group, rest)) if !rest.is_empty() => end_of(group),
            _ => from.to_vec(),
        };
        let (rows, is_complete) = (Vec::new().into_iter(), false);
        Self { txn: reader.txn, striped, from, limit, rows, is_complete, group: None }
    }

    fn row(&mut self) -> Result<Option<Row>> {
        if self.rows.len() == 0 && !self.is_complete {
            let table = &self.striped.relation.sql;
            let sql = format!("SELECT k, v FROM {table} WHERE k >= $1 ORDER BY k LIMIT $2");
            let rows = self.txn.query(&sql, &[&self.from, &self.limit])?;
            self.is_complete = i64::try_from(rows.len()).is_ok_and(|len| len < self.limit);
            if let Some(last) = rows.last() {
                self.from = [column::<&[u8]>(last, 0)?, &[0]].concat();
            }
            self.rows = rows.into_iter();
        }
        Ok(self.rows.next())
    }

    /// Returns the next group that has rows, with its record.
    fn next(&mut self, of: Reader<'_>) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        loop {
            let Some(row) = self.row()? else {
                let Some((group, totals)) = self.group.take() else { return Ok(None) };
                let Some(record) = record(of, self.striped, &group, &totals)? else {
                    return Ok(None);
                };
                return Ok(Some((group, record)));
            };
            let key = column::<&[u8]>(&row, 0)?;
            let group = self.striped.split(key).map_or(key, |(group, _)| group);
            let totals = self.striped.totals(column(&row, 1)?);
            match &mut self.group {
                Some((same, sum)) if same == group => sum.add_all(&totals),
                before => {
                    if let Some((group, totals)) = before.replace((group.to_vec(), totals))
                        && let Some(record) = record(of, self.striped, &group, &totals)?
                    {
                        return Ok(Some((group, record)));
                    }
                }
            }
        }
    }
}

/// Returns the record of the totals; `None` if the group has no rows. The record of totals that don't agree with the rows
/// can't be decoded, so that a verification finds it.
fn record(
    reader: Reader<'_>,
    striped: &Striped,
    group: &[u8],
    totals: &Totals,
) -> Result<Option<Vec<u8>>> {
    match totals.record(striped.declared) {
        Ok(record) => Ok(record),
        Err(Unrecordable::Negative) => Ok(Some(Vec::new())),
        Err(reason @ Unrecordable::Overflow) => {
            Err(striped.declared.unrecordable(reader.tables.schema, group, reason))
        }
    }
}

impl<'t> Reader<'t> {
    /// Returns the aggregate of a space.
    pub(super) fn striped(self, space: Space) -> Option<&'t Striped> {
        let Space::Aggregate(aggregate) = space else { return None };
        self.tables.aggregates.get(aggregate)
    }

    /// Returns the record of the totals of a group.
    pub(super) fn totals(self, striped: &'t Striped, group: &[u8]) -> Result<Option<&'t [u8]>> {
        let table = &striped.relation.sql;
        let sql = format!("SELECT v FROM {table} WHERE k >= $1 AND k < $2");
        let mut totals = Totals::default();
        for row in self.txn.query(&sql, &[&group, &end_of(group)])? {
            totals.add_all(&striped.totals(column(&row, 0)?));
        }
        let Some(record) = record(self, striped, group, &totals)? else { return Ok(None) };
        self.txn.lend(record).map(Some)
    }

    /// Returns the first group at or after a position, with its record.
    pub(super) fn group_at(
        self,
        striped: &'t Striped,
        from: &[u8],
    ) -> Result<Option<(&'t [u8], &'t [u8])>> {
        let found = Groups::new(self, striped, from, 4 * PERIOD.cast_signed()).next(self)?;
        let Some((group, record)) = found else { return Ok(None) };
        Ok(Some((self.txn.lend(group)?, self.txn.lend(record)?)))
    }

    /// Returns the number of groups.
    pub(super) fn count_groups(self, striped: &'t Striped) -> Result<u64> {
        let (mut groups, mut count) = (Groups::new(self, striped, &[], AT_ONCE), 0);
        while groups.next(self)?.is_some() {
            count += 1;
        }
        Ok(count)
    }
}

impl Writer<'_> {
    /// Adds a change of the totals of a group.
    pub(crate) fn add_totals(&self, aggregate: usize, group: &[u8], change: &Totals) -> Result<()> {
        let Some(striped) = self.tables.aggregates.get(aggregate) else { return Ok(()) };
        let (key, merges) = new_key(group);
        let stripe = change.stripe(striped.declared);
        self.txn.change(&striped.relation, Kind::Add, &[&key, &stripe])?;
        if merges {
            self.txn.session().merge_later(striped, group);
        }
        Ok(())
    }

    /// Removes the totals of a group.
    pub(super) fn remove_totals(&self, striped: &Striped, group: &[u8]) -> Result<()> {
        let sql = format!("DELETE FROM {} WHERE k >= $1 AND k < $2", striped.relation.sql);
        self.txn.execute(&sql, &[&group, &end_of(group)]).map(drop)
    }
}

/// Merges the stripes of groups. An error leaves the stripes as they are, so it is not reported.
pub(super) fn merge(pool: &Arc<Pool>, groups: &[Group]) {
    let Ok(Some(leased)) = pool.take_another() else { return };
    let Ok(connection) = leased.get() else { return };
    for (striped, group) in groups {
        loop {
            match merge_some(&connection, striped, group) {
                Ok(true) => {}
                Ok(false) => break,
                Err(_) => {
                    connection.send("ROLLBACK");
                    break;
                }
            }
        }
    }
    leased.keep();
}

/// Merges some stripes of a group. Returns whether there may be more of them.
fn merge_some(connection: &Connection, striped: &Striped, group: &[u8]) -> Outcome<bool> {
    let table = &striped.relation.sql;
    let remove = format!(
        "DELETE FROM {table} WHERE k = ANY (ARRAY(SELECT k FROM {table} WHERE k >= $1 AND k < $2 \
         ORDER BY k LIMIT {AT_ONCE} FOR UPDATE SKIP LOCKED)) RETURNING v"
    );
    let insert = format!("INSERT INTO {table} (k, v) VALUES ($1, $2)");
    let (remove, insert) = (connection.prepared(&remove)?, connection.prepared(&insert)?);
    let end = end_of(group);
    let begun = connection.send_simple("BEGIN ISOLATION LEVEL READ COMMITTED");
    let range: [&(dyn ToSql + Sync); 2] = [&group, &end];
    let removed = connection.send_query(&remove, &range);
    let (begun, removed) = (begun.wait(), removed.wait());
    begun?;
    let Response::Rows(rows) = removed? else { return Ok(false) };
    let mut totals = Totals::default();
    for row in &rows {
        let Ok(stripe) = Totals::of_stripe(row.try_get(0)?, striped.declared) else {
            // A verification finds it.
            connection.send("ROLLBACK");
            return Ok(false);
        };
        totals.add_all(&stripe);
    }
    if rows.len() < 2 {
        connection.send("ROLLBACK");
        return Ok(false);
    }
    let (key, _) = new_key(group);
    let stripe = totals.stripe(striped.declared);
    let parameters: [&(dyn ToSql + Sync); 2] = [&key, &stripe];
    let inserted = (!totals.is_zero()).then(|| connection.send_execute(&insert, &parameters));
    let committed = connection.send_simple("COMMIT");
    let inserted = inserted.map(Sent::wait);
    let committed = committed.wait();
    inserted.transpose()?;
    committed?;
    Ok(i64::try_from(rows.len()).is_ok_and(|len| len == AT_ONCE))
}
