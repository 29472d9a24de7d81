//! Reading one table.

use std::{borrow::Cow, collections::HashMap};

use tokio_postgres::{Row, types::ToSql};

use super::{
    connection::column,
    names::{Form, Relation},
    select::{self, Conditions, Place},
    tables::Tables,
    totals::StoredTotals,
    txn::Txn,
};
use crate::{
    engine::{
        Count, Cursor, EntryResult, LongLived, Query, Read, SmallRecords, Space, WithRow,
        one_by_one,
    },
    model::{
        entry::{RawEntry, ShortEntry},
        error::{Boxed, Error, Result},
        key::successor,
        reference::Referrer,
        schema::{Source, Strategy, TableSchema},
    },
};

/// The number of rows that are looked up at once.
const FACTS_AT_ONCE: usize = 256;

/// The number of entries in the first part of a scan without a limit, and in the largest part.
const PART: (i64, i64) = (256, 16_384);

/// The approximate size of a part of a scan in bytes. If the entries are larger, the next part has fewer of them.
const PART_BYTES: usize = 1 << 20;

impl Txn<'_> {
    /// Returns a reader of a table.
    pub(crate) const fn reader<'t>(&'t self, tables: &'t Tables) -> Reader<'t> {
        Reader { txn: self, tables }
    }
}

/// A reader of one table in one transaction.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'t> {
    pub(super) txn: &'t Txn<'t>,
    pub(super) tables: &'t Tables,
}

/// Returns the parameters of a statement.
fn parameters(of: &[Vec<u8>]) -> Vec<&(dyn ToSql + Sync)> {
    of.iter().map(|parameter| parameter as _).collect()
}

/// Returns the first column of the first row.
fn number(rows: &[Row]) -> Result<i64> {
    rows.first().map_or(Ok(0), |row| column(row, 0))
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}

impl<'t> Reader<'t> {
    /// Returns the number of bytes of an SQL table with its index.
    pub(crate) fn bytes_of(self, source: Source) -> Result<u64> {
        self.bytes_in(self.relation(source)?)
    }

    /// Returns the number of bytes of the SQL table of a space.
    pub(crate) fn bytes_of_space(self, space: Space) -> Result<u64> {
        self.tables.space(space).map_or(Ok(0), |(relation, _)| self.bytes_in(relation))
    }

    fn bytes_in(self, relation: &Relation) -> Result<u64> {
        let sql = "SELECT pg_total_relation_size($1::text::regclass)";
        number(&self.txn.query(sql, &[&relation.sql])?).map(unsigned)
    }

    /// Returns the number of messages in the queue of the table, up to a limit. It may be a second old.
    pub(crate) fn queued(self, most: u64) -> Result<u64> {
        let Some(queue) = &self.tables.queue else { return Ok(0) };
        let query = |sql: &str| number(&self.txn.query(sql, &[])?).map(unsigned);
        queue.length(self.txn.pool(), most, query)
    }

    /// Returns the totals of a space; `None` for another space.
    pub(super) fn totals(self, space: Space) -> Option<StoredTotals<'t>> {
        let Space::Aggregate(aggregate) = space else { return None };
        let striped = self.tables.aggregates.get(aggregate)?;
        Some(StoredTotals { txn: self.txn, schema: self.tables.schema, striped })
    }

    /// Notes that a query on the index or aggregate at this position was allowed.
    pub(crate) fn note_read(self, index: usize) {
        self.txn.session().note_read(self.tables.schema, Some(index));
    }

    fn relation(self, source: Source) -> Result<&'t Relation> {
        let missing = || Error::internal("an index that the table doesn't have");
        self.tables.relation(source).ok_or_else(missing)
    }

    fn space(self, space: Space) -> Option<(&'t Relation, Cow<'t, [u8]>)> {
        if !space.is_catalog() {
            self.txn.session().note_read(self.tables.schema, None);
        }
        self.tables.space(space)
    }

    /// Returns the first entry of a key of a unique index.
    fn first(self, sql: impl Fn(bool) -> String, key: &[u8]) -> Result<Option<&'t Row>> {
        let rows = self.txn.lent(&sql(false), &[&key])?;
        if rows.len() > 1 {
            return Ok(self.txn.lent(&sql(true), &[&key])?.first());
        }
        Ok(rows.first())
    }

    /// Returns the position from which a query reads.
    fn place(self, query: &Query) -> Result<Place> {
        let Some(position) = query.position.clone() else { return Ok(Place::Start) };
        let relation = self.relation(query.source)?;
        // The position of the only entry of a unique key is the position of the key, for any primary key.
        if relation.form == Form::Unique {
            let sql = format!(
                "SELECT count(*) FROM (SELECT 1 FROM {} WHERE k = $1 LIMIT 2) e",
                relation.sql
            );
            if number(&self.txn.query(&sql, &[&position.key])?)? == 1 {
                return Ok(Place::Key(position.key, query.inclusive));
            }
        }
        Ok(Place::Entry(position, query.inclusive))
    }

    fn parts(self, query: Query) -> Result<Parts<'t>> {
        let relation = self.relation(query.source)?;
        let place = self.place(&query)?;
        let index = self.tables.schema.index(query.source);
        let is_joined =
            query.rows && index.is_some_and(|index| !matches!(index.strategy, Strategy::Full));
        let size = query.limit.map_or(PART.0, |limit| i64::try_from(limit).unwrap_or(PART.1));
        let left = query.at_most.map_or(i64::MAX, |most| i64::try_from(most).unwrap_or(i64::MAX));
        let (size, is_complete) = (size.min(left).clamp(1, PART.1), false);
        Ok(Parts { reader: self, relation, query, place, is_joined, size, left, is_complete })
    }
}

