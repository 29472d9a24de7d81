//! Values of every key type, and their order.

use std::{cmp::Ordering, fmt::Debug};

use proptest::{collection::vec, prelude::*, sample::select};
use serde::Serialize;

use crate::model::key::{Desc, Key};

/// A key type with random values for tests.
pub(super) trait Sample: Key + Clone + Debug + 'static {
    /// Compares in the order of the standard library.
    fn order(&self, other: &Self) -> Ordering;

    /// Returns random values, with frequent edge cases.
    fn any() -> BoxedStrategy<Self>;

    /// Returns two values, which are often equal or close to each other.
    fn pair() -> BoxedStrategy<(Self, Self)> {
        prop_oneof![
            4 => (Self::any(), Self::any()),
            1 => Self::any().prop_map(|value| (value.clone(), value)),
        ]
        .boxed()
    }
}

macro_rules! integers {
    ($($type:ident)+) => {$(
        impl Sample for $type {
            fn order(&self, other: &Self) -> Ordering {
                self.cmp(other)
            }

            fn any() -> BoxedStrategy<Self> {
                prop_oneof![
                    // Numbers of all magnitudes.
                    (any::<$type>(), 0..$type::BITS).prop_map(|(value, shift)| value >> shift),
                    select(vec![
                        $type::MIN, $type::MIN + 1, $type::MIN.midpoint($type::MAX), 0, 1, 127,
                        $type::MAX - 1, $type::MAX,
                    ]),
                ]
                .boxed()
            }

            fn pair() -> BoxedStrategy<(Self, Self)> {
                prop_oneof![
                    (Self::any(), Self::any()),
                    Self::any().prop_map(|value| (value, value)),
                    Self::any().prop_map(|value| (value, value.wrapping_add(1))),
                ]
                .boxed()
            }
        }
    )+};
}

integers!(u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize);

impl Sample for bool {
    fn order(&self, other: &Self) -> Ordering {
        self.cmp(other)
    }

    fn any() -> BoxedStrategy<Self> {
        any::<bool>().boxed()
    }
}

impl Sample for char {
    fn order(&self, other: &Self) -> Ordering {
        self.cmp(other)
    }

    fn any() -> BoxedStrategy<Self> {
        let edges = ['\0', '\u{1}', '\u{FF}', '\u{100}', '\u{D7FF}', '\u{E000}', '\u{FFFF}'];
        let more = ['\u{10000}', char::MAX];
        prop_oneof![any::<char>(), select([&edges[..], &more[..]].concat())].boxed()
    }
}

macro_rules! floats {
    ($($type:ident $bits:ident, $mantissa:literal;)+) => {$(
        impl Sample for $type {
            fn order(&self, other: &Self) -> Ordering {
                self.total_cmp(other)
            }

            fn any() -> BoxedStrategy<Self> {
                // Infinity has an exponent of ones and a mantissa of 0. Greater mantissas are NaNs, and those
                // with the highest bit are quiet NaNs.
                let infinity = $type::INFINITY.to_bits();
                let magnitudes = vec![
                    0, 1, $type::MIN_POSITIVE.to_bits() - 1, $type::MIN_POSITIVE.to_bits(),
                    $type::EPSILON.to_bits(), (1.0 as $type).to_bits(), $type::MAX.to_bits(),
                    infinity, infinity + 1, infinity + (1 << ($mantissa - 1)) - 1,
                    infinity + (1 << ($mantissa - 1)), $bits::MAX >> 1,
                ];
                prop_oneof![
                    any::<$bits>(),
                    (select(magnitudes), any::<bool>()).prop_map(|(bits, negative)| {
                        bits | $bits::from(negative) << ($bits::BITS - 1)
                    }),
                ]
                .prop_map($type::from_bits)
                .boxed()
            }
        }
    )+};
}

floats! {
    f32 u32, 23;
    f64 u64, 52;
}

