//! Keys of other crates' types, with the test vectors of `docs/FORMAT.md`.

#[allow(unused_imports, reason = "each feature needs some of them")]
use std::cmp::Ordering;

#[allow(unused_imports, reason = "each feature needs some of them")]
use proptest::prelude::*;

#[allow(unused_imports, reason = "each feature needs some of them")]
use super::{
    arrange::{Sample, for_every_key_type},
    decode::hostile_bytes,
    decode_owned, encoded,
    format::documented,
    golden::{Vectors, row},
    order::laws,
    through::samples,
};

/// Returns the rows of the tables for one crate.
#[allow(dead_code, reason = "for whichever features there are")]
fn rows(heading: &str, krate: &str) -> Vec<String> {
    let mut rows = documented(heading);
    rows.retain(|row| row.starts_with(&format!("| `{krate}::")));
    rows
}

#[allow(unused_macros, reason = "for whichever features there are")]
macro_rules! check {
    ($($name:ident: $type:ty;)+) => {
        mod laws {
            use super::*;
            for_every_key_type! { laws: $($name: $type;)+ }
        }

        mod hostile_bytes {
            use super::*;
            for_every_key_type! { hostile_bytes: $($name: $type;)+ }
        }
    };
}

#[allow(unused_macros, reason = "for whichever features there are")]
macro_rules! golden {
    ($krate:literal: $($name:literal $type:ty, $vectors:expr;)+) => {
        #[test]
        fn keys_have_the_documented_bytes() {
            let mut vectors = Vectors::default();
            $(vectors.add::<$type>($name, &$vectors);)+
            assert_eq!(rows("### Test vectors of other crates' types", $krate), vectors.0);
            let shapes = [$(row::<$type>($name)),+];
            assert_eq!(rows("### Shapes of other crates' types", $krate), shapes);
        }
    };
}

#[cfg(feature = "bytes")]
mod bytes {
    use ::bytes::Bytes;

    use super::*;

    samples! { Bytes: Vec<u8>, |raw| Some(raw.into()); }

    // `check!` compares `Debug` output, and `Bytes` is shown as text, but its borrowed form as a list. So
    // this test compares the encoding with that of `Vec<u8>`.
    #[test]
    fn bytes_have_the_encoding_of_a_vec() {
        super::super::arrange::for_all(Bytes::any(), |bytes| {
            let key = encoded(&bytes);
            assert_eq!(key, encoded(&bytes.to_vec()));
            assert_eq!(decode_owned::<Bytes>(&key).unwrap(), (bytes, key.len()));
        });
    }

    golden! { "bytes": "bytes::Bytes" Bytes, [(vec![7, 0].into(), "07 01 01 00")]; }
}

#[cfg(feature = "smol_str")]
mod smol_str {
    use ::smol_str::SmolStr;

    use super::*;

    samples! { SmolStr: String, |raw| Some(raw.into()); }
    check! { text: SmolStr; }
    golden! { "smol_str": "smol_str::SmolStr" SmolStr, [("a\0".into(), "61 01 01 00")]; }
}

#[cfg(feature = "compact_str")]
mod compact_str {
    use ::compact_str::CompactString;

    use super::*;

    samples! { CompactString: String, |raw| Some(raw.into()); }
    check! { text: CompactString; }
    golden! { "compact_str": "compact_str::CompactString" CompactString, [("a\0".into(), "61 01 01 00")]; }
}

#[cfg(feature = "ordered-float")]
mod ordered_float {
    use ::ordered_float::OrderedFloat;

    use super::*;

    // Decoded, all NaN are one, and -0 is 0.
    samples! {
        OrderedFloat<f32>: u32, |raw| Some(OrderedFloat(f32::from_bits(raw))).filter(|it| !it.is_nan() && it.to_bits() != 1 << 31);
        OrderedFloat<f64>: u64, |raw| Some(OrderedFloat(f64::from_bits(raw))).filter(|it| !it.is_nan() && it.to_bits() != 1 << 63);
    }
    check! { narrow: OrderedFloat<f32>; wide: OrderedFloat<f64>; }