impl<'t> Read<'t> for Reader<'t> {
    type Entries = Entries<'t>;
    type Cursor = LentEntries<'t>;

    fn table(self) -> &'static TableSchema {
        self.tables.schema
    }

    fn fact(self, primary_key: &[u8]) -> Result<Option<&'t [u8]>> {
        let rows = self.txn.lent(&select::fact(&self.tables.facts), &[&primary_key])?;
        rows.first().map(|row| column(row, 0)).transpose()
    }

    fn facts<'k>(
        self,
        primary_keys: impl Iterator<Item = &'k [u8]>,
        mut each: impl FnMut(Option<&'t [u8]>),
    ) -> Result<()> {
        let keys: Vec<&[u8]> = primary_keys.collect();
        if keys.is_empty() {
            return Ok(());
        }
        let sql = format!("SELECT k, v FROM {} WHERE k = ANY($1)", self.tables.facts.sql);
        let mut found: HashMap<&[u8], &[u8]> = HashMap::with_capacity(keys.len());
        for row in self.txn.lent(&sql, &[&keys])? {
            found.insert(column(row, 0)?, column(row, 1)?);
        }
        for key in keys {
            each(found.get(key).copied());
        }
        Ok(())
    }

    fn facts_at_once(self) -> usize {
        FACTS_AT_ONCE
    }

    fn entry(self, index: usize, key: &[u8], primary_key: &[u8]) -> Result<Option<&'t [u8]>> {
        let relation = self.relation(Source::Index(index))?;
        let sql = format!("SELECT v FROM {} WHERE k = $1 AND p = $2", relation.sql);
        let rows = self.txn.lent(&sql, &[&key, &primary_key])?;
        rows.first().map(|row| column(row, 0)).transpose()
    }

    fn unique(self, index: usize, key: &[u8]) -> Result<Option<ShortEntry<'t>>> {
        let relation = self.relation(Source::Index(index))?;
        let row = self.first(|sorts| select::unique(relation, sorts), key)?;
        row.map(|row| Ok(entry(row, relation.form)?.into())).transpose()
    }

    fn unique_row(self, index: usize, key: &[u8]) -> Result<Option<WithRow<'t>>> {
        let relation = self.relation(Source::Index(index))?;
        let facts = &self.tables.facts;
        let row = self.first(|sorts| select::unique_row(relation, sorts, facts), key)?;
        let Some(row) = row else { return Ok(None) };
        Ok(Some((entry(row, relation.form)?.into(), column(row, 3)?)))
    }

    fn scan(self, query: Query) -> Result<Entries<'t>> {
        Ok(Entries { parts: self.parts(query)?, part: [].iter(), row: None })
    }

    fn cursor(self, query: Query) -> Result<LentEntries<'t>> {
        Ok(LentEntries { parts: self.parts(query)?, part: Vec::new(), at: 0 })
    }

    fn count(self, query: &Query) -> Result<Count> {
        let conditions = Conditions::new(query, &self.place(query)?);
        let limit = query.limit.and_then(|limit| i64::try_from(limit).ok());
        let sql = conditions.count(self.relation(query.source)?, limit.is_some());
        let mut parameters = parameters(&conditions.parameters);
        if let Some(limit) = &limit {
            parameters.push(limit);
        }
        let found = unsigned(number(&self.txn.query(&sql, &parameters)?)?);
        Ok(Count { found, seeks: 1, steps: found })
    }

    fn stored(self, _: Source) -> Result<Option<u64>> {
        Ok(None)
    }

    fn get(self, space: Space, key: &[u8]) -> Result<Option<&'t [u8]>> {
        if let Some(totals) = self.totals(space) {
            return totals.get(key);
        }
        let Some((relation, prefix)) = self.space(space) else { return Ok(None) };
        let sql = format!("SELECT v FROM {} WHERE k = $1", relation.sql);
        let key = [&prefix, key].concat();
        if space.is_catalog() {
            return self.txn.record(self.tables.schema, &key);
        }
        let rows = self.txn.lent(&sql, &[&key])?;
        rows.first().map(|row| column(row, 0)).transpose()
    }

    fn at_or_above(self, space: Space, key: &[u8]) -> Result<Option<(&'t [u8], &'t [u8])>> {
        if let Some(totals) = self.totals(space) {
            return totals.at_or_above(key);
        }
        self.neighbour(space, key, false)
    }

    fn below(self, space: Space, key: &[u8]) -> Result<Option<(&'t [u8], &'t [u8])>> {
        self.neighbour(space, key, true)
    }

    fn records(self, space: Space, from: &[u8], limit: usize) -> Result<SmallRecords<'t>> {
        if self.totals(space).is_some() {
            return one_by_one(self, space, from, limit);
        }
        let Some((relation, prefix)) = self.space(space) else { return Ok(Vec::new()) };
        let sql = format!("SELECT k, v FROM {} WHERE k >= $1 ORDER BY k LIMIT $2", relation.sql);
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let mut records = Vec::new();
        for row in self.txn.lent(&sql, &[&[&prefix, from].concat(), &limit])? {
            let key: &[u8] = column(row, 0)?;
            // After the last record of this table, the records of a later table follow.
            let Some(key) = key.strip_prefix(&*prefix) else { break };
            records.push((key, column(row, 1)?));
        }
        Ok(records)
    }

    fn len(self, space: Space) -> Result<u64> {
        if let Some(totals) = self.totals(space) {
            return totals.count();
        }
        let Some((relation, prefix)) = self.space(space) else { return Ok(0) };
        let sql = format!("SELECT count(*) FROM {} WHERE k >= $1", relation.sql);
        let mut end = prefix.to_vec();
        let rows = if successor(&mut end) {
            self.txn.query(&format!("{sql} AND k < $2"), &[&&*prefix, &end])?
        } else {
            self.txn.query(&sql, &[&&*prefix])?
        };
        number(&rows).map(unsigned)
    }
}