/// Returns two sequences, often with a common prefix.
fn sequences<T: Clone + Debug + 'static>(
    items: impl Strategy<Value = T> + Clone + 'static,
) -> impl Strategy<Value = (Vec<T>, Vec<T>)> {
    let some = || vec(items.clone(), 0..6);
    let joined = |a: &Vec<T>, b: Vec<T>| [a.clone(), b].concat();
    prop_oneof![
        (some(), some()),
        some().prop_map(|a| (a.clone(), a)),
        (some(), some()).prop_map(move |(a, b)| (a.clone(), joined(&a, b))),
        (some(), some(), some()).prop_map(move |(a, b, c)| (joined(&a, b), joined(&a, c))),
        // Long sequences, which may differ at the end only.
        (items.clone(), 60..600_usize, some(), some()).prop_map(move |(item, len, a, b)| {
            let long = vec![item; len];
            (joined(&long, a), joined(&long, b))
        }),
    ]
}

/// Returns characters, with frequent edge cases of the string encoding: its special bytes and their
/// neighbours.
fn letters() -> impl Strategy<Value = char> + Clone {
    prop_oneof![
        8 => select(vec!['\0', '\u{1}', '\u{2}', '\u{3}', 'a', 'b', '\u{7F}', 'é', char::MAX]),
        1 => any::<char>(),
    ]
}

fn bytes() -> impl Strategy<Value = u8> + Clone {
    prop_oneof![8 => select(vec![0, 1, 2, 3, b'a', 0x80, 0xFE, 0xFF]), 1 => any::<u8>()]
}

impl Sample for String {
    fn order(&self, other: &Self) -> Ordering {
        self.as_bytes().cmp(other.as_bytes())
    }

    fn any() -> BoxedStrategy<Self> {
        Self::pair().prop_map(|(value, _)| value).boxed()
    }

    fn pair() -> BoxedStrategy<(Self, Self)> {
        sequences(letters())
            .prop_map(|(a, b)| (a.into_iter().collect(), b.into_iter().collect()))
            .boxed()
    }
}

impl Sample for Vec<u8> {
    fn order(&self, other: &Self) -> Ordering {
        self.cmp(other)
    }

    fn any() -> BoxedStrategy<Self> {
        Self::pair().prop_map(|(value, _)| value).boxed()
    }

    fn pair() -> BoxedStrategy<(Self, Self)> {
        sequences(bytes()).boxed()
    }
}

impl<const N: usize> Sample for [u8; N]
where
    [u8; N]: Key,
{
    fn order(&self, other: &Self) -> Ordering {
        self.cmp(other)
    }

    fn any() -> BoxedStrategy<Self> {
        vec(bytes(), N).prop_map(|bytes| bytes.try_into().unwrap()).boxed()
    }
}

impl<T: Sample> Sample for Option<T> {
    fn order(&self, other: &Self) -> Ordering {
        match (self, other) {
            (None, None) => Ordering::Equal,
            (None, Some(_)) => Ordering::Less,
            (Some(_), None) => Ordering::Greater,
            (Some(a), Some(b)) => a.order(b),
        }
    }

    fn any() -> BoxedStrategy<Self> {
        prop_oneof![1 => Just(None), 3 => T::any().prop_map(Some)].boxed()
    }

    fn pair() -> BoxedStrategy<(Self, Self)> {
        prop_oneof![(Self::any(), Self::any()), T::pair().prop_map(|(a, b)| (Some(a), Some(b))),]
            .boxed()
    }
}

impl<T: Sample + PartialEq + Serialize> Sample for Desc<T> {
    fn order(&self, other: &Self) -> Ordering {
        other.0.order(&self.0)
    }

    fn any() -> BoxedStrategy<Self> {
        T::any().prop_map(Desc).boxed()
    }

    fn pair() -> BoxedStrategy<(Self, Self)> {
        T::pair().prop_map(|(a, b)| (Desc(a), Desc(b))).boxed()
    }
}

