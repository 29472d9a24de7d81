//! The differences between the rows of a table in two stores, without the type of the rows.

use std::cmp::Ordering;

use super::UntypedTable;
use crate::{
    engine::{Cursor as _, Query, Read as _},
    model::{
        KeyRange,
        error::{Error, Result},
        row::{self, RowValue},
        schema::Source,
    },
    store::ReadTxn,
};

/// A row that differs between two stores.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RowDifference {
    /// Only the first store has the row.
    OnlyInFirst,
    /// Only the second store has the row.
    OnlyInSecond,
    /// Both have the row, and these fields differ, by name. A field is `None` if the row lacks it.
    Changed(Vec<ChangedField>),
}

/// A field that differs between two rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangedField {
    /// Its name in rows; `(version)` for rows of different versions.
    pub name: String,
    /// The value in the first store.
    pub first: Option<RowValue>,
    /// The value in the second store.
    pub second: Option<RowValue>,
}

impl UntypedTable {
    /// Compares the rows with those of a table of another store, in the order of the primary keys. Calls `each` with the encoded primary
    /// key of each row that differs, until it returns false. Returns the number of rows of both stores that were read.
    ///
    /// Rows are equal if their version and the values of all fields are. A field that one row lacks is equal to `None`. The bytes of
    /// rows of the same lists are compared; only those that differ, and rows of other lists, are decoded.
    ///
    /// Cost: one pass over both tables. Memory is used for one row of each, and for what an engine reads ahead.
    ///
    /// # Errors
    ///
    /// [`Error::NotOffered`]: the primary keys have other types. [`Error::Corrupt`]; the
    /// [errors of reading](crate::Error#common-errors), and the errors of `each`.
    pub fn differences<E: From<Error>>(
        &self,
        txn: &ReadTxn<'_>,
        (other, other_txn): (&Self, &ReadTxn<'_>),
        mut each: impl FnMut(&[u8], RowDifference) -> Result<bool, E>,
    ) -> Result<(u64, u64), E> {
        let shapes = |table: &Self| {
            let key = table.primary_key().into_iter();
            key.map(|field| field.shape.to_string()).collect::<Vec<_>>()
        };
        if shapes(self) != shapes(other) {
            let what = "comparing tables whose primary keys have other types";
            return Err(Error::NotOffered { what }.into());
        }
        let has_same_lists = self.has_lists_of(other);
        let all = || Query::new(Source::Facts, KeyRange::ALL);
        let (reader, _) = txn.reader_to_scan(self.open_table(), Source::Facts)?;
        let (other_reader, _) = other_txn.reader_to_scan(other.open_table(), Source::Facts)?;
        let (mut own, mut others) = (reader.cursor(all())?, other_reader.cursor(all())?);
        let mut counts = (0, 0);
        let mut has = (true, true);
        let mut next = (true, true);
        loop {
            if next.0 && has.0 {
                has.0 = own.advance().map_err(Error::from)?;
                counts.0 += u64::from(has.0);
            }
            if next.1 && has.1 {
                has.1 = others.advance().map_err(Error::from)?;
                counts.1 += u64::from(has.1);
            }
            let order = match has {
                (false, false) => return Ok(counts),
                (true, false) => Ordering::Less,
                (false, true) => Ordering::Greater,
                (true, true) => own.entry().primary_key.cmp(others.entry().primary_key),
            };
            next = (order.is_le(), order.is_ge());
            let goes_on = match order {
                Ordering::Less => each(own.entry().primary_key, RowDifference::OnlyInFirst)?,
                Ordering::Greater => each(others.entry().primary_key, RowDifference::OnlyInSecond)?,
                Ordering::Equal => {
                    let (row, other_row) = (own.entry().data, others.entry().data);
                    if has_same_lists && row == other_row {
                        continue;
                    }
                    let key = own.entry().primary_key;
                    let changed = self.changed((row, other, other_row), key)?;
                    changed.is_empty() || each(key, RowDifference::Changed(changed))?
                }
            };
            if !goes_on {
                return Ok(counts);
            }
        }
    }

    /// Whether the numbers of lists mean the same in both tables.
    fn has_lists_of(&self, other: &Self) -> bool {
        let (own, other) = (self.open_table(), other.open_table());
        let (own, other) = (own.rows.lists.catalog(), other.rows.lists.catalog());
        own.extends(other) || other.extends(own)
    }

    /// Returns the fields that differ between two rows.
    fn changed(
        &self,
        (row, other, other_row): (&[u8], &Self, &[u8]),
        key: &[u8],
    ) -> Result<Vec<ChangedField>> {
        let read = |table: &Self, bytes| {
            let open = table.open_table();
            let values = row::values(&open.rows.lists, bytes);
            values.map_err(|error| open.corrupt(Source::Facts, key, error))
        };
        let ((version, own), (other_version, others)) = (read(self, row)?, read(other, other_row)?);
        let mut changed = Vec::new();
        if version != other_version {
            let value = |version: u32| Some(RowValue::Integer(version.into()));
            changed.push(ChangedField {
                name: "(version)".to_owned(),
                first: value(version),
                second: value(other_version),
            });
        }
        let (mut own, mut others) = (own.into_iter().peekable(), others.into_iter().peekable());
        loop {
            let order = match (own.peek(), others.peek()) {
                (None, None) => return Ok(changed),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some((name, _)), Some((other, _))) => name.cmp(other),
            };
            let first = if order.is_le() { own.next() } else { None };
            let second = if order.is_ge() { others.next() } else { None };
            let is_none = |field: &Option<(String, RowValue)>| {
                field.as_ref().is_none_or(|(_, value)| *value == RowValue::Null)
            };
            if first == second || (is_none(&first) && is_none(&second)) {
                continue;
            }
            let name = first.as_ref().or(second.as_ref()).map(|(name, _)| name.clone());
            changed.push(ChangedField {
                name: name.unwrap_or_default(),
                first: first.map(|(_, value)| value),
                second: second.map(|(_, value)| value),
            });
        }
    }
}