impl<'t> Reader<'t> {
    /// Returns the reference at this position to the table.
    pub(crate) fn referrer(self, at: usize) -> Option<&'t Referrer> {
        self.tables.referrers.get(at).map(|link| &link.by)
    }

    /// Returns the first small record at or after a key, or the last small record before it.
    fn neighbour(
        self,
        space: Space,
        key: &[u8],
        below: bool,
    ) -> Result<Option<(&'t [u8], &'t [u8])>> {
        let Some((relation, prefix)) = self.space(space) else { return Ok(None) };
        let conditions = if below {
            "k < $1 AND k >= $2 ORDER BY k DESC"
        } else {
            "k >= $1 AND k >= $2 ORDER BY k"
        };
        let sql = format!("SELECT k, v FROM {} WHERE {conditions} LIMIT 1", relation.sql);
        let (key, prefix) = ([&prefix, key].concat(), &*prefix);
        let rows = self.txn.lent(&sql, &[&key, &prefix])?;
        let Some(row) = rows.first() else { return Ok(None) };
        let found: &[u8] = column(row, 0)?;
        // After the last record of this table, the records of a later table follow.
        let Some(found) = found.strip_prefix(prefix) else { return Ok(None) };
        Ok(Some((found, column(row, 1)?)))
    }
}

/// Returns the entry of a row of a result.
fn entry(row: &Row, form: Form) -> Result<RawEntry<'_>> {
    if form == Form::Pairs {
        return Ok(RawEntry { key: &[], primary_key: column(row, 0)?, data: column(row, 1)? });
    }
    Ok(RawEntry { key: column(row, 0)?, primary_key: column(row, 1)?, data: column(row, 2)? })
}

