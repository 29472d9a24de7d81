//! The entries that match a query: the engine's entries that meet its [conditions](Conditions).
//!
//! All queries read their entries through this module.

use std::rc::Rc;

use super::{DANGLING, check::Check, conditions::Conditions, list::Ranges};
use crate::{
    engine::{Cursor as _, EntryResult, LongLived as _, Query, Read},
    model::{
        entity::Form,
        entry::{KeyBuffer, RawEntry},
        error::{Boxed, Result},
        schema::{Source, TableSchema},
    },
    placement::{Entries, LentEntries, Reader},
    query::meter::{Ledger, Meter},
};

/// The entries that match a query. The caller applies the limit and counts the entries.
///
/// `C` is [`Entries`] or [`LentEntries`].
pub(super) struct Matches<'txn, C> {
    entries: C,
    /// The check of the conditions; `None` if the query has none.
    check: Option<Box<Check<'txn>>>,
    /// The remaining ranges of a list; `None` if the query has no list.
    ranges: Option<Box<Ranges>>,
}

impl<C> Matches<'_, C> {
    /// Whether a fact is looked up for each entry.
    pub(super) fn looks_up(&self) -> bool {
        self.check.as_ref().is_some_and(|check| check.looks_up)
    }

    fn has_stopped(&self) -> bool {
        self.check.as_ref().is_some_and(|check| check.has_stopped)
    }
}

impl<'txn> Matches<'txn, Entries<'txn>> {
    /// Runs a query for entries that live as long as the transaction.
    pub(super) fn scan(
        reader: Reader<'txn>,
        schema: &'static TableSchema,
        mut query: Query,
        conditions: Option<&Rc<Conditions<'txn>>>,
        meter: &mut Meter<'txn>,
    ) -> Result<Self> {
        let check = Check::of(reader, schema, &mut query, conditions);
        let ranges = Ranges::split_first(&mut query);
        meter.reads(reader, &query);
        Ok(Self { entries: reader.scan(query)?, check, ranges })
    }

    /// Returns the first entry of the following ranges of a list, when the current range has ended.
    pub(super) fn next_range(
        &mut self,
        reader: Reader<'txn>,
        meter: &mut Meter<'txn>,
    ) -> Option<EntryResult<'txn>> {
        while !self.has_stopped()
            && let Some(query) = self.ranges.as_mut()?.next()
        {
            meter.seek();
            meter.reads(reader, &query);
            match reader.scan(query) {
                Ok(entries) => self.entries = entries,
                Err(error) => return Some(Err(error.into())),
            }
            if let Some(entry) = self.next(meter) {
                return Some(entry);
            }
        }
        None
    }

    /// Returns the next entry. The meter counts the cost of the conditions, and not the entry.
    #[expect(clippy::inline_always, reason = "the entry would be copied once more")]
    #[inline(always)]
    pub(super) fn next(&mut self, meter: &mut Meter<'txn>) -> Option<EntryResult<'txn>> {
        match &mut self.check {
            None => self.entries.next(),
            Some(check) => check.next(&mut self.entries, meter),
        }
    }

    /// Returns the row of the last entry, if the engine has joined it or it was looked up.
    pub(super) fn scanned_row(&self) -> Option<&'txn [u8]> {
        self.entries.row().or_else(|| self.check.as_ref().and_then(|check| check.fact))
    }
}

impl<'txn> Matches<'txn, LentEntries<'txn>> {
    /// Runs a query for entries that are lent until the next step.
    pub(super) fn cursor(
        reader: Reader<'txn>,
        schema: &'static TableSchema,
        mut query: Query,
        conditions: Option<&Rc<Conditions<'txn>>>,
        meter: &mut Meter<'txn>,
    ) -> Result<Self> {
        let check = Check::of(reader, schema, &mut query, conditions);
        let ranges = Ranges::split_first(&mut query);
        meter.reads(reader, &query);
        Ok(Self { entries: reader.cursor(query)?, check, ranges })
    }

    /// Steps to the first entry of the following ranges of a list, when the current range has ended; `false`
    /// at the end.
    pub(super) fn advance_range(
        &mut self,
        reader: Reader<'txn>,
        meter: &mut Meter<'txn>,
    ) -> Result<bool, Boxed> {
        while !self.has_stopped()
            && let Some(query) = self.ranges.as_mut().and_then(Iterator::next)
        {
            meter.seek();
            meter.reads(reader, &query);
            self.entries = reader.cursor(query)?;
            if self.advance(meter)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Steps to the next entry; `false` at the end. The meter counts the cost of the conditions, and not the
    /// entry.
    #[expect(clippy::inline_always, reason = "it would cost a call for each entry")]
    #[inline(always)]
    pub(super) fn advance(&mut self, meter: &mut Meter<'txn>) -> Result<bool, Boxed> {
        match &mut self.check {
            None => self.entries.advance(),
            Some(check) => check.advance(&mut self.entries, meter),
        }
    }

    /// Returns the entry of the last step.
    #[inline]
    pub(super) fn entry(&self) -> RawEntry<'_> {
        self.entries.entry()
    }

    /// Returns the row of this entry, if the engine has joined it or it was looked up.
    #[inline]
    pub(super) fn row(&self) -> Option<&[u8]> {
        self.entries.row().or_else(|| self.check.as_ref().and_then(|check| check.fact))
    }
}

/// Counts the entries that match a query, up to its limit.
pub(super) fn count<'txn>(
    reader: Reader<'txn>,
    schema: &'static TableSchema,
    meter: &mut Meter<'txn>,
    query: Query,
    conditions: Option<&Rc<Conditions<'txn>>>,
) -> Result<u64> {
    if conditions.is_none() {
        meter.counts(reader, &query);
        let count = reader.count(&query)?;
        meter.count(count);
        return Ok(count.found);
    }
    let limit = query.limit.unwrap_or(u64::MAX);
    meter.seek();
    let mut matches = Matches::cursor(reader, schema, query, conditions, meter)?;
    let mut count = 0;
    while count < limit && matches.advance(meter)? {
        meter.step();
        count += 1;
    }
    Ok(count)
}

/// Returns the row with this key in a unique index. One look-up replaces the cursor of a scan.
#[inline]
pub(crate) fn row_by<'txn>(
    reader: Reader<'txn>,
    schema: &'static TableSchema,
    ledger: Ledger<'txn>,
    source: Source,
    key: &[u8],
) -> Result<Option<&'txn [u8]>> {
    let Source::Index(index) = source else { return reader.fact(key) };
    let mut meter = ledger.point(source);
    meter.seek();
    let row = match Form::of(schema, source) {
        Form::Fact | Form::FullEntry => {
            let Some(entry) = reader.unique(index, key)? else { return Ok(None) };
            meter.step();
            entry.data
        }
        Form::PartialEntry | Form::Entry => {
            let Some((entry, joined)) = reader.unique_row(index, key)? else { return Ok(None) };
            meter.step();
            meter.fact();
            let fact = match joined {
                Some(row) => Some(row),
                None => reader.fact(entry.primary_key.in_buffer(&mut KeyBuffer::new()))?,
            };
            fact.ok_or_else(|| schema.corrupt(source, key, DANGLING))?
        }
    };
    meter.bytes(row.len());
    Ok(Some(row))
}
