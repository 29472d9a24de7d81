//! Several scans of one table as one, in the order of the primary key.
//!
//! A [`plan`] is a list of scans and operators. [`run`] converts it to a [`tree`], whose [leaves](leaf) read
//! the scans or their [sorted] primary keys, and finds one primary key after another. [`iter`] yields the
//! row, view or key of each. [`page`] limits the combination by cursors.

mod iter;
mod leaf;
mod page;
mod plan;
mod primary_key;
mod run;
mod sorted;
mod tree;

pub use iter::{CombinedKeys, CombinedRows, CombinedViews};

use std::{fmt, marker::PhantomData, rc::Rc};

use super::{
    Cursor, Scan,
    conditions::{Conditions, RowTest, row_test},
    list::Ranges,
    request::ScanRequest,
};
use crate::engine::Query;
use crate::{
    model::{
        entity::{Entity, IndexEntry, Viewed},
        error::{Error, Result},
        schema::TableSchema,
    },
    placement::Reader,
    query::meter::Ledger,
};
use leaf::Part;
use plan::{Operator, Plan};

/// The reason why a part with a direction, a limit or a cursor is rejected.
const LIMITED: &str =
    "no part may have a `rev`, `limit`, `after` or `before`; the combination can have them instead";

impl<'txn, E: IndexEntry<'txn>> Scan<'txn, E> {
    /// Selects the rows that are in both scans.
    ///
    /// Neither scan may have a `rev`, `limit`, `after` or `before`; the combination can have them instead.
    /// Otherwise, running it fails with [`Error::NotCombinable`]. A [`filter`](Scan::filter) of a scan
    /// applies to the combination.
    ///
    /// Cost: see [`Combined`].
    pub fn and(self, other: impl Into<Combined<'txn, E::Row>>) -> Combined<'txn, E::Row> {
        Combined::from(self).and(other)
    }

    /// Selects the rows that are in one or both of the scans, without duplicates.
    ///
    /// The conditions for the scans are the same as for [`and`](Scan::and). A [`filter`](Scan::filter) of a scan applies
    /// to this scan alone, and reads the row of each of its entries.
    ///
    /// Cost: see [`Combined`].
    pub fn or(self, other: impl Into<Combined<'txn, E::Row>>) -> Combined<'txn, E::Row> {
        Combined::from(self).or(other)
    }
}

/// Scans of one table combined by [`and`](Scan::and) and [`or`](Scan::or). The rows are in the order of the
/// primary key, without duplicates.
///
/// A combination can be combined further. It reads nothing until it is iterated, and memory does not grow
/// with the result.
///
/// The entries of a scan are in the order of the primary key if the query has a value for each field of the
/// index, or if it is a scan of the fact table. These entries are read as they are needed. All entries of any
/// other scan, such as a range or a prefix, are read before the first row is returned, and their primary keys
/// are sorted. All such scans of a combination share 4 MiB of memory, and use temporary files beyond that.
///
/// Cost: `or` steps through all of its scans. `and` moves from each primary key in one scan to the same
/// position in the other, by steps over a few entries or by a seek. The number of seeks is at most about the
/// number of entries of the smaller scan. It is low if few primary keys of the scans are near each other. An index on
/// all fields of both scans needs only one seek, but costs writes and space. If a scan has a hashed field
/// that its entries don't carry, each step costs a look-up in the fact table. A sorted scan reads all of its
/// entries for each page. The cost is linear in the number of entries read, with a factor of log n in an `or`
/// of n scans. Combinations can be nested to any depth.
#[must_use = "it does nothing until its rows, views, keys or count are read"]
pub struct Combined<'txn, R> {
    reader: Result<Reader<'txn>>,
    ledger: Ledger<'txn>,
    plan: Plan<'txn>,
    reverse: bool,
    limit: Option<u64>,
    after: Option<Cursor>,
    before: Option<Cursor>,
    tests: Vec<RowTest<'txn>>,
    row: PhantomData<fn() -> R>,
}

impl<'txn, R: Entity> Combined<'txn, R> {
    /// Selects the rows that are in both; see [`Scan::and`].
    pub fn and(self, other: impl Into<Self>) -> Self {
        self.with(Operator::All, other.into())
    }

    /// Selects the rows that are in one or both, without duplicates; see [`Scan::or`].
    pub fn or(self, other: impl Into<Self>) -> Self {
        self.with(Operator::Any, other.into())
    }

    fn with(mut self, operator: Operator, mut other: Self) -> Self {
        let fault = if self.is_limited() || other.is_limited() {
            Some(LIMITED)
        } else if !std::ptr::eq(self.ledger.session, other.ledger.session) {
            Some("they are from different transactions")
        } else {
            None
        };
        let reader = self.reader.and_then(|reader| other.reader.map(|_| reader));
        let reader = reader.and_then(|reader| match fault {
            None => Ok(reader),
            Some(reason) => Err(Error::NotCombinable { table: R::TABLE.name, index: None, reason }),
        });
        match operator {
            // The rows of both must pass the tests of both.
            Operator::All => self.tests.append(&mut other.tests),
            Operator::Any => {
                self.plan.add_tests(&self.tests);
                self.tests.clear();
                other.plan.add_tests(&other.tests);
            }
        }
        Self { reader, plan: self.plan.combine(operator, other.plan), ..self }
    }

