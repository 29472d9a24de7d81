use std::{
    ops::{Bound, RangeBounds},
    sync::Arc,
};

use super::{
    conditions::{Hashed, values_of},
    list::Values,
};
use crate::engine::{KeyList, Query};
use crate::model::{
    End, KeyRange,
    entity::Entity,
    key::{Key, KeyBuf, PrefixKey, hash},
    lists::Lists,
    maintain::Image,
    schema::Source,
};

/// A contiguous range of keys: equal leading fields, and a range, a prefix or no condition for the next
/// field.
///
/// The range of bytes never ends inside of a later field, because an encoding is never a prefix of another.
///
/// For a hashed field, the bytes contain the hash, and the value is kept separately.
#[derive(Debug, Clone)]
pub struct Bounds {
    pub(crate) range: KeyRange,
    hashed: Option<Arc<Hashed>>,
    /// The list of values for the field after `range`, which is then a prefix.
    list: Option<Arc<KeyList>>,
}

impl Bounds {
    /// Creates bounds with all keys.
    #[must_use]
    pub const fn new() -> Self {
        Self { range: KeyRange::ALL, hashed: None, list: None }
    }

    /// Creates bounds with the keys in a range.
    pub(crate) const fn of(range: KeyRange) -> Self {
        Self { range, hashed: None, list: None }
    }

    /// Selects keys whose next field equals `value`.
    #[must_use]
    pub fn equal<T: Key>(mut self, value: T::Arg<'_>) -> Self {
        T::encode(value, &mut self.range.start);
        self.range.end = End::Prefix;
        self
    }

    /// Selects keys of rows of type `R` whose next field, which is hashed, equals `value`.
    #[must_use]
    pub fn hashed<R: Entity, T: Key>(mut self, value: T::Arg<'_>) -> Self {
        let mut encoded = KeyBuf::new();
        T::encode(value, &mut encoded);
        self.range.start.extend(&hash(encoded.as_bytes()));
        self.range.end = End::Prefix;
        self.hashed_of::<R>().values.extend_from_slice(encoded.as_bytes());
        self
    }

    fn hashed_of<R: Entity>(&mut self) -> &mut Hashed {
        let none = || Hashed { values: Vec::new(), list: None, of_row: values_of::<R> };
        Arc::make_mut(self.hashed.get_or_insert_with(|| Arc::new(none())))
    }

    /// Selects keys whose next field equals one of `values`.
    #[must_use]
    pub fn one_of(mut self, values: Values) -> Self {
        self.range.end = End::Prefix;
        self.list = Some(Arc::new(KeyList::of(values.0)));
        self
    }

    /// Selects keys of rows of type `R` whose next field, which is hashed, equals one of `values`.
    #[must_use]
    pub fn one_of_hashed<R: Entity>(mut self, values: Values) -> Self {
        let hashes = values.0.iter().map(|value| Box::from(hash(value))).collect();
        self.hashed_of::<R>().list = Some(Arc::new(KeyList::of(values.0)));
        self.one_of(Values(hashes))
    }

    /// Selects keys whose next field starts with `prefix`.
    #[must_use]
    pub fn starting_with<T: PrefixKey>(mut self, prefix: T::Prefix<'_>) -> Self {
        T::encode_prefix(prefix, &mut self.range.start);
        self.range.end = End::Prefix;
        self
    }

    /// Selects keys whose next field is in `range`, a range of values for both sort orders.
    #[must_use]
    pub fn range<'a, T: Key>(self, range: impl RangeBounds<T::Arg<'a>>) -> Self {
        let (mut first, mut last) = (range.start_bound(), range.end_bound());
        if T::SHAPE.is_descending() {
            std::mem::swap(&mut first, &mut last);
        }
        let Self { range: KeyRange { start: leading, .. }, hashed, .. } = self;
        let key_with = |value: &T::Arg<'a>| {
            let mut key = leading.clone();
            T::encode(*value, &mut key);
            key
        };
        let end = match last {
            Bound::Included(value) => End::after_prefix(&key_with(value)),
            Bound::Excluded(value) => End::Before(key_with(value).as_bytes().to_vec()),
            // Not `Prefix`, because an excluded start may be after all keys with the leading fields.
            Bound::Unbounded => End::after_prefix(&leading),
        };
        let range = match first {
            Bound::Included(value) => KeyRange { start: key_with(value), end },
            Bound::Unbounded => KeyRange { start: leading, end },
            Bound::Excluded(value) => {
                if let End::Before(bytes) = End::after_prefix(&key_with(value)) {
                    let mut start = KeyBuf::new();
                    start.extend(&bytes);
                    KeyRange { start, end }
                } else {
                    // No key is after the greatest value. The range before the empty key is empty.
                    KeyRange { start: leading, end: End::Before(Vec::new()) }
                }
            }
        };
        Self { range, hashed, list: None }
    }

    /// Selects keys whose next field is in `range`, in an index without entries for absent values.
    #[must_use]
    pub fn range_present<'a, T: Key>(self, range: impl RangeBounds<T::Present<'a>>) -> Self {
        let bound = |bound: Bound<&T::Present<'a>>| bound.map(|&value| value.into());
        self.range::<T>((bound(range.start_bound()), bound(range.end_bound())))
    }

    /// Whether a field is hashed, so that its value has to be compared.
    pub(crate) const fn is_hashed(&self) -> bool {
        self.hashed.is_some()
    }

    /// Returns the query within the bounds, and the values of hashed fields.
    #[inline]
    pub(super) fn into_query(self, source: Source) -> (Query, Option<Arc<Hashed>>) {
        let Self { range, hashed, list } = self;
        (Query { list, ..Query::new(source, range) }, hashed)
    }

    /// Creates bounds by the inverse of [`into_query`](Bounds::into_query).
    pub(super) fn of_query(query: Query, hashed: Option<Arc<Hashed>>) -> Self {
        Self { range: query.bounds, hashed, list: query.list }
    }

    /// Whether a row has an entry of `source` within the bounds.
    pub(crate) fn find(&self, lists: &Lists, source: Source, row: &Image) -> bool {
        let is_inside = |key: &[u8]| {
            let listed = |list: &KeyList| list.find(key.get(self.range.start().len()..)?);
            self.range.contains(key) && self.list.as_ref().is_none_or(|list| listed(list).is_some())
        };
        match source {
            Source::Facts => is_inside(row.primary_key()),
            Source::Index(index) => {
                row.keys(index).any(is_inside)
                    && self
                        .hashed
                        .as_ref()
                        .is_none_or(|hashed| hashed.are_of(lists, index, row.row()))
            }
        }
    }
}

impl Default for Bounds {
    fn default() -> Self {
        Self::new()
    }
}
