//! Bounds on random keys, which are longer than the keys of the other tests.

use std::ops::Bound;

use proptest::{collection::vec, prelude::*, sample::select};

use super::{Bounds, Keys, borrowed, range_contains};

type Value = (String, Option<Vec<u8>>, i64);

fn text() -> impl Strategy<Value = String> {
    let letter = select(vec!['\0', '\u{1}', '\u{2}', 'a', 'b', 'é', char::MAX]);
    let some = vec(letter.clone(), 0..4).prop_map(String::from_iter);
    let long = (letter, 60..70_usize).prop_map(|(letter, len)| letter.to_string().repeat(len));
    prop_oneof![4 => some, 1 => long]
}

fn bytes() -> impl Strategy<Value = Option<Vec<u8>>> {
    prop::option::of(vec(select(vec![0, 1, 2, 0xFE, 0xFF]), 0..3))
}

fn number() -> impl Strategy<Value = i64> {
    select(vec![i64::MIN, i64::MIN + 1, -1, 0, 1, 255, 256, i64::MAX - 1, i64::MAX])
}

fn bound<T: std::fmt::Debug + Clone + 'static>(
    value: impl Strategy<Value = T> + 'static,
) -> impl Strategy<Value = Bound<T>> {
    (value, 0..5).prop_map(|(value, kind)| match kind {
        0 | 1 => Bound::Included(value),
        2 | 3 => Bound::Excluded(value),
        _ => Bound::Unbounded,
    })
}

type Range<T> = (Bound<T>, Bound<T>);

/// The conditions on the three fields.
#[derive(Debug, Clone)]
enum ScanRequest {
    Texts(Range<String>),
    StartingWith(String),
    Bytes(String, Range<Option<Vec<u8>>>),
    Numbers(String, Option<Vec<u8>>, Range<i64>),
}

fn any_request() -> impl Strategy<Value = ScanRequest> {
    prop_oneof![
        (bound(text()), bound(text())).prop_map(ScanRequest::Texts),
        text().prop_map(ScanRequest::StartingWith),
        (text(), (bound(bytes()), bound(bytes())))
            .prop_map(|(text, range)| ScanRequest::Bytes(text, range)),
        (text(), bytes(), (bound(number()), bound(number())))
            .prop_map(|(text, bytes, range)| ScanRequest::Numbers(text, bytes, range)),
    ]
}

impl ScanRequest {
    fn bounds(&self) -> Bounds {
        let all = Bounds::new();
        match self {
            Self::Texts((start, end)) => all.range::<String>((borrowed(start), borrowed(end))),
            Self::StartingWith(prefix) => all.starting_with::<String>(prefix),
            Self::Bytes(text, (start, end)) => {
                all.equal::<String>(text).range::<Option<Vec<u8>>>((borrowed(start), borrowed(end)))
            }
            Self::Numbers(text, bytes, range) => all
                .equal::<String>(text)
                .equal::<Option<Vec<u8>>>(bytes.as_deref())
                .range::<i64>(*range),
        }
    }

    fn contains(&self, (text, bytes, number): &Value) -> bool {
        match self {
            Self::Texts(range) => range_contains(range, text, |a, b| a < b),
            Self::StartingWith(prefix) => text.starts_with(prefix),
            Self::Bytes(equal, range) => {
                equal == text && range_contains(range, bytes, |a, b| a < b)
            }
            Self::Numbers(equal, equal_bytes, range) => {
                equal == text && equal_bytes == bytes && range_contains(range, number, |a, b| a < b)
            }
        }
    }

    /// Returns the values of the request, so that the result is often not empty.
    fn values(&self) -> Vec<Value> {
        fn inside<T: Clone>(range: &Range<T>) -> Vec<T> {
            let value = |bound: &Bound<T>| match bound {
                Bound::Included(value) | Bound::Excluded(value) => Some(value.clone()),
                Bound::Unbounded => None,
            };
            value(&range.0).into_iter().chain(value(&range.1)).collect()
        }
        match self {
            Self::Texts(range) => inside(range).into_iter().map(|text| (text, None, -1)).collect(),
            Self::StartingWith(prefix) => ["", "\0", "\u{1}", "\u{10FFFF}"]
                .iter()
                .map(|more| (format!("{prefix}{more}"), None, i64::MAX))
                .collect(),
            Self::Bytes(text, range) => {
                inside(range).into_iter().map(|bytes| (text.clone(), bytes, 0)).collect()
            }
            Self::Numbers(text, bytes, range) => inside(range)
                .into_iter()
                .map(|number| (text.clone(), bytes.clone(), number))
                .collect(),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        cases: 2000,
        ..Default::default()
    })]

    #[test]
    fn random_bounds_contain_the_right_keys(
        request in any_request(),
        values in vec((text(), bytes(), number()), 0..30),
    ) {
        let values = values.into_iter().chain(request.values());
        let keys = Keys::new(values, &[&[], &[0; 8], &[0xFF; 8]]);
        keys.check(&request.bounds(), |value| request.contains(value), || format!("{request:?}"));
    }
}