macro_rules! tuples {
    ($($($type:ident $at:tt),+;)+) => {$(
        impl<$($type: Sample),+> Sample for ($($type,)+) {
            fn order(&self, other: &Self) -> Ordering {
                Ordering::Equal$(.then_with(|| self.$at.order(&other.$at)))+
            }

            fn any() -> BoxedStrategy<Self> {
                ($($type::any(),)+).boxed()
            }

            fn pair() -> BoxedStrategy<(Self, Self)> {
                ($($type::pair(),)+)
                    .prop_map(|pairs| (($(pairs.$at.0.clone(),)+), ($(pairs.$at.1.clone(),)+)))
                    .boxed()
            }
        }
    )+};
}

tuples! {
    A 0, B 1;
    A 0, B 1, C 2;
    A 0, B 1, C 2, D 3;
    A 0, B 1, C 2, D 3, E 4;
    A 0, B 1, C 2, D 3, E 4, F 5;
    A 0, B 1, C 2, D 3, E 4, F 5, G 6;
    A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7;
}

/// Returns bytes to append to a key, or to decode as a key.
pub(super) fn any_bytes() -> impl Strategy<Value = Vec<u8>> {
    vec(bytes(), 0..24)
}

/// Runs `check` for many values.
pub(super) fn for_all<S: Strategy>(values: S, check: impl Fn(S::Value)) {
    // No file of failures: a failing case is small enough to become a test.
    let config = ProptestConfig { cases: 400, failure_persistence: None, ..Default::default() };
    let mut runner = proptest::test_runner::TestRunner::new(config);
    let outcome = runner.run(&values, |value| {
        check(value);
        Ok(())
    });
    if let Err(error) = outcome {
        panic!("{error}");
    }
}

/// Generates a test for each key type, which calls `$check::<Type>()`.
macro_rules! for_every_key_type {
    ($check:ident) => {
        $crate::model::key::tests::arrange::for_every_key_type! { $check:
            unsigned_8: u8; unsigned_16: u16; unsigned_32: u32; unsigned_64: u64;
            unsigned_128: u128; unsigned_size: usize;
            signed_8: i8; signed_16: i16; signed_32: i32; signed_64: i64;
            signed_128: i128; signed_size: isize;
            boolean: bool; character: char; float_32: f32; float_64: f64;
            text: String; byte_string: Vec<u8>;
            array_1: [u8; 1]; array_3: [u8; 3]; array_16: [u8; 16];
            option_bool: Option<bool>; option_i32: Option<i32>; option_f64: Option<f64>;
            option_char: Option<char>; option_text: Option<String>;
            option_bytes: Option<Vec<u8>>; option_array: Option<[u8; 3]>;
            option_option: Option<Option<u8>>;
            option_tuple: Option<(String, u8)>;
            pair_of_numbers: (u16, i8); two_texts: (String, String);
            text_then_number: (String, i64); bytes_then_array: (Vec<u8>, [u8; 3]);
            options: (Option<String>, Option<u16>, Option<String>);
            nested: ((String, bool), (u8, Vec<u8>));
            five: (char, f32, String, u8, Option<i8>);
            six: (u8, u8, u8, String, u8, u8);
            seven: (bool, bool, bool, bool, bool, bool, Vec<u8>);
            eight: (u8, i8, bool, char, String, Vec<u8>, [u8; 1], Option<u8>);
            four: (u128, isize, String, f64);
            desc_8: Desc<u8>; desc_i64: Desc<i64>; desc_bool: Desc<bool>; desc_char: Desc<char>;
            desc_float: Desc<f64>; desc_text: Desc<String>; desc_bytes: Desc<Vec<u8>>;
            desc_array: Desc<[u8; 3]>; desc_option: Desc<Option<i32>>;
            desc_option_text: Desc<Option<String>>; desc_option_bytes: Desc<Option<Vec<u8>>>;
            desc_fixed: Desc<(u16, i8)>; desc_tuple: Desc<(String, Option<u8>, Vec<u8>)>;
            desc_in_front: (Desc<String>, u8); desc_at_end: (String, Desc<Option<String>>);
            both_directions: (Desc<u16>, String, Desc<Vec<u8>>, bool);
        }
    };
    ($check:ident: $($name:ident: $type:ty;)+) => {$(
        #[test]
        fn $name() {
            $check::<$type>();
        }
    )+};
}

pub(super) use for_every_key_type;
