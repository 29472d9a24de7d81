//! The checks of the entries of a query with conditions.

use std::rc::Rc;

use super::{
    DANGLING,
    conditions::{Conditions, Existence, Hashed, ValueSource},
};
use crate::{
    engine::{Cursor as _, EntryResult, LongLived as _, Query},
    model::{
        entity::Form,
        entry::{KeyBuffer, RawEntry},
        error::{Boxed, Result},
        key::{DecodeError, KeyBuf},
        lists::Lists,
        maintain::Image,
        schema::{IndexSchema, Source, TableSchema},
    },
    placement::{Entries, LentEntries, Reader},
    query::meter::Meter,
};

/// Checks the conditions of a query, entry by entry.
pub(super) struct Check<'txn> {
    reader: Reader<'txn>,
    schema: &'static TableSchema,
    source: Source,
    form: Form,
    conditions: Rc<Conditions<'txn>>,
    /// Whether the entries carry the values of hashed fields.
    carried: bool,
    /// Whether the row of each entry is looked up.
    pub(super) looks_up: bool,
    /// The values of hashed fields of the last entry's row.
    values: KeyBuf,
    /// The entries of the last entry's row.
    image: Image,
    /// The row of the last entry, if it was looked up.
    pub(super) fact: Option<&'txn [u8]>,
    /// Whether the query has reached its [`Stop`](super::conditions::Stop), or the bound of a page.
    pub(super) has_stopped: bool,
}

impl<'txn> Check<'txn> {
    /// Creates the check of a query; `None` if there are no conditions.
    #[inline]
    pub(super) fn of(
        reader: Reader<'txn>,
        schema: &'static TableSchema,
        query: &mut Query,
        conditions: Option<&Rc<Conditions<'txn>>>,
    ) -> Option<Box<Self>> {
        conditions.map(|conditions| Self::new(reader, schema, query, Rc::clone(conditions)))
    }

    #[inline(never)]
    fn new(
        reader: Reader<'txn>,
        schema: &'static TableSchema,
        query: &mut Query,
        conditions: Rc<Conditions<'txn>>,
    ) -> Box<Self> {
        let source = query.source;
        let carried = schema.index(source).is_some_and(IndexSchema::carries_hashed);
        let form = Form::of(schema, source);
        let compares = conditions.hashed.is_some() && !carried;
        let looks_up = match conditions.existence {
            Existence::HasEntry(_) => true,
            Existence::Exists => !form.carries_row(),
            Existence::Unknown => !form.carries_row() && (compares || !conditions.tests.is_empty()),
        };
        query.rows |= looks_up;
        Box::new(Self {
            reader,
            schema,
            source,
            form,
            conditions,
            carried,
            looks_up,
            values: KeyBuf::new(),
            image: Image::default(),
            fact: None,
            has_stopped: false,
        })
    }

    /// Returns the next entry that meets the conditions.
    ///
    /// Not inlined, so that a scan without conditions has the cost of a branch, and not of a copy of the
    /// entry.
    #[inline(never)]
    pub(super) fn next(
        &mut self,
        entries: &mut Entries<'txn>,
        meter: &mut Meter<'txn>,
    ) -> Option<EntryResult<'txn>> {
        let mut buffer = KeyBuffer::new();
        while self.allows_step() {
            let entry = match entries.next()? {
                Ok(entry) => entry,
                Err(error) => return Some(Err(error)),
            };
            let whole = entry.in_buffer(&mut buffer);
            if self.stops_before(whole, meter) {
                return None;
            }
            match self.is_met(whole, entries.row(), meter) {
                Ok(true) => return Some(Ok(entry)),
                Ok(false) => meter.pass(),
                Err(error) => return Some(Err(error.into())),
            }
        }
        None
    }

    /// Steps to the next entry that meets the conditions; `false` at the end.
    #[inline(never)]
    pub(super) fn advance(
        &mut self,
        entries: &mut LentEntries<'txn>,
        meter: &mut Meter<'txn>,
    ) -> Result<bool, Boxed> {
        while self.allows_step() && entries.advance()? {
            if self.stops_before(entries.entry(), meter) {
                return Ok(false);
            }
            if self.is_met(entries.entry(), entries.row(), meter)? {
                return Ok(true);
            }
            meter.pass();
        }
        Ok(false)
    }

    /// Whether the bound of a page allows another step.
    fn allows_step(&mut self) -> bool {
        let bound = self.conditions.bound.as_ref();
        self.has_stopped = bound.is_some_and(|bound| !bound.allows_step());
        !self.has_stopped
    }

    fn stops_before(&mut self, entry: RawEntry<'_>, meter: &mut Meter<'txn>) -> bool {
        let Conditions { stop, bound, .. } = &*self.conditions;
        self.has_stopped = stop.as_ref().is_some_and(|stop| stop.is_before(entry))
            || bound.as_ref().is_some_and(|bound| bound.stops_before(entry));
        if self.has_stopped {
            meter.pass();
        }
        self.has_stopped
    }

    /// Whether an entry meets the conditions.
    fn is_met(
        &mut self,
        entry: RawEntry<'_>,
        joined: Option<&[u8]>,
        meter: &mut Meter<'txn>,
    ) -> Result<bool> {
        let conditions = Rc::clone(&self.conditions);
        let (hashed, carried) = (conditions.hashed.as_deref(), self.carried);
        if let Some(hashed) = hashed
            && carried
            && !self.has_values(
                meter.lists(),
                hashed,
                entry,
                ValueSource::Entry(entry, self.form),
            )?
        {
            return Ok(false);
        }
        let row = if !self.looks_up {
            entry.data
        } else if let Some(row) = joined {
            meter.joined(row);
            row
        } else {
            self.fact = meter.look_up(self.reader, entry.primary_key)?;
            let Some(fact) = self.fact else {
                return if self.may_dangle() {
                    Ok(false)
                } else {
                    Err(self.schema.corrupt(self.source, entry.key, DANGLING))
                };
            };
            fact
        };
        if let Some(hashed) = hashed
            && !carried
            && !self.has_values(meter.lists(), hashed, entry, ValueSource::Fact(row))?
        {
            return Ok(false);
        }
        if let Existence::HasEntry(has_entry) = conditions.existence
            && let Source::Index(index) = self.source
            && !has_entry(meter.lists(), &mut self.image, index, entry, row)?
        {
            return Ok(false);
        }
        for test in &conditions.tests {
            if !self.looks_up {
                meter.bytes(row.len());
            }
            if !test(meter.lists(), row).map_err(|error| self.corrupt_row(entry, error))? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn has_values(
        &mut self,
        lists: &Lists,
        hashed: &Hashed,
        entry: RawEntry<'_>,
        from: ValueSource<'_>,
    ) -> Result<bool> {
        let Source::Index(index) = self.source else { return Ok(true) };
        self.values.clear();
        let read = (hashed.of_row)(lists, index, from, &mut self.values);
        read.map_err(|error| self.schema.corrupt_entry(self.source, entry, error))?;
        Ok(hashed.are(self.values.as_bytes()))
    }

    /// Whether entries without a row are allowed, and not damage.
    fn may_dangle(&self) -> bool {
        matches!(self.source, Source::Index(index) if self.schema.is_eventual(index))
    }

    #[cold]
    fn corrupt_row(&self, entry: RawEntry<'_>, error: DecodeError) -> crate::model::error::Error {
        match self.source {
            Source::Index(_) if !self.looks_up => {
                self.schema.corrupt_entry(self.source, entry, error)
            }
            _ => self.schema.corrupt(Source::Facts, entry.primary_key, error),
        }
    }
}
