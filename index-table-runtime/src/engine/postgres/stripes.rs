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
};

use tokio_postgres::types::ToSql;

use super::{
    connection::{Connection, Outcome, Response, Sent},
    names::Relation,
    pool::Pool,
};
use crate::model::{
    aggregate::{Totals, WHOLE_TABLE},
    key::{KeyReader, Unescaped},
    schema::AggregateSchema,
};

/// The number of random bytes at the end of the key of a stripe.
const SUFFIX: usize = size_of::<u64>();

/// One in this number of stripes lets its group be merged.
pub(super) const PERIOD: u64 = 64;

/// The maximum number of stripes that are read or merged at once.
pub(super) const AT_ONCE: i64 = 4096;

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
    pub(super) fn split<'k>(&self, key: &'k [u8]) -> Option<(&'k [u8], &'k [u8])> {
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

    pub(super) fn totals(&self, record: &[u8]) -> Totals {
        Totals::of_stripe(record, self.declared).unwrap_or_else(|_| Totals::unreadable())
    }
}

/// Returns a key after all stripes of a group, and before the next group. No key of a group begins with another.
pub(super) fn end_of(group: &[u8]) -> Vec<u8> {
    [group, &[0xFF; SUFFIX + 1]].concat()
}

/// Returns a key for a new stripe, and whether the stripes of the group are merged after it.
pub(super) fn new_key(group: &[u8]) -> (Vec<u8>, bool) {
    // Each `RandomState` has different keys.
    let suffix = RandomState::new().hash_one(group);
    ([group, &suffix.to_be_bytes()].concat(), suffix.is_multiple_of(PERIOD))
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
