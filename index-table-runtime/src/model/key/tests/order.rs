//! The promises of every key type: order, round trip and self-delimiting encodings.

use std::fmt::Debug;

use proptest::{prelude::*, sample::select};

use super::{
    arrange::{Sample, any_bytes, for_all, for_every_key_type},
    decode_owned, encoded, skip,
};
use crate::model::key::{Desc, Key, KeyReader, Unescaped, successor};

/// Checks the laws of the encoding, for two values and the bytes that follow each of them.
pub(super) fn laws<T: Sample>()
where
    for<'a> T::Ref<'a>: Debug,
{
    for_all((T::pair(), any_bytes(), any_bytes()), |((a, b), tail_a, tail_b)| {
        let order = a.order(&b);
        let (key_a, key_b) = (encoded(&a), encoded(&b));
        assert_eq!(key_a.cmp(&key_b), order, "{a:?} {b:?}: {key_a:02x?} {key_b:02x?}");

        if order.is_ne() {
            assert!(!key_a.starts_with(&key_b) && !key_b.starts_with(&key_a), "{a:?} {b:?}");
        }
        let followed = ([&*key_a, &tail_a].concat(), [&*key_b, &tail_b].concat());
        let expected = order.then_with(|| tail_a.cmp(&tail_b));
        assert_eq!(followed.0.cmp(&followed.1), expected, "{a:?} {b:?} {followed:02x?}");

        round_trip(&a, &key_a, &followed.0);
    });
}

/// Checks that decoding `followed`, which starts with the encoding of `value`, returns `value` and reads no
/// further bytes.
fn round_trip<T: Sample>(value: &T, key: &[u8], followed: &[u8])
where
    for<'a> T::Ref<'a>: Debug,
{
    let (owned, len) = decode_owned::<T>(followed).unwrap();
    assert_eq!((owned.order(value), len), (std::cmp::Ordering::Equal, key.len()), "{value:?}");
    assert_eq!(encoded(&owned), key, "{value:?}");

    let unescaped = Unescaped::default();
    let mut reader = KeyReader::new(followed, &unescaped);
    let borrowed = T::decode(&mut reader).unwrap();
    assert_eq!(format!("{borrowed:?}"), format!("{value:?}"));
    assert_eq!(followed.len() - reader.rest().len(), key.len(), "{value:?}");

    assert_eq!(skip::<T>(followed), Ok(key.len()), "{value:?}");
    assert!(T::SHAPE.fixed_len().is_none_or(|len| len == key.len()), "{value:?}");
}

for_every_key_type!(laws);

fn in_order<T: Key>(values: impl IntoIterator<Item = T>) {
    let mut last = None;
    for value in values {
        let key = encoded(&value);
        assert_eq!(encoded(&decode_owned::<T>(&key).unwrap().0), key);
        assert!(last.is_none_or(|last| last < key), "{key:02x?}");
        last = Some(key);
    }
}

#[test]
fn all_small_numbers_are_in_order() {
    in_order(u8::MIN..=u8::MAX);
    in_order(i8::MIN..=i8::MAX);
    in_order(u16::MIN..=u16::MAX);
    in_order(i16::MIN..=i16::MAX);
    in_order([false, true]);
    in_order(('\0'..=char::MAX).step_by(7));
}

#[test]
fn floats_are_in_total_order() {
    // From the negative NaN with the largest mantissa to the positive NaN with the largest mantissa.
    in_order([
        f64::from_bits(u64::MAX),
        -f64::NAN,
        f64::from_bits(0xFFF0_0000_0000_0001),
        f64::NEG_INFINITY,
        f64::MIN,
        -1.0,
        -f64::MIN_POSITIVE,
        -f64::from_bits(1),
        -0.0,
        0.0,
        f64::from_bits(1),
        f64::MIN_POSITIVE,
        1.0,
        f64::MAX,
        f64::INFINITY,
        f64::from_bits(0x7FF0_0000_0000_0001),
        f64::NAN,
        f64::from_bits(u64::MAX >> 1),
    ]);
    in_order([
        f32::from_bits(u32::MAX),
        -f32::NAN,
        f32::NEG_INFINITY,
        f32::MIN,
        -0.0,
        0.0,
        f32::from_bits(1),
        f32::MAX,
        f32::INFINITY,
        f32::NAN,
        f32::from_bits(u32::MAX >> 1),
    ]);
}

