//! Several scans of one table as one, in the order of the primary key.
//!
//! A [`plan`] is a list of scans and operators. [`run`] makes a [`tree`] of it, whose [leaves](leaf) read
//! the scans, and finds one primary key after another; [`iter`] yields the row, view or key of each.

mod iter;
mod leaf;
mod plan;
mod run;
mod tree;

pub use iter::{CombinedKeys, CombinedRows, CombinedViews};

use std::{fmt, marker::PhantomData, rc::Rc};

use super::{Scan, conditions::Conditions, list::Ranges, request::ScanRequest};
use crate::engine::Query;
use crate::{
    engine::Reader,
    model::{
        entity::{Entity, IndexEntry, Viewed},
        error::{Error, Result},
        schema::TableSchema,
    },
    usage::Ledger,
};
use leaf::Part;
use plan::{Operator, Plan};
use run::Run;

/// What is said of a part that is not all of its rows in ascending order.
const LIMITED: &str = "no part may have a `rev`, `limit` or `after`; limit the whole instead";

impl<'txn, E: IndexEntry<'txn>> Scan<'txn, E> {
    /// The rows that are in both.
    ///
    /// Both scans have to yield their rows in the order of the primary key: all fields of an
    /// index given with their values, or any scan of the fact table; and without `rev`, `limit`
    /// and `after`. [`Error::NotCombinable`] says so when the combination is run.
    ///
    /// Cost: see [`Combined`].
    pub fn and(self, other: impl Into<Combined<'txn, E::Row>>) -> Combined<'txn, E::Row> {
        Combined::from(self).and(other)
    }

    /// The rows that are in one of them or in both, each once.
    ///
    /// The same scans as for [`and`](Scan::and) can be combined.
    ///
    /// Cost: see [`Combined`].
    pub fn or(self, other: impl Into<Combined<'txn, E::Row>>) -> Combined<'txn, E::Row> {
        Combined::from(self).or(other)
    }
}

/// Scans of one table combined by [`and`](Scan::and) and [`or`](Scan::or): the rows in the order of
/// the primary key, each once.
///
/// A combination can be combined again. Nothing is read before it is asked for, nothing is
/// collected, and memory does not grow with the answer.
///
/// Cost: `or` steps through all of its scans. `and` goes from each primary key in one scan to the
/// same place in the other, over a few entries by stepping and over more by a seek: about as
/// many seeks as the smaller scan has entries, at most, and few if their entries lie apart. An
/// index over all the fields of both needs one seek; this needs no index more. Each entry that is
/// stepped on costs a look-up in the fact table where it is found by a hashed field that it doesn't
/// carry. The cost is linear in the entries that are read, with log n for each in an `or` of n scans,
/// and combinations can be nested to any depth.
#[must_use = "it does nothing until it is asked for rows, views, keys or a count"]
pub struct Combined<'txn, R> {
    reader: Result<Reader<'txn>>,
    ledger: Ledger<'txn>,
    plan: Plan<'txn>,
    limit: Option<u64>,
    row: PhantomData<fn() -> R>,
}

impl<'txn, R: Entity> Combined<'txn, R> {
    /// The rows that are in both; see [`Scan::and`].
    pub fn and(self, other: impl Into<Self>) -> Self {
        self.with(Operator::All, other.into())
    }

    /// The rows that are in one of them or in both, each once; see [`Scan::or`].
    pub fn or(self, other: impl Into<Self>) -> Self {
        self.with(Operator::Any, other.into())
    }

    fn with(self, operator: Operator, other: Self) -> Self {
        let refusal = if self.limit.is_some() || other.limit.is_some() {
            Some(LIMITED)
        } else if !std::ptr::eq(self.ledger.session, other.ledger.session) {
            Some("they are from different transactions")
        } else {
            None
        };
        let reader = self.reader.and_then(|reader| other.reader.map(|_| reader));
        let reader = reader.and_then(|reader| match refusal {
            None => Ok(reader),
            Some(reason) => Err(Error::NotCombinable { table: R::TABLE.name, index: None, reason }),
        });
        Self { reader, plan: self.plan.combine(operator, other.plan), limit: None, ..self }
    }

    /// At most `limit` rows; of two limits, the smaller one holds.
    pub fn limit(mut self, limit: usize) -> Self {
        let limit = limit as u64;
        self.limit = Some(self.limit.map_or(limit, |other| other.min(limit)));
        self
    }

