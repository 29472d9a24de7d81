//! Aggregates: the count of the rows and the sums of some fields, for each group of rows. This code is pure.

mod summand;
#[cfg(test)]
mod tests;

pub use summand::Summand;

use std::slice;

use crate::model::{
    entity::Entity,
    error::Error,
    key::{DecodeError, Key, KeyReader, Unescaped},
    schema::{AggregateSchema, SumSchema, TableSchema, key_of_group},
};

/// The key of the only group of an aggregate without fields. Databases have no empty keys.
pub(crate) const WHOLE_TABLE: &[u8] = &[0];

/// The length of a count, in bytes.
const COUNT_LEN: usize = size_of::<u64>();

/// The length of a sum, in bytes.
const SUM_LEN: usize = size_of::<i128>();

/// The reason why bytes are no record.
const WRONG: DecodeError = DecodeError::Value("no count and sums");

/// The struct with the totals of a group. Only the derive implements it.
pub trait Aggregate: Sized {
    /// The row type.
    type Row: Entity;

    /// The position among the aggregates.
    const POSITION: usize;

    /// Reads the fields of the group from its key, and takes the totals.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if the bytes are not such a key.
    fn read(group: &mut KeyReader<'_>, totals: &Totals) -> Result<Self, DecodeError>;
}

/// The count and the sums of a group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Totals {
    count: i128,
    sums: Vec<Sum>,
    /// The keys of the extremes, from the field on.
    extremes: Vec<Option<Vec<u8>>>,
}

/// A sum, which may temporarily be out of range, so that the order of its summands doesn't matter.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Sum {
    low: i128,
    /// The number of overflows minus the number of underflows.
    carry: i64,
}

impl Sum {
    fn add(&mut self, value: i128) {
        let (low, overflowed) = self.low.overflowing_add(value);
        self.low = low;
        self.carry += i64::from(overflowed) * if value < 0 { -1 } else { 1 };
    }

    fn subtract(&mut self, value: i128) {
        let (low, overflowed) = self.low.overflowing_sub(value);
        self.low = low;
        self.carry += i64::from(overflowed) * if value < 0 { 1 } else { -1 };
    }
}

/// The reason why totals have no record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unrecordable {
    /// A sum, or the count, is out of range.
    Overflow,
    /// The count is negative, or rows are missing.
    Negative,
}

impl Totals {
    /// Returns the number of rows.
    #[must_use]
    pub fn count(&self) -> u64 {
        u64::try_from(self.count).unwrap_or_default()
    }