/// The parts of a scan. Each part is a separate query, which continues after the previous part.
struct Parts<'t> {
    reader: Reader<'t>,
    relation: &'t Relation,
    query: Query,
    place: Place,
    is_joined: bool,
    /// The maximum number of entries of the next part.
    size: i64,
    /// The maximum number of entries of all further parts.
    left: i64,
    is_complete: bool,
}

impl Parts<'_> {
    /// Returns the next part; an empty one at the end.
    fn next(&mut self) -> Result<Vec<Row>> {
        if self.is_complete {
            return Ok(Vec::new());
        }
        let conditions = Conditions::new(&self.query, &self.place);
        let facts = self.is_joined.then_some(&self.reader.tables.facts);
        let sql = conditions.entries(self.relation, self.query.reverse, facts);
        let mut parameters = parameters(&conditions.parameters);
        parameters.push(&self.size);
        let rows = self.reader.txn.query(&sql, &parameters)?;
        let len = i64::try_from(rows.len()).unwrap_or(i64::MAX);
        self.left = self.left.saturating_sub(len);
        self.is_complete = len < self.size || self.left == 0;
        if let Some(last) = rows.last() {
            self.place = Place::Entry(entry(last, self.relation.form)?.position(), false);
        }
        let bytes: usize = rows.iter().map(Row::raw_size_bytes).sum();
        let fitting = rows.len().saturating_mul(PART_BYTES) / bytes.max(1);
        let fitting = i64::try_from(fitting).unwrap_or(PART.1);
        self.size = self.size.saturating_mul(4).min(fitting).min(self.left).clamp(1, PART.1);
        Ok(rows)
    }

    fn entry<'r>(&self, row: &'r Row) -> Result<RawEntry<'r>> {
        entry(row, self.relation.form)
    }

    fn joined<'r>(&self, row: &'r Row) -> Result<Option<&'r [u8]>> {
        if self.is_joined { column(row, 3) } else { Ok(None) }
    }
}

/// The entries of a scan, which the transaction keeps.
pub(crate) struct Entries<'t> {
    parts: Parts<'t>,
    part: std::slice::Iter<'t, Row>,
    /// The row of the last entry.
    row: Option<&'t [u8]>,
}

impl<'t> Entries<'t> {
    fn step(&mut self) -> Result<Option<RawEntry<'t>>> {
        self.row = None;
        if self.part.len() == 0 {
            let rows = self.parts.next()?;
            if rows.is_empty() {
                return Ok(None);
            }
            self.part = self.parts.reader.txn.keep(rows)?.iter();
        }
        let Some(row) = self.part.next() else { return Ok(None) };
        self.row = self.parts.joined(row)?;
        self.parts.entry(row).map(Some)
    }
}

impl<'t> Iterator for Entries<'t> {
    type Item = EntryResult<'t>;

    fn next(&mut self) -> Option<Self::Item> {
        let step = self.step().map_err(Boxed::from).map(|entry| entry.map(Into::into));
        if step.is_err() {
            self.parts.is_complete = true;
        }
        step.transpose()
    }
}

impl<'t> LongLived<'t> for Entries<'t> {
    fn row(&self) -> Option<&'t [u8]> {
        self.row
    }
}

/// The entries of a scan, each borrowed until the next step. Only one part is in memory.
pub(crate) struct LentEntries<'t> {
    parts: Parts<'t>,
    part: Vec<Row>,
    /// The number of entries of the part that have been returned.
    at: usize,
}

impl LentEntries<'_> {
    fn last(&self) -> Option<&Row> {
        self.part.get(self.at.checked_sub(1)?)
    }
}

impl Cursor for LentEntries<'_> {
    fn advance(&mut self) -> Result<bool, Boxed> {
        if self.at == self.part.len() {
            self.at = 0;
            self.part.clear();
            match self.parts.next() {
                Ok(part) => self.part = part,
                Err(error) => {
                    self.parts.is_complete = true;
                    return Err(error.into());
                }
            }
            if self.part.is_empty() {
                return Ok(false);
            }
        }
        self.at += 1;
        // The columns are checked here, so that the entry needs no check.
        if let Some(row) = self.last() {
            self.parts.entry(row)?;
            self.parts.joined(row)?;
        }
        Ok(true)
    }

    fn entry(&self) -> RawEntry<'_> {
        self.last().and_then(|row| self.parts.entry(row).ok()).unwrap_or(RawEntry::NOWHERE)
    }

    fn row(&self) -> Option<&[u8]> {
        self.last().and_then(|row| self.parts.joined(row).ok()).flatten()
    }
}