    #[test]
    fn equal_floats_have_equal_keys() {
        let key = |value| encoded(&OrderedFloat::<f64>(value));
        assert_eq!(key(-0.0), key(0.0));
        assert_eq!(key(-f64::NAN), key(f64::from_bits(0x7ff0_0000_0000_0001)));
        assert!(key(f64::INFINITY) < key(-f64::NAN));
        let key = |value| encoded(&OrderedFloat::<f32>(value));
        assert_eq!((key(-0.0), key(-f32::NAN)), (key(0.0), key(f32::NAN)));
    }

    golden! { "ordered_float":
        "ordered_float::OrderedFloat<f32>" OrderedFloat<f32>, [(OrderedFloat(-1.5), "40 3f ff ff")];
        "ordered_float::OrderedFloat<f64>" OrderedFloat<f64>, [(OrderedFloat(1.5), "bf f8 00 00 00 00 00 00")];
    }
}

#[cfg(feature = "url")]
mod url {
    use ::url::Url;

    use super::*;

    #[test]
    fn urls_have_the_encoding_of_their_text() {
        super::super::arrange::for_all("[a-z0-9/?#%éA-Z.]{0,20}", |path| {
            let Ok(url) = Url::parse(&format!("https://Example.com/{path}")) else { return };
            let key = encoded(&url);
            assert_eq!(key, encoded(&url.as_str().to_owned()));
            assert_eq!(decode_owned::<Url>(&key).unwrap(), (url, key.len()));
        });
        decode_owned::<Url>(b"no url\0").unwrap_err();
    }

    #[test]
    fn keys_have_the_documented_bytes() {
        let url = Url::parse("https://A.b/c").unwrap();
        let vector =
            format!("| `url::Url` | `{url}` | `{}` |", super::super::format::hex(&encoded(&url)));
        assert_eq!(rows("### Test vectors of other crates' types", "url"), [vector]);
        assert_eq!(rows("### Shapes of other crates' types", "url"), [row::<Url>("url::Url")]);
    }
}

#[cfg(feature = "uuid")]
mod uuid {
    use ::uuid::Uuid;

    use super::*;

    samples! { Uuid: u128, |raw| Some(Uuid::from_u128(raw)); }
    check! { uuid: Uuid; }
    golden! { "uuid": "uuid::Uuid" Uuid, [(
        Uuid::from_u128(0x0193_5f0a_7c00_7000_8000_0000_0000_0001),
        "01 93 5f 0a 7c 00 70 00 80 00 00 00 00 00 00 01",
    )]; }
}

#[cfg(feature = "ulid")]
mod ulid {
    use ::ulid::Ulid;

    use super::*;

    samples! { Ulid: u128, |raw| Some(Ulid(raw)); }
    check! { ulid: Ulid; }
    golden! { "ulid": "ulid::Ulid" Ulid, [(
        Ulid(0x0193_5f0a_7c00_7000_8000_0000_0000_0001),
        "01 93 5f 0a 7c 00 70 00 80 00 00 00 00 00 00 01",
    )]; }
}

#[cfg(feature = "chrono")]
mod chrono {
    use ::chrono::{DateTime, NaiveDate, NaiveDateTime, NaiveTime, TimeDelta, Timelike as _, Utc};

    use super::*;

    /// Returns any day of chrono's range.
    fn date(days: u32) -> NaiveDate {
        let all = (NaiveDate::MAX - NaiveDate::MIN).num_days();
        NaiveDate::MIN + TimeDelta::days(i64::from(days) % (all + 1))
    }

    /// Returns any time of the day, including leap seconds.
    fn time(seconds: u32, nanoseconds: u32) -> Option<NaiveTime> {
        NaiveTime::from_num_seconds_from_midnight_opt(seconds % 86_400, 0)?
            .with_nanosecond(nanoseconds % 2_000_000_000)
    }

    samples! {
        NaiveDate: u32, |raw| Some(date(raw));
        NaiveDateTime: (u32, u32, u32), |raw| Some(date(raw.0).and_time(time(raw.1, raw.2)?));
        DateTime<Utc>: (u32, u32, u32), |raw| {
            Some(date(raw.0).and_time(time(raw.1, raw.2)?).and_utc())
        };
    }
    check! { date: NaiveDate; date_time: NaiveDateTime; instant: DateTime<Utc>; }