    /// Returns the sums, in the order of their declaration.
    #[must_use]
    pub fn sums(&self) -> Sums<'_> {
        Sums(self.sums.iter())
    }

    /// Returns the extreme at this position; `None` without rows.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if the bytes of the index are not such a field.
    pub fn extreme<T: Key>(&self, position: usize) -> Result<Option<T>, DecodeError> {
        let Some(Some(key)) = self.extremes.get(position) else { return Ok(None) };
        let unescaped = Unescaped::default();
        T::decode_owned(&mut KeyReader::new(key, &unescaped)).map(Some)
    }

    /// Adds the key of the next extreme, from the field on.
    pub(crate) fn push_extreme(&mut self, key: Option<&[u8]>) {
        self.extremes.push(key.map(<[u8]>::to_vec));
    }

    /// Decodes a record; an absent one has no rows.
    pub(crate) fn decode(
        record: Option<&[u8]>,
        declared: &AggregateSchema,
    ) -> Result<Self, DecodeError> {
        let sums = declared.parts();
        let Some(record) = record else {
            let sums = vec![Sum::default(); sums];
            return Ok(Self { sums, ..Self::default() });
        };
        if record.len() != COUNT_LEN + sums * SUM_LEN {
            return Err(WRONG);
        }
        let (count, rest) = record.split_first_chunk().ok_or(WRONG)?;
        let sums = numbers(rest).map(|low| Sum { low, carry: 0 }).collect();
        let count = if declared.eventual {
            i64::from_be_bytes(*count).into()
        } else {
            u64::from_be_bytes(*count).into()
        };
        Ok(Self { count, sums, ..Self::default() })
    }

    /// Adds a row with these summands, from an [`EntryBuffer`](crate::model::maintain::EntryBuffer).
    pub(crate) fn add(&mut self, summands: &[u8]) {
        self.count += 1;
        self.each(summands, Sum::add);
    }

    /// Removes a row with these summands.
    pub(crate) fn remove(&mut self, summands: &[u8]) {
        self.count -= 1;
        self.each(summands, Sum::subtract);
    }

    /// Adds the totals of other rows.
    pub(crate) fn add_all(&mut self, other: &Self) {
        self.count += other.count;
        if self.sums.len() < other.sums.len() {
            self.sums.resize(other.sums.len(), Sum::default());
        }
        for (sum, other) in self.sums.iter_mut().zip(&other.sums) {
            sum.add(other.low);
            sum.carry += other.carry;
        }
    }

    /// Removes the totals of other rows.
    pub(crate) fn remove_all(&mut self, other: &Self) {
        self.count -= other.count;
        if self.sums.len() < other.sums.len() {
            self.sums.resize(other.sums.len(), Sum::default());
        }
        for (sum, other) in self.sums.iter_mut().zip(&other.sums) {
            sum.subtract(other.low);
            sum.carry -= other.carry;
        }
    }

    fn each(&mut self, summands: &[u8], change: fn(&mut Sum, i128)) {
        let len = summands.len() / SUM_LEN;
        if self.sums.len() < len {
            self.sums.resize(len, Sum::default());
        }
        for (sum, summand) in self.sums.iter_mut().zip(numbers(summands)) {
            change(sum, summand);
        }
    }

    /// Returns the record of the totals; `None` if there are no rows.
    pub(crate) fn record(
        &self,
        declared: &AggregateSchema,
    ) -> Result<Option<Vec<u8>>, Unrecordable> {
        // Some changes of an eventual aggregate are applied before earlier changes of the same rows.
        if self.count < 0 && !declared.eventual {
            return Err(Unrecordable::Negative);
        }
        let count = if declared.eventual {
            i64::try_from(self.count).map(i64::to_be_bytes)
        } else {
            u64::try_from(self.count).map(u64::to_be_bytes)
        };
        let count = count.map_err(|_| Unrecordable::Overflow)?;
        if !self.is_in_range(declared) {
            return Err(Unrecordable::Overflow);
        }
        if self.count == 0 {
            if self.is_zero() {
                return Ok(None);
            }
            if !declared.eventual {
                return Err(Unrecordable::Negative);
            }
        }
        let mut record = Vec::with_capacity(COUNT_LEN + self.sums.len() * SUM_LEN);
        record.extend_from_slice(&count);
        for sum in &self.sums {
            record.extend_from_slice(&sum.low.to_be_bytes());
        }
        Ok(Some(record))
    }

    /// Returns totals without a record, which don't agree with any rows.
    #[cfg(feature = "postgres")]
    pub(crate) fn unreadable() -> Self {
        Self { count: i128::from(i64::MIN), ..Self::default() }
    }

    /// Returns the record of a change of totals: the count, which can be negative, and the sums. The overflows of the sums
    /// follow if there are any.
    #[cfg(feature = "postgres")]
    pub(crate) fn stripe(&self, declared: &AggregateSchema) -> Vec<u8> {
        let count = i64::try_from(self.count).unwrap_or(i64::MIN);
        let mut stripe = count.to_be_bytes().to_vec();
        let sums =
            || (0..declared.parts()).map(|at| self.sums.get(at).copied().unwrap_or_default());
        sums().for_each(|sum| stripe.extend_from_slice(&sum.low.to_be_bytes()));
        if sums().any(|sum| sum.carry != 0) {
            sums().for_each(|sum| stripe.extend_from_slice(&sum.carry.to_be_bytes()));
        }
        stripe
    }

    /// Decodes the record of a change of totals. The record of totals is also the record of a change from nothing.
    #[cfg(feature = "postgres")]
    pub(crate) fn of_stripe(
        stripe: &[u8],
        declared: &AggregateSchema,
    ) -> Result<Self, DecodeError> {
        let (count, rest) = stripe.split_first_chunk().ok_or(WRONG)?;
        let (lows, carries) = rest.split_at_checked(declared.parts() * SUM_LEN).ok_or(WRONG)?;
        if !carries.is_empty() && carries.len() != declared.parts() * size_of::<i64>() {
            return Err(WRONG);
        }
        let (carries, _) = carries.as_chunks();
        let mut carries = carries.iter().map(|carry| i64::from_be_bytes(*carry));
        let sums = numbers(lows).map(|low| Sum { low, carry: carries.next().unwrap_or_default() });
        let count = i64::from_be_bytes(*count).into();
        Ok(Self { count, sums: sums.collect(), ..Self::default() })
    }

    /// Whether the count and all sums are zero.
    pub(crate) fn is_zero(&self) -> bool {
        self.count == 0 && self.sums.iter().all(|sum| sum.low == 0 && sum.carry == 0)
    }

    /// Whether the group has rows. The record of an eventual aggregate can lag behind and count fewer than none.
    pub(crate) fn has_rows(&self) -> bool {
        self.count > 0
    }

    /// Whether both are the totals of the same rows. Totals without rows may have no sums yet.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let mut difference = self.clone();
        difference.remove_all(other);
        difference.is_zero()
    }

    /// Whether each sum is in range.
    pub(crate) fn is_in_range(&self, declared: &AggregateSchema) -> bool {
        self.sums.iter().all(|sum| sum.carry == 0)
            && self.declared(declared).all(|(sum, parts)| sum.has(parts))
    }

    /// Formats the totals for findings.
    pub(crate) fn show(&self, declared: &AggregateSchema) -> String {
        let sums = self.declared(declared).map(|(sum, parts)| sum.show(parts));
        sums.fold(format!("{} rows", self.count), |shown, sum| format!("{shown}, sum {sum}"))
    }

    /// Returns the declared sums, each with its integers. The second integer of a sum of integers is 0.
    fn declared<'t>(
        &'t self,
        declared: &'t AggregateSchema,
    ) -> impl Iterator<Item = (SumSchema, [i128; 2])> {
        let mut parts = self.sums.iter().map(|sum| sum.low);
        declared.sums.iter().map(move |sum| {
            let whole = parts.next().unwrap_or_default();
            let fraction = if sum.is_decimal() { parts.next() } else { None };
            (*sum, [whole, fraction.unwrap_or_default()])
        })
    }
}