    /// The rows.
    ///
    /// Cost: that of [`keys`](Combined::keys), and one look-up in the fact table for each row.
    pub fn rows(self) -> CombinedRows<'txn, R> {
        CombinedRows::new(self.run())
    }

    /// The rows, with their strings and bytes borrowed from the transaction's snapshot; see
    /// [`Scan::views`].
    ///
    /// Cost: the seeks, steps and look-ups of [`rows`](Combined::rows).
    pub fn views(self) -> CombinedViews<'txn, R>
    where
        R: Viewed,
    {
        CombinedViews::new(self.run())
    }

    /// The primary keys: the value for a primary key of one field, a tuple for a composite one.
    ///
    /// Cost: see [`Combined`]; no row is looked up.
    pub fn keys(self) -> CombinedKeys<'txn, R> {
        CombinedKeys::new(self.run())
    }

    /// How many rows there are.
    ///
    /// Cost: that of [`keys`](Combined::keys) without decoding them.
    ///
    /// # Errors
    ///
    /// [`Error::NotCombinable`]; [`Error`] when the store can't be read.
    pub fn count(self) -> Result<u64> {
        let mut run = self.run();
        let mut count = 0;
        while run.next()?.is_some() {
            count += 1;
        }
        Ok(count)
    }

    /// Whether there is a row at all.
    ///
    /// Cost: that of [`keys`](Combined::keys) for one key, without decoding it.
    ///
    /// # Errors
    ///
    /// As [`count`](Combined::count).
    pub fn exists(self) -> Result<bool> {
        self.limit(1).count().map(|count| count > 0)
    }

    /// The first row, if there is one.
    ///
    /// Cost: that of [`rows`](Combined::rows) for one row.
    ///
    /// # Errors
    ///
    /// As [`count`](Combined::count).
    pub fn first(self) -> Result<Option<R>> {
        self.limit(1).rows().next().transpose()
    }

    fn run(self) -> Run<'txn> {
        Run::new(self.reader, R::TABLE, self.ledger, self.plan, self.limit)
    }
}

/// The [rows](Combined::rows) of the combination.
impl<'txn, R: Entity> IntoIterator for Combined<'txn, R> {
    type Item = Result<R>;
    type IntoIter = CombinedRows<'txn, R>;

    fn into_iter(self) -> CombinedRows<'txn, R> {
        self.rows()
    }
}

impl<'txn, E: IndexEntry<'txn>> From<Scan<'txn, E>> for Combined<'txn, E::Row> {
    fn from(scan: Scan<'txn, E>) -> Self {
        let ScanRequest { reader, schema, ledger, query, conditions, after, before } = scan.request;
        let refusal = if query.reverse
            || query.limit.is_some()
            || after.is_some()
            || before.is_some()
        {
            Some(LIMITED)
        } else if in_primary_key_order(schema, &query) {
            None
        } else {
            Some(
                "its rows are not in the order of the primary key; give each field of the index \
                 with its value",
            )
        };
        let reader = reader.and_then(|reader| match refusal {
            None => Ok(reader),
            Some(reason) => Err(Error::NotCombinable {
                table: schema.name,
                index: schema.index_name(query.source),
                reason,
            }),
        });
        let plan = match query.list {
            None => Plan::of(Part { query, conditions }),
            Some(_) => any_of(query, conditions.as_ref()),
        };
        Self { reader, ledger, plan, limit: None, row: PhantomData }
    }
}

impl<R: Entity> fmt::Debug for Combined<'_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Combined")
            .field("table", &R::TABLE.name)
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}

/// Whether all entries have the same key, so that what orders them is the primary key. Of a list: those of each
/// value.
fn in_primary_key_order(schema: &TableSchema, query: &Query) -> bool {
    let Some(index) = schema.index(query.source) else { return true };
    // What a text starts with has no end, so it is not taken for a whole field.
    let is_key = |query: &Query| {
        query.bounds.as_prefix().is_some_and(|key| index.key_len(key) == Ok(key.len()))
    };
    match query.list {
        None => is_key(query),
        Some(_) => Ranges::of(query.clone()).all(|range| is_key(&range)),
    }
}

/// The scans of a query with a list, one for each value.
fn any_of<'txn>(mut query: Query, conditions: Option<&Rc<Conditions<'txn>>>) -> Plan<'txn> {
    let part = |query| Plan::of(Part { query, conditions: conditions.cloned() });
    let ranges = Ranges::of(query.clone()).map(part);
    let any = ranges.reduce(|any, range| any.combine(Operator::Any, range));
    any.unwrap_or_else(|| {
        query.bounds = query.bounds.before(&[]);
        part(query)
    })
}