    const fn is_limited(&self) -> bool {
        self.reverse || self.limit.is_some() || self.after.is_some() || self.before.is_some()
    }

    /// Reads from the last primary key to the first. A second `rev` restores the order.
    pub fn rev(mut self) -> Self {
        self.reverse = !self.reverse;
        self
    }

    /// Keeps only the rows for which `test` returns `true`; see [`Scan::filter`].
    ///
    /// Cost: a look-up of each row of the combination, which [`rows`](Combined::rows) does not repeat. The
    /// row is decoded for the test, and decoded again if it is returned.
    pub fn filter(mut self, test: impl Fn(&R) -> bool + 'txn) -> Self {
        self.tests.push(row_test(test));
        self
    }

    /// Returns at most `limit` rows. Of two limits, the smaller one applies.
    pub fn limit(mut self, limit: usize) -> Self {
        let limit = limit as u64;
        self.limit = Some(self.limit.map_or(limit, |other| other.min(limit)));
        self
    }

    /// Returns an iterator over the rows.
    ///
    /// Cost: the cost of [`keys`](Combined::keys), and one look-up in the fact table for each row.
    pub fn rows(self) -> CombinedRows<'txn, R> {
        CombinedRows::new(self.run())
    }

    /// Returns an iterator over the rows, with their strings and bytes borrowed from the transaction's
    /// snapshot; see [`Scan::views`].
    ///
    /// Cost: the seeks, steps and look-ups of [`rows`](Combined::rows).
    pub fn views(self) -> CombinedViews<'txn, R>
    where
        R: Viewed,
    {
        CombinedViews::new(self.run())
    }

    /// Returns an iterator over the primary keys: a value for a primary key of one field, a tuple for several
    /// fields.
    ///
    /// Cost: see [`Combined`]; no row is looked up.
    pub fn keys(self) -> CombinedKeys<'txn, R> {
        CombinedKeys::new(self.run())
    }

    /// Counts the rows.
    ///
    /// Cost: the cost of [`keys`](Combined::keys) without decoding.
    ///
    /// # Errors
    ///
    /// [`Error::NotCombinable`]; the [errors of reading](crate::Error#common-errors).
    pub fn count(self) -> Result<u64> {
        let mut run = self.run_in_any_order();
        let mut count = 0;
        while run.next()?.is_some() {
            count += 1;
        }
        Ok(count)
    }

    /// Whether there is a row.
    ///
    /// Cost: the cost of [`keys`](Combined::keys) for one key, without decoding.
    ///
    /// # Errors
    ///
    /// The errors of [`count`](Combined::count).
    pub fn exists(self) -> Result<bool> {
        self.limit(1).count().map(|count| count > 0)
    }

    /// Returns the first row, if there is one.
    ///
    /// Cost: the cost of [`rows`](Combined::rows) for one row.
    ///
    /// # Errors
    ///
    /// The errors of [`count`](Combined::count).
    pub fn first(self) -> Result<Option<R>> {
        // Before a cursor, a limit selects the last rows.
        let first = if self.before.is_none() { self.limit(1) } else { self };
        first.rows().next().transpose()
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
    fn from(mut scan: Scan<'txn, E>) -> Self {
        let rows = scan.request.query.rows;
        scan.request.reads_rows();
        scan.request.query.rows = rows;
        let ScanRequest { reader, schema, ledger, query, conditions, after, before, .. } =
            scan.request;
        let is_limited =
            query.reverse || query.limit.is_some() || after.is_some() || before.is_some();
        let (table, index) = (schema.name, schema.index_name(query.source));
        let limited = || Error::NotCombinable { table, index, reason: LIMITED };
        let reader = reader.map_err(|error| *error);
        let reader = reader.and_then(|reader| if is_limited { Err(limited()) } else { Ok(reader) });
        let (conditions, tests) = Conditions::without_tests(conditions);
        let is_ordered = in_primary_key_order(schema, &query);
        let plan = if is_ordered && query.list.is_some() {
            any_of(query, conditions.as_ref())
        } else {
            Plan::of(Part { query, conditions, is_ordered })
        };
        let (after, before, row) = (None, None, PhantomData);
        Self { reader, ledger, plan, reverse: false, limit: None, after, before, tests, row }
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

/// Whether all entries have the same key, so that they are in the order of the primary key. For a query with
/// a list, whether this is true of the entries of each value.
fn in_primary_key_order(schema: &TableSchema, query: &Query) -> bool {
    let Some(index) = schema.index(query.source) else { return true };
    // The prefix of a text has no terminator, so it is not a whole field.
    let is_key = |query: &Query| {
        query.bounds.as_prefix().is_some_and(|key| index.key_len(key) == Ok(key.len()))
    };
    match query.list {
        None => is_key(query),
        Some(_) => Ranges::of(query.clone()).all(|range| is_key(&range)),
    }
}

/// Combines the scans of a query with a list, one for each value.
fn any_of<'txn>(mut query: Query, conditions: Option<&Rc<Conditions<'txn>>>) -> Plan<'txn> {
    let part = |query| Plan::of(Part { query, conditions: conditions.cloned(), is_ordered: true });
    let ranges = Ranges::of(query.clone()).map(part);
    let any = ranges.reduce(|any, range| any.combine(Operator::Any, range));
    any.unwrap_or_else(|| {
        query.bounds = query.bounds.before(&[]);
        part(query)
    })
}
