//! The conditions on the entries of a query, in addition to its bounds.

use std::{cmp::Ordering, rc::Rc, sync::Arc};

use super::bounded::ExamineBound;
use crate::{
    engine::KeyList,
    model::{
        entity::{Entity, EntryContext, EntryReader, Form},
        entry::{Position, RawEntry},
        error::Result,
        key::{DecodeError, KeyBuf, Unescaped},
        lists::Lists,
        maintain::Image,
        row::{self, Body},
        schema::Source,
    },
};

/// The conditions on each entry of a query, in addition to its bounds.
#[derive(Clone, Default)]
pub(super) struct Conditions<'txn> {
    /// The values of hashed fields.
    pub(super) hashed: Option<Arc<Hashed>>,
    /// The tests of [`Scan::filter`](super::Scan::filter).
    pub(super) tests: Vec<RowTest<'txn>>,
    /// The end of the query before the end of its bounds.
    pub(super) stop: Option<Stop>,
    /// The bound of the entries that a page examines.
    pub(super) bound: Option<Rc<ExamineBound>>,
    pub(super) existence: Existence,
}

/// The end of a query at the gap of a cursor, which engines don't implement.
#[derive(Clone)]
pub(super) struct Stop {
    /// The position of the entry from which the cursor was made.
    pub(super) position: Position,
    /// Whether only keys are compared, because the index has one entry per key.
    pub(super) by_key: bool,
    /// Whether the entry at the position belongs to the query.
    pub(super) inclusive: bool,
    /// The direction of the query.
    pub(super) reverse: bool,
}

impl Stop {
    /// Whether the query ends before this entry.
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

/// The required relation between an entry and its row. Only an entry of an eventual index may have no row, or
/// be older than its row; in other indexes, such entries are damage.
#[derive(Clone, Copy, Default)]
pub(super) enum Existence {
    /// The row is not read.
    #[default]
    Unknown,
    /// The row is read, and entries without a row are left out.
    Exists,
    /// The row must still have the entry.
    HasEntry(HasEntry),
}

/// [`has_entry`] of a row type.
pub(super) type HasEntry = fn(&Lists, &mut Image, usize, RawEntry<'_>, &[u8]) -> Result<bool>;

/// Whether the row with these bytes has the key of an entry of the index at this position.
pub(super) fn has_entry<R: Entity>(
    lists: &Lists,
    image: &mut Image,
    index: usize,
    entry: RawEntry<'_>,
    fact: &[u8],
) -> Result<bool> {
    let row: R = row::decode(lists, fact)
        .map_err(|error| R::TABLE.corrupt(Source::Facts, entry.primary_key, error))?;
    image.load_index_keys(&row, index)?;
    Ok(image.keys(index).any(|key| key == entry.key))
}

/// A test of the bytes of a row.
pub(super) type RowTest<'txn> = Rc<dyn Fn(&Lists, &[u8]) -> Result<bool, DecodeError> + 'txn>;

/// Converts a test of a row to a test of its bytes.
pub(super) fn row_test<'txn, R: Entity>(test: impl Fn(&R) -> bool + 'txn) -> RowTest<'txn> {
    Rc::new(move |lists, bytes| Ok(test(&row::decode(lists, bytes)?)))
}

impl<'txn> Conditions<'txn> {
    /// Creates conditions with these values of hashed fields; `None` without them.
    #[inline]
    pub(super) fn of(hashed: Option<Arc<Hashed>>) -> Option<Rc<Self>> {
        hashed.map(|hashed| Rc::new(Self { hashed: Some(hashed), ..Self::default() }))
    }

    /// Adds tests to the conditions of a query.
    pub(super) fn add(conditions: &mut Option<Rc<Self>>, tests: &[RowTest<'txn>]) {
        if !tests.is_empty() {
            let conditions = Rc::make_mut(conditions.get_or_insert_default());
            conditions.tests.extend_from_slice(tests);
        }
    }

    /// Separates the tests from the other conditions.
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

    /// Ends a query at a stop.
    pub(super) fn stop(conditions: &mut Option<Rc<Self>>, stop: Stop) {
        Rc::make_mut(conditions.get_or_insert_default()).stop = Some(stop);
    }

    /// Bounds the entries that a page examines.
    pub(super) fn bound(conditions: &mut Option<Rc<Self>>, bound: ExamineBound) {
        Rc::make_mut(conditions.get_or_insert_default()).bound = Some(Rc::new(bound));
    }

    /// Sets the required relation between entries and rows.
    pub(super) fn require(conditions: &mut Option<Rc<Self>>, existence: Existence) {
        Rc::make_mut(conditions.get_or_insert_default()).existence = existence;
    }
}

/// A query's values for hashed fields.
#[derive(Debug, Clone)]
pub(super) struct Hashed {
    /// The encodings of the values, in the order of the key. Encodings are self-delimiting, so a row has
    /// these values if the encodings of its hashed fields start with these bytes, even if more fields are
    /// hashed.
    pub(super) values: Vec<u8>,
    /// The list of values of one more field, after the others.
    pub(super) list: Option<Arc<KeyList>>,
    pub(super) of_row: ValuesOf,
}

impl Hashed {
    /// Whether the row with these bytes has these values.
    pub(super) fn are_of(&self, lists: &Lists, index: usize, row: &[u8]) -> bool {
        let mut values = KeyBuf::new();
        let read = (self.of_row)(lists, index, ValueSource::Fact(row), &mut values);
        read.is_ok() && self.are(values.as_bytes())
    }

    /// Whether the encodings of a row's hashed fields match these values.
    pub(super) fn are(&self, values: &[u8]) -> bool {
        match (&self.list, values.strip_prefix(self.values.as_slice())) {
            (_, None) => false,
            (None, Some(_)) => true,
            (Some(list), Some(rest)) => list.find(rest).is_some(),
        }
    }
}

/// [`values_of`] of a row type.
pub(super) type ValuesOf =
    fn(&Lists, usize, ValueSource<'_>, &mut KeyBuf) -> Result<(), DecodeError>;

/// The source of the values of a row's hashed fields.
#[derive(Debug, Clone, Copy)]
pub(super) enum ValueSource<'a> {
    Fact(&'a [u8]),
    /// An entry that carries the values.
    Entry(RawEntry<'a>, Form),
}

/// Writes the encodings of the fields that the index at this position hashes into an empty buffer.
pub(super) fn values_of<R: Entity>(
    lists: &Lists,
    index: usize,
    source: ValueSource<'_>,
    values: &mut KeyBuf,
) -> Result<(), DecodeError> {
    match source {
        ValueSource::Fact(bytes) => {
            row::decode::<R>(lists, bytes).map(|row| row.hashed(index, values))
        }
        ValueSource::Entry(entry, form) => {
            let unescaped = &Unescaped::default();
            let context = EntryContext { lists, unescaped, body: const { Body::of::<R>() } };
            EntryReader::read(entry.into(), form, context, |entry| {
                values.clear();
                R::hashed_in_entry(index, entry, values)
            })
        }
    }
}
