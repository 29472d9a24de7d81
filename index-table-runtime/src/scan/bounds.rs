use std::{
    ops::{Bound, RangeBounds},
    sync::Arc,
};

use super::found::{Hashed, values_of};
use crate::{
    entity::Entity,
    key::{Key, KeyBuf, PrefixKey, hash, successor},
    maintain::Image,
    schema::Source,
};

/// A contiguous block of keys: what is equal in the leading fields, and a range, a prefix or
/// nothing in the next.
///
/// As bytes: from `start` on, as far as `end` says. Neither ever cuts through a field that
/// follows the ones given, because an encoding is never a prefix of another one.
///
/// A hashed field is asked for by its hash, which the bytes have, and by its value, which they don't.
#[derive(Debug, Clone)]
pub struct Bounds {
    start: KeyBuf,
    end: End,
    hashed: Option<Arc<Hashed>>,
}

#[derive(Debug, Clone)]
enum End {
    /// As long as the key begins with `start`.
    Prefix,
    /// Up to, and without, these bytes.
    Before(Vec<u8>),
    /// To the last key.
    Open,
}

impl Bounds {
    /// Every key.
    #[must_use]
    pub const fn new() -> Self {
        Self { start: KeyBuf::new(), end: End::Prefix, hashed: None }
    }

    /// Keys whose next field equals `value`.
    #[must_use]
    pub fn equal<T: Key>(mut self, value: T::Arg<'_>) -> Self {
        T::encode(value, &mut self.start);
        self.end = End::Prefix;
        self
    }

    /// Keys of rows of type `R` whose next field, which is hashed, equals `value`.
    #[must_use]
    pub fn hashed<R: Entity, T: Key>(mut self, value: T::Arg<'_>) -> Self {
        let mut encoded = KeyBuf::new();
        T::encode(value, &mut encoded);
        self.start.extend(&hash(encoded.as_bytes()));
        self.end = End::Prefix;
        let asked = self
            .hashed
            .get_or_insert_with(|| Arc::new(Hashed { values: Vec::new(), of_row: values_of::<R> }));
        Arc::make_mut(asked).values.extend_from_slice(encoded.as_bytes());
        self
    }

    /// Keys whose next field starts with `prefix`.
    #[must_use]
    pub fn starting_with<T: PrefixKey>(mut self, prefix: T::Arg<'_>) -> Self {
        T::encode_prefix(prefix, &mut self.start);
        self.end = End::Prefix;
        self
    }

    /// Keys whose next field is in `range`: a range of values, whichever way they are sorted.
    #[must_use]
    pub fn range<'a, T: Key>(self, range: impl RangeBounds<T::Arg<'a>>) -> Self {
        let (mut first, mut last) = (range.start_bound(), range.end_bound());
        if T::SHAPE.is_descending() {
            std::mem::swap(&mut first, &mut last);
        }
        let (leading, hashed) = (self.start, self.hashed);
        let with = |value: &T::Arg<'a>| {
            let mut key = leading.clone();
            T::encode(*value, &mut key);
            key
        };
        let end = match last {
            Bound::Included(value) => End::behind(&with(value)),
            Bound::Excluded(value) => End::Before(with(value).as_bytes().to_vec()),
            // Not `Prefix`: an excluded start may have left the leading fields behind.
            Bound::Unbounded => End::behind(&leading),
        };
        match first {
            Bound::Included(value) => Self { start: with(value), end, hashed },
            Bound::Unbounded => Self { start: leading, end, hashed },
            Bound::Excluded(value) => match End::behind(&with(value)) {
                End::Before(bytes) => {
                    let mut start = KeyBuf::new();
                    start.extend(&bytes);
                    Self { start, end, hashed }
                }
                // Nothing is behind the greatest value, and nothing is before the empty key.
                _ => Self { start: leading, end: End::Before(Vec::new()), hashed },
            },
        }
    }

    /// Every key that begins with these bytes.
    pub(crate) fn beginning_with(prefix: &[u8]) -> Self {
        Self::new().within(prefix)
    }

    /// Only what begins with `prefix`, all of which is inside.
    pub(crate) fn within(&self, prefix: &[u8]) -> Self {
        let mut start = KeyBuf::new();
        start.extend(prefix);
        Self { start, end: End::Prefix, hashed: self.hashed.clone() }
    }

    /// Only what is behind all keys that begin with `prefix`, which is inside; `None`: nothing is.
    pub(crate) fn behind(&self, prefix: &[u8]) -> Option<Self> {
        let mut bytes = prefix.to_vec();
        if !successor(&mut bytes) {
            return None;
        }
        let mut start = KeyBuf::new();
        start.extend(&bytes);
        let end = self.end().map_or(End::Open, End::Before);
        Some(Self { start, end, hashed: self.hashed.clone() })
    }

    /// Only what is before all keys that begin with `prefix`, which is inside.
    pub(crate) fn before(self, prefix: &[u8]) -> Self {
        Self { end: End::Before(prefix.to_vec()), ..self }
    }

    /// Whether a hashed field is given.
    pub(crate) const fn is_hashed(&self) -> bool {
        self.hashed.is_some()
    }

    /// What is asked of hashed fields.
    pub(super) const fn hashed_values(&self) -> Option<&Arc<Hashed>> {
        self.hashed.as_ref()
    }

    /// The bytes that every key inside begins with, if that is all that is asked of them.
    pub(crate) fn as_prefix(&self) -> Option<&[u8]> {
        let start = self.start();
        matches!(self.end, End::Prefix).then_some(start)
    }

    /// The first bytes a key may have. Empty: from the first key.
    #[inline]
    pub(crate) fn start(&self) -> &[u8] {
        self.start.as_bytes()
    }

    /// Whether `key`, which is not below the start, is inside.
    #[inline]
    pub(crate) fn ends_behind(&self, key: &[u8]) -> bool {
        match &self.end {
            End::Prefix => key.starts_with(self.start()),
            End::Before(end) => key < end.as_slice(),
            End::Open => true,
        }
    }

    /// The bytes that every key inside is below; `None`: there is no such limit.
    pub(crate) fn end(&self) -> Option<Vec<u8>> {
        match &self.end {
            End::Prefix => {
                let mut prefix = self.start().to_vec();
                successor(&mut prefix).then_some(prefix)
            }
            End::Before(end) => Some(end.clone()),
            End::Open => None,
        }
    }

    /// Whether a scan with these bounds finds this row.
    pub(crate) fn find(&self, source: Source, row: &Image) -> bool {
        let is_inside = |key: &[u8]| key >= self.start() && self.ends_behind(key);
        match source {
            Source::Facts => is_inside(row.primary_key()),
            Source::Index(index) => {
                row.keys(index).any(is_inside)
                    && self.hashed.as_ref().is_none_or(|asked| asked.are_of(index, row.row()))
            }
        }
    }

    /// Whether these are all keys there are.
    pub(crate) fn is_everything(&self) -> bool {
        self.start.is_empty() && matches!(self.end, End::Prefix | End::Open)
    }
}

impl End {
    /// The end of what begins with `prefix`.
    fn behind(prefix: &KeyBuf) -> Self {
        let mut bytes = prefix.as_bytes().to_vec();
        if successor(&mut bytes) { Self::Before(bytes) } else { Self::Open }
    }
}

impl Default for Bounds {
    fn default() -> Self {
        Self::new()
    }
}