    fn at(date: (i32, u32, u32), nanoseconds: u32) -> NaiveDateTime {
        let date = NaiveDate::from_ymd_opt(date.0, date.1, date.2).unwrap();
        date.and_hms_nano_opt(23, 59, 59, nanoseconds).unwrap()
    }

    golden! { "chrono":
        "chrono::NaiveDate" NaiveDate, [
            (at((1969, 12, 31), 0).date(), "7f ff ff ff"),
            (at((1970, 1, 1), 0).date(), "80 00 00 00"),
            (at((2024, 2, 29), 0).date(), "80 00 4d 46"),
        ];
        "chrono::NaiveDateTime" NaiveDateTime, [
            (at((1969, 12, 31), 5), "7f ff ff ff 00 01 51 7f 00 00 00 05"),
            (at((2016, 12, 31), 1_500_000_000), "80 00 43 0e 00 01 51 7f 59 68 2f 00"),
        ];
        "chrono::DateTime<Utc>" DateTime<Utc>, [
            (at((1969, 12, 31), 5).and_utc(), "7f ff ff ff ff ff ff ff 00 00 00 05"),
            (at((2016, 12, 31), 1_500_000_000).and_utc(), "80 00 00 00 58 68 46 7f 59 68 2f 00"),
        ];
    }
}

#[cfg(feature = "time")]
mod time {
    use ::time::{Date, Month, OffsetDateTime, PrimitiveDateTime, Time, UtcOffset};

    use super::*;

    fn date(days: u32) -> Date {
        let (first, last) = (Date::MIN.to_julian_day(), Date::MAX.to_julian_day());
        let day = i64::from(days) % i64::from(last - first + 1) + i64::from(first);
        Date::from_julian_day(day as i32).unwrap()
    }

    fn time(seconds: u32, nanoseconds: u32) -> Option<Time> {
        let seconds = seconds % 86_400;
        let (hour, minute) = ((seconds / 3600) as u8, (seconds / 60 % 60) as u8);
        Time::from_hms_nano(hour, minute, (seconds % 60) as u8, nanoseconds % 1_000_000_000).ok()
    }

    samples! {
        Date: u32, |raw| Some(date(raw));
        PrimitiveDateTime: (u32, u32, u32), |raw| {
            Some(PrimitiveDateTime::new(date(raw.0), time(raw.1, raw.2)?))
        };
        OffsetDateTime: (u32, u32, u32), |raw| {
            Some(PrimitiveDateTime::new(date(raw.0), time(raw.1, raw.2)?).assume_utc())
        };
    }
    check! { date: Date; date_time: PrimitiveDateTime; instant: OffsetDateTime; }

    fn at(year: i32, month: Month, day: u8, nanoseconds: u32) -> PrimitiveDateTime {
        let date = Date::from_calendar_date(year, month, day).unwrap();
        date.with_hms_nano(23, 59, 59, nanoseconds).unwrap()
    }

    golden! { "time":
        "time::Date" Date, [
            (at(1969, Month::December, 31, 0).date(), "7f ff ff ff"),
            (at(2024, Month::February, 29, 0).date(), "80 00 4d 46"),
        ];
        "time::PrimitiveDateTime" PrimitiveDateTime, [
            (at(1969, Month::December, 31, 5), "7f ff ff ff 00 01 51 7f 00 00 00 05"),
        ];
        "time::OffsetDateTime" OffsetDateTime, [
            (
                at(1969, Month::December, 31, 5).assume_utc(),
                "7f ff ff ff ff ff ff ff 00 00 00 05",
            ),
        ];
    }

    #[test]
    fn the_offset_of_a_time_does_not_matter() {
        let utc = at(2024, Month::February, 29, 5).assume_utc();
        let elsewhere = utc.to_offset(UtcOffset::from_hms(-7, -30, 0).unwrap());
        assert_eq!(utc, elsewhere);
        assert_eq!(encoded(&utc), encoded(&elsewhere));
        let (read, _) = decode_owned::<OffsetDateTime>(&encoded(&elsewhere)).unwrap();
        assert_eq!((read, read.offset()), (elsewhere, UtcOffset::UTC));
    }
}

