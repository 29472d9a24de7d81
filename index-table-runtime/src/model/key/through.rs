//! Keys with the encoding of another type.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    num::NonZero,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use super::{DecodeError, Key, KeyBuf, KeyReader, KeyShape};

/// Implements keys with the encoding of `$inner`, which are passed and returned by value. Not every value of
/// `$inner` has to be a `$type`.
macro_rules! through {
    ($($type:ty: $inner:ty, $shape:expr, |$value:ident| $encode:expr, |$raw:ident| $decode:expr;)+) => {$(
        impl $crate::model::key::Key for $type {
            type Arg<'a> = $type;
            type Present<'a> = $type;
            type Ref<'a> = $type;
            const SHAPE: $crate::model::key::KeyShape = $shape;

            #[inline]
            fn arg(&self) -> $type {
                *self
            }

            #[inline]
            fn encode($value: $type, out: &mut $crate::model::key::KeyBuf) {
                <$inner as $crate::model::key::Key>::encode($encode, out);
            }

            #[inline]
            fn decode(
                reader: &mut $crate::model::key::KeyReader<'_>,
            ) -> Result<$type, $crate::model::key::DecodeError> {
                Self::decode_owned(reader)
            }

            #[inline]
            fn decode_owned(
                reader: &mut $crate::model::key::KeyReader<'_>,
            ) -> Result<$type, $crate::model::key::DecodeError> {
                let $raw = <$inner as $crate::model::key::Key>::decode_owned(reader)?;
                $decode
            }
        }
    )+};
}

#[allow(unused_imports, reason = "used for the types of other crates, which are features")]
pub(super) use through;

macro_rules! non_zero {
    ($($integer:ident)+) => {through! {$(
        NonZero<$integer>: $integer, $integer::SHAPE,
            |value| value.get(),
            |raw| NonZero::new(raw).ok_or(DecodeError::Value("a zero where there is none"));
    )+}};
}

non_zero!(u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize);

const SECOND: u32 = 1_000_000_000;

/// Seconds and nanoseconds.
const DURATION: KeyShape = KeyShape::Named("duration", &<(u64, u32)>::SHAPE);
/// Seconds since 1970 in UTC, rounded down, and the remaining nanoseconds.
pub(super) const INSTANT: KeyShape = KeyShape::Named("instant", &<(i64, u32)>::SHAPE);

through! {
    Duration: (u64, u32), DURATION,
        |value| (value.as_secs(), value.subsec_nanos()),
        |raw| match raw {
            (seconds, nanoseconds @ ..SECOND) => Ok(Duration::new(seconds, nanoseconds)),
            _ => Err(DecodeError::Value("a second or more of nanoseconds")),
        };
    SystemTime: (i64, u32), INSTANT,
        |value| since_epoch(value),
        |raw| match raw {
            (seconds, nanoseconds @ ..SECOND) => at(seconds, nanoseconds)
                .ok_or(DecodeError::Value("a time outside the range of this machine's clock")),
            _ => Err(DecodeError::Value("a second or more of nanoseconds")),
        };
    Ipv4Addr: [u8; 4], KeyShape::Named("ipv4", &<[u8; 4]>::SHAPE),
        |value| value.octets(),
        |raw| Ok(Ipv4Addr::from_octets(raw));
    Ipv6Addr: [u8; 16], KeyShape::Named("ipv6", &<[u8; 16]>::SHAPE),
        |value| value.octets(),
        |raw| Ok(Ipv6Addr::from_octets(raw));
}

/// Returns the seconds since 1970, rounded down, and the remaining nanoseconds. So the nanoseconds increase
/// with the time before 1970 too.
fn since_epoch(time: SystemTime) -> (i64, u32) {
    // A system clock has at most 64 bits of seconds, including the sign.
    let seconds = |duration: Duration| i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => (seconds(after), after.subsec_nanos()),
        Err(error) => {
            let before = error.duration();
            // `!n` is `-1 - n`, which also works for the smallest number.
            match (before.as_secs().checked_sub(1), before.subsec_nanos()) {
                (Some(less), 0) => (!seconds(Duration::from_secs(less)), 0),
                (_, nanoseconds) => (!seconds(before), SECOND - nanoseconds),
            }
        }
    }
}

fn at(seconds: i64, nanoseconds: u32) -> Option<SystemTime> {
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let second =
        if seconds < 0 { UNIX_EPOCH.checked_sub(whole) } else { UNIX_EPOCH.checked_add(whole) };
    second?.checked_add(Duration::new(0, nanoseconds))
}

const V4: u8 = 4;
const V6: u8 = 6;

impl Key for IpAddr {
    type Arg<'a> = IpAddr;
    type Present<'a> = IpAddr;
    type Ref<'a> = IpAddr;
    const SHAPE: KeyShape = KeyShape::IpAddr;

    fn arg(&self) -> IpAddr {
        *self
    }

    fn encode(value: IpAddr, out: &mut KeyBuf) {
        match value {
            IpAddr::V4(address) => {
                u8::encode(V4, out);
                Ipv4Addr::encode(address, out);
            }
            IpAddr::V6(address) => {
                u8::encode(V6, out);
                Ipv6Addr::encode(address, out);
            }
        }
    }

    fn decode(reader: &mut KeyReader<'_>) -> Result<IpAddr, DecodeError> {
        Self::decode_owned(reader)
    }

    fn decode_owned(reader: &mut KeyReader<'_>) -> Result<IpAddr, DecodeError> {
        match u8::decode(reader)? {
            V4 => Ipv4Addr::decode(reader).map(IpAddr::V4),
            V6 => Ipv6Addr::decode(reader).map(IpAddr::V6),
            _ => Err(DecodeError::Value("neither an IPv4 (04) nor an IPv6 address (06)")),
        }
    }
}
