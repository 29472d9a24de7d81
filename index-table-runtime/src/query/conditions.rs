//! The conditions on an entry beside a key within the bounds.

use std::{cmp::Ordering, rc::Rc, sync::Arc};

use crate::{
    engine::KeyList,
    model::{
        entity::{Entity, EntryReader, Form},
        entry::{Position, RawEntry},
        error::Result,
        key::{DecodeError, KeyBuf, Unescaped},
        maintain::Image,
        row,
        schema::Source,
    },
};

/// The conditions on each entry of a query, beside its bounds.
#[derive(Clone, Default)]
pub(super) struct Conditions<'txn> {
    /// The values of hashed fields.
    pub(super) hashed: Option<Arc<Hashed>>,
    /// The tests of [`Scan::filter`](super::Scan::filter).
    pub(super) tests: Vec<RowTest<'txn>>,
    /// Where the query ends before the end of its bounds.
    pub(super) stop: Option<Stop>,
    pub(super) existence: Existence,
}

/// The end of a query at the gap of a cursor. No engine knows it.
#[derive(Clone)]
pub(super) struct Stop {
    /// That of the entry that the cursor was made from.
    pub(super) position: Position,
    /// The position is that of the key alone, because the index has one entry for each key.
    pub(super) by_key: bool,
    /// The entry at the position still belongs to the query.
    pub(super) inclusive: bool,
    /// The direction of the query.
    pub(super) reverse: bool,
}

impl Stop {
    /// Whether the query has ended when it comes to this entry.
    pub(super) fn is_before(&self, entry: RawEntry<'_>) -> bool {
        let Position { key, primary_key } = &self.position;
        let mut order = entry.key.cmp(key);
        if !self.by_key {
            order = order.then_with(|| entry.primary_key.cmp(primary_key));
        }
        match if self.reverse { order.reverse() } else { order } {
            Ordering::Less => false,
            Ordering::Equal => !self.inclusive,
            Ordering::Greater => true,
        }
    }
}

/// Whether the row of an entry has to be there. Only entries of eventual indexes are without a row, or older than
/// it; of other indexes, such entries are damage.
#[derive(Clone, Copy, Default)]
pub(super) enum Existence {
    /// Nobody reads it.
    #[default]
    Unknown,
    /// It is read: an entry without a row is left out.
    Exists,
    /// The row still has the entry.
    HasEntry(HasEntry),
}

/// [`has_entry`] of a type of row.
pub(super) type HasEntry = fn(&mut Image, usize, RawEntry<'_>, &[u8]) -> Result<bool>;

/// Whether the row with these bytes has the key of an entry of the index at this position.
pub(super) fn has_entry<R: Entity>(
    image: &mut Image,
    index: usize,
    entry: RawEntry<'_>,
    fact: &[u8],
) -> Result<bool> {
    let row: R = row::decode(fact)
        .map_err(|error| R::TABLE.corrupt(Source::Facts, entry.primary_key, error))?;
    image.load_stored_of(&row, fact, index)?;
    Ok(image.keys(index).any(|key| key == entry.key))
}

/// A test of the bytes of a row.
pub(super) type RowTest<'txn> = Rc<dyn Fn(&[u8]) -> Result<bool, DecodeError> + 'txn>;

/// A test of a row as a test of its bytes.
pub(super) fn row_test<'txn, R: Entity>(test: impl Fn(&R) -> bool + 'txn) -> RowTest<'txn> {
    Rc::new(move |bytes| Ok(test(&row::decode(bytes)?)))
}

impl<'txn> Conditions<'txn> {
    /// `None` if there are no conditions.
    #[inline]
    pub(super) fn of(hashed: Option<Arc<Hashed>>) -> Option<Rc<Self>> {
        hashed.map(|hashed| Rc::new(Self { hashed: Some(hashed), ..Self::default() }))
    }

    /// Adds to the conditions of a query.
    pub(super) fn add(conditions: &mut Option<Rc<Self>>, tests: &[RowTest<'txn>]) {
        if !tests.is_empty() {
            let conditions = Rc::make_mut(conditions.get_or_insert_default());
            conditions.tests.extend_from_slice(tests);
        }
    }

    /// The conditions without the tests, and the tests.
    pub(super) fn without_tests(
        conditions: Option<Rc<Self>>,
    ) -> (Option<Rc<Self>>, Vec<RowTest<'txn>>) {
        let Some(conditions) = conditions else { return (None, Vec::new()) };
        let mut others = Self::of(conditions.hashed.clone());
        if !matches!(conditions.existence, Existence::Unknown) {
            Self::require(&mut others, conditions.existence);
        }
        (others, conditions.tests.clone())
    }

    /// Ends a query sooner.
    pub(super) fn stop(conditions: &mut Option<Rc<Self>>, stop: Stop) {
        Rc::make_mut(conditions.get_or_insert_default()).stop = Some(stop);
    }

    /// Requires the row of each entry.
    pub(super) fn require(conditions: &mut Option<Rc<Self>>, existence: Existence) {
        Rc::make_mut(conditions.get_or_insert_default()).existence = existence;
    }
}

/// The values that a query gives for hashed fields.
#[derive(Debug, Clone)]
pub(super) struct Hashed {
    /// Their encodings, in the order of the key. Each is self-delimiting, so a row has these values if its
    /// own encodings start with these bytes, even if more of its fields are hashed.
    pub(super) values: Vec<u8>,
    /// The list of values of one more field, behind the others.
    pub(super) list: Option<Arc<KeyList>>,
    pub(super) of_row: ValuesOf,
}

impl Hashed {
    /// Whether the row with these bytes has these values.
    pub(super) fn are_of(&self, index: usize, row: &[u8]) -> bool {
        let mut values = KeyBuf::new();
        let read = (self.of_row)(index, ValueSource::Fact(row), &mut values);
        read.is_ok() && self.are(values.as_bytes())
    }

    /// Whether a row has these values, if all are given.
    pub(super) fn are(&self, values: &[u8]) -> bool {
        match (&self.list, values.strip_prefix(self.values.as_slice())) {
            (_, None) => false,
            (None, Some(_)) => true,
            (Some(list), Some(rest)) => list.find(rest).is_some(),
        }
    }
}

/// [`values_of`] a type of row.
pub(super) type ValuesOf = fn(usize, ValueSource<'_>, &mut KeyBuf) -> Result<(), DecodeError>;

/// The place of the hashed values of a row.
#[derive(Debug, Clone, Copy)]
pub(super) enum ValueSource<'a> {
    Fact(&'a [u8]),
    /// An entry that carries them.
    Entry(RawEntry<'a>, Form),
}

/// Appends the encodings of the fields that the index at this position hashes.
pub(super) fn values_of<R: Entity>(
    index: usize,
    source: ValueSource<'_>,
    values: &mut KeyBuf,
) -> Result<(), DecodeError> {
    match source {
        ValueSource::Fact(bytes) => row::decode::<R>(bytes).map(|row| row.hashed(index, values)),
        ValueSource::Entry(entry, form) => {
            let unescaped = Unescaped::default();
            R::hashed_in_entry(index, EntryReader::new::<R>(entry, form, &unescaped)?, values)
        }
    }
}