#[cfg(feature = "jiff")]
mod jiff {
    use ::jiff::{
        SignedDuration, Timestamp,
        civil::{self, Date},
    };

    use super::*;

    samples! {
        Date: u32, |raw| {
            let days = i64::from(raw) % 7_304_484;
            Date::MIN.checked_add(SignedDuration::from_hours(days * 24)).ok()
        };
        Timestamp: (i64, u32), |raw| {
            let second = raw.0 % Timestamp::MAX.as_second();
            Timestamp::new(second, (raw.1 % 1_000_000_000).cast_signed()).ok()
        };
    }
    check! { date: Date; timestamp: Timestamp; }
    golden! { "jiff":
        "jiff::civil::Date" Date, [
            (civil::date(1969, 12, 31), "7f ff ff ff"),
            (civil::date(2024, 2, 29), "80 00 4d 46"),
        ];
        "jiff::Timestamp" Timestamp, [
            (Timestamp::new(-1, 5).unwrap(), "7f ff ff ff ff ff ff ff 00 00 00 05"),
            (Timestamp::new(1, 5).unwrap(), "80 00 00 00 00 00 00 01 00 00 00 05"),
        ];
    }

    #[test]
    fn the_first_and_last_values_are_keys() {
        for date in [Date::MIN, Date::MAX] {
            assert_eq!(decode_owned::<Date>(&encoded(&date)).unwrap().0, date);
        }
        for time in [Timestamp::MIN, Timestamp::MAX] {
            assert_eq!(decode_owned::<Timestamp>(&encoded(&time)).unwrap().0, time);
        }
    }
}

#[cfg(feature = "rust_decimal")]
mod rust_decimal {
    use ::rust_decimal::Decimal;

    use super::*;

    /// Returns any number, including its trailing zeros.
    fn any_decimal() -> impl Strategy<Value = Decimal> {
        let numbers = prop_oneof![
            u128::any(),
            (0..29_u32).prop_map(|power| 10_u128.pow(power)),
            (0..1000_u128, 0..27_u32).prop_map(|(digits, power)| digits * 10_u128.pow(power)),
            Just((1 << 96) - 1),
        ];
        (numbers, bool::any(), 0..29_u32).prop_map(|(number, negative, scale)| {
            let number = (number % (1 << 96)).cast_signed();
            Decimal::from_i128_with_scale(if negative { -number } else { number }, scale)
        })
    }

    impl Sample for Decimal {
        fn order(&self, other: &Self) -> Ordering {
            self.cmp(other)
        }

        // Decoded numbers have no trailing zeros.
        fn any() -> BoxedStrategy<Self> {
            any_decimal().prop_map(|value| value.normalize()).boxed()
        }
    }
    check! { decimal: Decimal; }

    fn decimal(text: &str) -> Decimal {
        text.parse().unwrap()
    }

    golden! { "rust_decimal": "rust_decimal::Decimal" Decimal, [
        (Decimal::MIN, "46 ff 00 00 00 00 00 00 00 00 00 00 00 00"),
        (decimal("-1"), "62 ff df b0 31 a1 c1 da fd 9e ef ff ff ff"),
        (decimal("0"), "80 00 00 00 00 00 00 00 00 00 00 00 00 00"),
        (decimal("0.0000000000000000000000000001"), "81 00 20 4f ce 5e 3e 25 02 61 10 00 00 00"),
        (decimal("1"), "9d 00 20 4f ce 5e 3e 25 02 61 10 00 00 00"),
        (decimal("12.5"), "9e 00 28 63 c1 f5 cd ae 42 f9 54 00 00 00"),
    ]; }

    #[test]
    fn equal_numbers_have_one_key() {
        super::super::arrange::for_all((any_decimal(), any_decimal()), |(a, b)| {
            assert_eq!(encoded(&a).cmp(&encoded(&b)), a.cmp(&b), "{a} {b}");
            let (read, _) = decode_owned::<Decimal>(&encoded(&a)).unwrap();
            assert_eq!((read, read.scale()), (a, a.normalize().scale()), "{a}");
        });
        assert_eq!(encoded(&decimal("1.0")), encoded(&decimal("1.00")));
        assert_eq!(encoded(&decimal("-0.00")), encoded(&decimal("0")));
    }
}
