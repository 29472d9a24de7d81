//! Keys with the encoding of another type.

use std::{
    borrow::Cow,
    cmp::Ordering,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    num::NonZero,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use proptest::prelude::*;

use super::{
    arrange::{Sample, for_every_key_type},
    decode::hostile_bytes,
    decode_owned, encoded,
    order::laws,
};
use crate::model::key::{DecodeError, Key as _, KeyShape, Sequence, fits, show_key};

/// Implements [`Sample`] by converting samples of another type.
macro_rules! samples {
    ($($type:ty: $inner:ty, |$raw:ident| $make:expr;)+) => {$(
        impl Sample for $type {
            fn order(&self, other: &Self) -> Ordering {
                self.cmp(other)
            }

            fn any() -> BoxedStrategy<Self> {
                <$inner as Sample>::any().prop_filter_map("no value", |$raw| $make).boxed()
            }

            fn pair() -> BoxedStrategy<(Self, Self)> {
                let make = |$raw: $inner| $make;
                <$inner as Sample>::pair()
                    .prop_filter_map("no value", move |(a, b)| Some((make(a)?, make(b)?)))
                    .boxed()
            }
        }
    )+};
}
pub(super) use samples;

samples! {
    NonZero<u8>: u8, |raw| NonZero::new(raw);
    NonZero<u64>: u64, |raw| NonZero::new(raw);
    NonZero<usize>: usize, |raw| NonZero::new(raw);
    NonZero<i32>: i32, |raw| NonZero::new(raw);
    NonZero<i128>: i128, |raw| NonZero::new(raw);
    Duration: (u64, u32), |raw| Some(Duration::new(raw.0, raw.1 % 1_000_000_000));
    SystemTime: (i64, u32), |raw| {
        let whole = Duration::from_secs(raw.0.unsigned_abs());
        let time = if raw.0 < 0 { UNIX_EPOCH.checked_sub(whole) } else { UNIX_EPOCH.checked_add(whole) };
        time?.checked_add(Duration::from_nanos(u64::from(raw.1 % 1_000_000_000)))
    };
    Ipv4Addr: u32, |raw| Some(Ipv4Addr::from_bits(raw));
    Ipv6Addr: u128, |raw| Some(Ipv6Addr::from_bits(raw));
    IpAddr: (bool, u128), |raw| Some(match raw {
        (false, bits) => IpAddr::V4(Ipv4Addr::from_bits(bits as u32)),
        (true, bits) => IpAddr::V6(Ipv6Addr::from_bits(bits)),
    });
    Box<str>: String, |raw| Some(raw.into());
    Arc<str>: String, |raw| Some(raw.into());
    Cow<'static, str>: String, |raw| Some(raw.into());
}

macro_rules! check {
    ($check:ident) => {
        mod $check {
            use super::*;

            for_every_key_type! { $check:
                non_zero_u8: NonZero<u8>; non_zero_u64: NonZero<u64>;
                non_zero_usize: NonZero<usize>; non_zero_i32: NonZero<i32>;
                non_zero_i128: NonZero<i128>;
                duration: Duration; system_time: SystemTime;
                ipv4: Ipv4Addr; ipv6: Ipv6Addr; ip: IpAddr;
                boxed: Box<str>; shared: Arc<str>; cow: Cow<'static, str>;
                inside: (Option<IpAddr>, Duration, Arc<str>);
            }
        }
    };
}

check!(laws);
check!(hostile_bytes);

#[test]
fn values_that_do_not_exist_are_refused() {
    let zero = decode_owned::<NonZero<u8>>(&[0]).map(drop);
    assert_eq!(zero, Err(DecodeError::Value("a zero where there is none")));
    // A full second of nanoseconds.
    let bytes = encoded(&(7_u64, 1_000_000_000_u32));
    assert!(decode_owned::<Duration>(&bytes).is_err());
    assert!(decode_owned::<SystemTime>(&bytes).is_err());
    assert!(decode_owned::<IpAddr>(&[5, 1, 2, 3, 4]).is_err());
}

#[test]
fn the_first_and_last_seconds_round_trip_or_fail() {
    // Decoding does not panic if the system's clock does not have such a time.
    for second in [i64::MIN, i64::MIN + 1, i64::MAX] {
        for nanosecond in [0, 1, 999_999_999] {
            let bytes = encoded(&(second, nanosecond));
            if let Ok((time, _)) = decode_owned::<SystemTime>(&bytes) {
                assert_eq!(encoded(&time), bytes, "{second} {nanosecond}");
            }
        }
    }
}

#[test]
fn keys_convert_to_and_from_numbers() {
    assert_eq!(u8::from_number(255), Some(255));
    assert_eq!(u8::from_number(256), None);
    assert_eq!(i8::from_number(128), None);
    assert_eq!(u64::from_number(u128::from(u64::MAX) + 1), None);
    assert_eq!(u128::from_number(u128::MAX), Some(u128::MAX));
    assert_eq!(i128::from_number(u128::MAX), None);
    assert_eq!(NonZero::<u8>::from_number(0), None);
    assert_eq!((-1_i8).number(), 0);
    assert_eq!(i128::MIN.number(), 0);
    assert_eq!(7_i128.number(), 7);
    assert_eq!(u128::MAX.number(), u128::MAX);
    assert_eq!(NonZero::<i64>::MIN.number(), 0);
}

const KIND: KeyShape = KeyShape::Enum(&[("Private", 0), ("Company", 300)]);

#[test]
fn enums_are_shown_by_their_variants() {
    assert_eq!(KIND.to_string(), "enum[Private=0,Company=300]");
    assert_eq!(KIND.fixed_len(), Some(2));
    assert_eq!(show_key([KIND].iter(), &[1, 44]), "Company");
    assert_eq!(show_key([KIND].iter(), &[0, 1]), "0x0001");
    let shapes = [KeyShape::Option(&KIND), IpAddr::SHAPE, Duration::SHAPE];
    let bytes = [&[1, 0, 0, 4, 127, 0, 0, 1], &encoded(&Duration::from_nanos(5))[..]].concat();
    assert_eq!(show_key(shapes.iter(), &bytes), "(Some(Private), 127.0.0.1, 0.000000005s)");
}

#[test]
fn a_shape_fits_if_no_variant_changed() {
    for same in ["u64", "(text,u64)", "enum[A=0]", "option<enum[A=0,B=1]>"] {
        assert!(fits(same, same), "{same}");
    }
    assert!(fits("enum[A=0]", "enum[A=0,B=1]"));
    assert!(fits("enum[A=0,C=9]", "enum[A=0,C=9,B=1]"));
    assert!(!fits("enum[A=0,C=9]", "enum[A=0,B=1,C=9]"));
    assert!(fits("(enum[A=0],option<enum[X=0]>)", "(enum[A=0,B=1],option<enum[X=0,Y=1]>)"));
    assert!(!fits("enum[A=0,B=1]", "enum[A=0]"));
    assert!(!fits("enum[A=0,B=1]", "enum[B=0,A=1]"));
    assert!(!fits("enum[A=0]", "enum[AA=0]"));
    assert!(!fits("enum[A=1]", "enum[A=10]"));
    assert!(!fits("enum[A=0]", "option<enum[A=0]>"));
    assert!(!fits("(enum[A=0],u8)", "(enum[A=0],u16)"));
    assert!(!fits("(enum[A=0],enum[X=0])", "(enum[A=0],enum[Y=0])"));
    assert!(!fits("enum[A=0]", "u16"));
    assert!(!fits("u8", "u16"));
    // A malformed name.
    assert!(!fits("enum[", "enum[A=0]"));
}

/// The order of paths is by their parts, that of keys by their text.
#[test]
fn paths_have_the_encoding_of_their_text() {
    super::arrange::for_all(String::any(), |text| {
        let path = std::path::PathBuf::from(&text);
        let key = encoded(&path);
        assert_eq!(key, encoded(&text));
        assert_eq!(decode_owned::<std::path::PathBuf>(&key).unwrap(), (path, key.len()));
    });
}
