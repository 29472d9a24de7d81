//! Tests of queries: the keys within [`Bounds`], hashed values, look-ups of many rows, and rows of other processes.

mod bounds;
mod hashed;
mod lists;
mod many;
mod random;

use std::ops::Bound;

use super::Bounds;
use crate::model::entry::Position;
use crate::model::key::{Key, KeyBuf};

fn encoded<T: Key>(value: &T) -> Vec<u8> {
    let mut key = KeyBuf::new();
    key.push(value);
    key.as_bytes().to_vec()
}

/// Borrows the value of a bound.
fn borrowed<T: Key>(bound: &Bound<T>) -> Bound<T::Arg<'_>> {
    match bound {
        Bound::Included(value) => Bound::Included(value.arg()),
        Bound::Excluded(value) => Bound::Excluded(value.arg()),
        Bound::Unbounded => Bound::Unbounded,
    }
}

/// Keys with their values, in order.
struct Keys<T> {
    sorted: Vec<(Vec<u8>, T)>,
}

impl<T: Key + Clone> Keys<T> {
    /// Creates a key for each value and each of these suffixes, which stand for primary keys.
    fn new(values: impl IntoIterator<Item = T>, suffixes: &[&[u8]]) -> Self {
        let mut sorted = Vec::new();
        for value in values {
            let key = encoded(&value);
            sorted.extend(suffixes.iter().map(|suffix| ([&*key, suffix].concat(), value.clone())));
        }
        sorted.sort_by(|(a, _), (b, _)| a.cmp(b));
        Self { sorted }
    }

    /// Checks that the bounds contain exactly the keys whose value is `inside`, read forward, read backward,
    /// and by comparison with both ends.
    fn check(&self, bounds: &Bounds, inside: impl Fn(&T) -> bool, what: impl Fn() -> String) {
        let expected: Vec<&[u8]> = self.keys(|_, value| inside(value)).collect();
        let forward: Vec<&[u8]> = self
            .keys(|key, _| key >= bounds.range.start())
            .take_while(|key| bounds.range.ends_after(key))
            .collect();
        assert_eq!(forward, expected, "forward, {}: {bounds:?}", what());

        let end = bounds.range.end();
        let below = |key: &[u8]| end.as_deref().is_none_or(|end| key < end);
        let backward: Vec<&[u8]> = self
            .sorted
            .iter()
            .rev()
            .map(|(key, _)| &**key)
            .skip_while(|key| !below(key))
            .take_while(|key| *key >= bounds.range.start())
            .collect();
        assert!(backward.iter().rev().eq(&expected), "backward, {}: {bounds:?}", what());

        for key in self.keys(|key, _| key >= bounds.range.start()) {
            assert_eq!(bounds.range.ends_after(key), below(key), "{key:02x?}, {}", what());
        }
        if bounds.range.is_everything() {
            assert_eq!(expected.len(), self.sorted.len(), "not everything, {}", what());
        }
    }

    fn keys(&self, choose: impl Fn(&[u8], &T) -> bool) -> impl Iterator<Item = &[u8]> {
        self.sorted.iter().filter(move |(key, value)| choose(key, value)).map(|(key, _)| &**key)
    }
}

/// Returns all nine kinds of range between two values.
fn ranges<T: Clone>(start: &T, end: &T) -> Vec<(Bound<T>, Bound<T>)> {
    let kinds = |value: &T| {
        [Bound::Included(value.clone()), Bound::Excluded(value.clone()), Bound::Unbounded]
    };
    let ends = kinds(end);
    kinds(start)
        .into_iter()
        .flat_map(|start| ends.iter().map(move |end| (start.clone(), end.clone())))
        .collect()
}

/// Whether a range contains a value. Unlike the standard library's `contains`, it takes the order as an
/// argument.
fn range_contains<T>(
    range: &(Bound<T>, Bound<T>),
    value: &T,
    less: impl Fn(&T, &T) -> bool,
) -> bool {
    let after = match &range.0 {
        Bound::Included(start) => !less(value, start),
        Bound::Excluded(start) => less(start, value),
        Bound::Unbounded => true,
    };
    let before = match &range.1 {
        Bound::Included(end) => !less(end, value),
        Bound::Excluded(end) => less(value, end),
        Bound::Unbounded => true,
    };
    after && before
}

#[test]
fn the_bytes_of_a_position_are_both_keys() {
    let position = Position { key: vec![1, 0], primary_key: vec![7] };
    assert_eq!(position.bytes(), [1, 0, 7]);
}