/// The sums of a group, which are read in the order of their declaration.
#[derive(Debug)]
pub struct Sums<'t>(slice::Iter<'t, Sum>);

impl Sums<'_> {
    /// Returns the next sum.
    pub fn next<T: Summand>(&mut self) -> T::Sum {
        T::sum(|| self.0.next().map_or(0, |sum| sum.low))
    }
}

/// Appends a summand.
pub(crate) fn push_summand(summand: i128, out: &mut Vec<u8>) {
    out.extend_from_slice(&summand.to_be_bytes());
}

fn numbers(bytes: &[u8]) -> impl Iterator<Item = i128> {
    let (numbers, _) = bytes.as_chunks();
    numbers.iter().map(|number| i128::from_be_bytes(*number))
}

impl AggregateSchema {
    /// Formats the key of a group for errors.
    pub(crate) fn show(&self, group: &[u8]) -> String {
        if self.key.is_empty() { "()".to_owned() } else { key_of_group(self.key, group) }
    }

    /// Returns the error for a record that can't be decoded, or that doesn't agree with the rows.
    #[cold]
    pub(crate) fn corrupt(&self, schema: &TableSchema, group: &[u8], error: DecodeError) -> Error {
        error.at(schema.name, Some(self.name), self.show(group))
    }

    /// Returns the error for totals without a record.
    #[cold]
    pub(crate) fn unrecordable(
        &self,
        schema: &TableSchema,
        group: &[u8],
        reason: Unrecordable,
    ) -> Error {
        match reason {
            Unrecordable::Overflow => Error::AggregateOverflow {
                table: schema.name,
                aggregate: self.name,
                key: self.show(group),
            },
            Unrecordable::Negative => {
                let reason = "the totals don't agree with the rows; `repair` corrects them";
                self.corrupt(schema, group, DecodeError::Value(reason))
            }
        }
    }

    /// Reads the totals of a group into their struct.
    pub(crate) fn read<A: Aggregate>(&self, group: &[u8], totals: &Totals) -> crate::Result<A> {
        let schema = A::Row::TABLE;
        if !totals.is_in_range(self) {
            return Err(self.unrecordable(schema, group, Unrecordable::Overflow));
        }
        let unescaped = Unescaped::default();
        let mut reader = KeyReader::new(group, &unescaped);
        A::read(&mut reader, totals).map_err(|error| self.corrupt(schema, group, error))
    }
}