/// Compares all pairs of byte strings of up to three of these bytes, and with more bytes after the
/// smaller string.
#[test]
fn all_short_byte_strings_are_in_order() {
    const BYTES: [u8; 5] = [0, 1, 2, 3, 0xFF];
    let mut all: Vec<Vec<u8>> = vec![Vec::new()];
    for start in 0.. {
        let Some(value) = all.get(start).filter(|value| value.len() < 3).cloned() else { break };
        all.extend(BYTES.map(|byte| [&*value, &[byte]].concat()));
    }
    assert_eq!(all.len(), 1 + 5 + 25 + 125);
    all.sort();
    let keys: Vec<_> = all.iter().map(encoded).collect();
    for (i, key) in keys.iter().enumerate() {
        for other in &keys[i + 1..] {
            assert!(key < other && !other.starts_with(key), "{key:02x?} {other:02x?}");
            // The greatest bytes after the smaller key, and none after the greater key.
            assert!([key, &[0xFF; 4][..]].concat() < *other, "{key:02x?} {other:02x?}");
        }
    }
}

#[test]
fn composites_keep_their_fields_apart() {
    let pair = |a: &str, b: &str| encoded(&(a.to_owned(), b.to_owned()));
    assert_ne!(pair("ab", "c"), pair("a", "bc"));
    assert_ne!(pair("a", ""), pair("", "a"));
    assert_ne!(pair("\0", ""), pair("", "\0"));
    assert!(pair("a", "z") < pair("ab", "a"));

    // If the terminator and the escape had the same first byte, these keys would be ambiguous: ("", FF FF)
    // and ("\0", 00 00) would both begin with 00 FF.
    let key = |text: &str, number: u16| encoded(&(text.to_owned(), number));
    assert!(key("", 0xFFFF) < key("\0", 0));
    assert!(key("a", u16::MAX) < key("a\0", 0));
    assert_eq!(decode_owned(&key("", 0xFF00)), Ok(((String::new(), 0xFF00_u16), 3)));
    assert_eq!(decode_owned(&key("\0", 0)), Ok((("\0".to_owned(), 0_u16), 5)));
}

#[test]
fn a_composite_is_its_fields_one_after_another() {
    for_all((String::any(), i32::any(), Option::<Vec<u8>>::any()), |(a, b, c)| {
        let fields = [encoded(&a), encoded(&b), encoded(&c)].concat();
        assert_eq!(encoded(&(a.clone(), b, c.clone())), fields);
        assert_eq!(encoded(&((a, b), c)), fields);
    });
}

#[test]
fn the_successor_of_a_prefix_follows_all_its_extensions() {
    let byte = || select(vec![0, 1, 0x61, 0xFE, 0xFF_u8]);
    let some = || proptest::collection::vec(byte(), 0..5);
    for_all((some(), some(), some(), any::<bool>()), |(prefix, tail, other, inside)| {
        let probe = if inside { [&*prefix, &tail].concat() } else { other };
        let mut next = prefix.clone();
        if successor(&mut next) {
            assert!(prefix < next && !next.starts_with(&prefix));
            let is_inside = prefix <= probe && probe < next;
            assert_eq!(is_inside, probe.starts_with(&prefix), "{prefix:02x?} {probe:02x?}");
        } else {
            assert!(prefix.iter().all(|&byte| byte == 0xFF), "{prefix:02x?}");
            assert!(probe < prefix || probe.starts_with(&prefix), "{prefix:02x?} {probe:02x?}");
        }
    });
}
