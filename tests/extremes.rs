//! The least and the greatest values of each type of key, listed by hand: they are read as they were written, in their order.

use std::{
    borrow::Cow,
    fmt::Debug,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    num::NonZero,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use bytes::Bytes;
use chrono::{DateTime, NaiveDate, NaiveDateTime, NaiveTime, Timelike as _, Utc};
use index_table::{
    __private::{
        Key,
        admin::{KeyBuf, KeyShape},
    },
    Cursor, IndexKey, IndexTable, Store,
};
use jiff::Timestamp;
use rust_decimal::Decimal;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use smol_str::SmolStr;
use time::{Date, OffsetDateTime, PrimitiveDateTime, UtcOffset};
use ulid::Ulid;
use uuid::Uuid;

type TestResult = Result<(), Box<dyn std::error::Error>>;

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, IndexKey)]
enum Rank {
    #[key(order = 0)]
    First,
    #[key(order = 65_535)]
    Last,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexKey)]
struct Place {
    floor: i8,
    name: String,
}

type Twelve = (u8, u8, u8, u8, u8, u8, u8, u8, u8, u8, u8, u8);

/// A text that values share. serde has an implementation for `Arc` with a feature only.
#[derive(Debug, Clone, PartialEq, IndexKey)]
struct Shared {
    text: Arc<str>,
}

impl Serialize for Shared {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.text.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Shared {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|text| Self { text: text.into() })
    }
}

/// Whether a value was read as it was written. NaNs are equal to no value.
fn is_same<A: PartialEq<B> + Debug, B: Debug>(read: &A, written: &B) -> bool {
    let (shown, expected) = (format!("{read:?}"), format!("{written:?}"));
    read == written || (shown.contains("NaN") && shown == expected)
}

/// Checks that code without types reads a key, and writes it again.
fn check_plain<T: Key>(value: &T) -> TestResult {
    let (mut typed, mut plain) = (KeyBuf::new(), KeyBuf::new());
    typed.push(value);
    let values = KeyShape::read_key([&T::SHAPE], typed.as_bytes()).map_err(|it| it.to_string())?;
    T::SHAPE.write(&values[0], &mut plain).map_err(|it| it.to_string())?;
    assert_eq!(plain.as_bytes(), typed.as_bytes(), "{values:?}");
    Ok(())
}

/// Tests a type of key with ascending values. The closure returns a value as a parameter of a query.
macro_rules! extremes {
    ($name:ident: $type:ty, |$value:ident| $arg:expr, [$($listed:expr),+ $(,)?]) => {
        #[allow(deprecated, reason = "warnings about the indexes of some types")]
        mod $name {
            use super::*;

            #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
            #[index(copy)]
            #[index(desc(copy), name = "down")]
            #[index(number, include = [copy])]
            #[aggregate(copy, sum = [number])]
            struct Row {
                #[primary_key]
                key: $type,
                copy: $type,
                number: i64,
            }

            #[test]
            #[allow(clippy::redundant_closure_call, reason = "the closure is a parameter")]
            fn each_extreme_is_read_as_it_was_written() -> TestResult {
                let values: Vec<$type> = vec![$($listed),+];
                let store = Store::in_memory();
                let table = RowRepository::open(&store)?;
                let row = |at: usize| Row {
                    key: values[at].clone(),
                    copy: values[at].clone(),
                    number: if at.is_multiple_of(2) { i64::MAX } else { i64::MIN },
                };
                store.transaction(|txn| {
                    (0..values.len()).rev().try_for_each(|at| table.insert(txn, &row(at)))
                })?;
                assert!(table.verify(&store.read()?).run()?.is_clean());

                let txn = store.read()?;
                let all = |found: &[$type]| {
                    assert_eq!(found.len(), values.len(), "{found:?}");
                    let mut pairs = found.iter().zip(&values);
                    assert!(pairs.all(|(a, b)| is_same(a, b)), "{found:?}");
                };
                all(&table.all(&txn).keys().collect::<Result<Vec<_>, _>>()?);
                let rows = table.by_copy(&txn).rows().collect::<Result<Vec<_>, _>>()?;
                all(&rows.into_iter().map(|row| row.copy).collect::<Vec<_>>());
                all(&table.by_down(&txn).rev().keys().collect::<Result<Vec<_>, _>>()?);
                all(&table.by_copy(&txn).page(values.len())?.items.into_iter().map(|row| row.key).collect::<Vec<_>>());
                let carried = table.by_number(&txn).entries().collect::<Result<Vec<_>, _>>()?;
                assert_eq!(carried.len(), values.len());

                let mut entries = table.by_copy(&txn).entries();
                let mut distinct = table.distinct_copy(&txn).counts();
                let mut totals = table.aggregates_by_copy(&txn);
                let mut cursor: Option<Cursor> = None;
                for (at, $value) in values.iter().enumerate() {
                    check_plain($value)?;
                    let own = row(at);
                    let arg = $arg;
                    let entry = entries.next().ok_or("no entry")??;
                    assert!(is_same(&entry.copy, &arg), "{entry:?} {arg:?}");
                    let (found, count) = distinct.next().ok_or("no value")??;
                    assert!(is_same(&found, &arg) && count == 1, "{found:?} {count}");
                    let group = totals.next().ok_or("no group")??;
                    assert!(is_same(&group.copy, $value), "{group:?}");
                    assert_eq!((group.count, group.sum_number), (1, own.number.into()));
                    assert_eq!(table.aggregate_by_copy(&txn, arg)?.count, 1);

                    assert!(table.get(&txn, arg)?.is_some_and(|row| is_same(&row.key, $value)));
                    assert_eq!(table.find_by_copy(&txn, arg).count()?, 1);
                    assert_eq!(table.find_by_down(&txn, arg).count()?, 1);
                    assert_eq!(table.find_by_copy_range(&txn, arg..).count()?, (values.len() - at) as u64);
                    assert_eq!(table.find_by_copy_range(&txn, ..=arg).count()?, at as u64 + 1);
                    assert_eq!(table.find_by_copy_range(&txn, ..arg).count()?, at as u64);
                    assert_eq!(table.find_by_copy_in(&txn, [arg]).count()?, 1);

                    let scan = table.by_copy(&txn);
                    let page = match &cursor {
                        None => scan.page(1)?,
                        Some(after) => scan.after(&after.to_string().parse()?).page(1)?,
                    };
                    assert!(is_same(&page.items[0].copy, $value), "{:?}", page.items);
                    cursor = page.next;
                    assert_eq!(cursor.is_some(), at + 1 < values.len());
                }
                Ok(())
            }
        }
    };
}

macro_rules! integers {
    ($($type:ident)+) => {$(
        extremes! { $type: $type, |value| *value, [$type::MIN, $type::MIN + 1, 100, $type::MAX - 1, $type::MAX] }
    )+};
}

integers!(u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize);

extremes! { boolean: bool, |value| *value, [false, true] }
extremes! { character: char, |value| *value, ['\0', '\u{D7FF}', '\u{E000}', char::MAX] }
extremes! { single: f32, |value| *value, [
    f32::from_bits(u32::MAX), f32::NEG_INFINITY, f32::MIN, -f32::from_bits(1), -0.0, 0.0, f32::from_bits(1), f32::MAX,
    f32::INFINITY, f32::from_bits(u32::MAX >> 1),
] }
extremes! { double: f64, |value| *value, [
    f64::from_bits(u64::MAX), f64::NEG_INFINITY, f64::MIN, -f64::from_bits(1), -0.0, 0.0, f64::from_bits(1), f64::MAX,
    f64::INFINITY, f64::from_bits(u64::MAX >> 1),
] }
// Three of them make the longest entry of an index: 511 bytes.
extremes! { string: String, |value| value.as_str(), [
    String::new(), "\0".into(), "\0\0".into(), "\u{1}".into(), "\u{2}".into(), "\u{10FFFF}".repeat(63),
] }
extremes! { blob: Vec<u8>, |value| value.as_slice(), [
    vec![], vec![0], vec![0, 0], vec![1], vec![2], vec![255; 254],
] }
extremes! { byte: [u8; 1], |value| *value, [[0], [1], [254], [255]] }
extremes! { array: [u8; 32], |value| *value, [[0; 32], [1; 32], [255; 32]] }
extremes! { boxed: Box<str>, |value| &**value, ["".into(), "\0".into(), "\u{10FFFF}".into()] }
extremes! { cow: Cow<'static, str>, |value| &**value, ["".into(), "\0".into(), "\u{10FFFF}".into()] }
extremes! { shared: Shared, |value| value.arg(), [
    Shared { text: "".into() }, Shared { text: "\0".into() }, Shared { text: "\u{10FFFF}".into() },
] }

mod non_zero {
    use super::*;

    macro_rules! non_zero {
        ($($type:ident)+) => {$(
            extremes! { $type: NonZero<$type>, |value| *value, [NonZero::<$type>::MIN, NonZero::<$type>::MAX] }
        )+};
    }

    non_zero!(u8 u16 u32 u64 u128 usize);
}

mod signed_non_zero {
    use super::*;

    macro_rules! signed {
        ($($type:ident)+) => {$(
            extremes! { $type: NonZero<$type>, |value| *value, [
                NonZero::<$type>::MIN, NonZero::new(-1).ok_or("0")?, NonZero::new(1).ok_or("0")?, NonZero::<$type>::MAX,
            ] }
        )+};
    }

    signed!(i8 i16 i32 i64 i128 isize);
}

extremes! { option: Option<u8>, |value| *value, [None, Some(0), Some(255)] }
extremes! { optional_text: Option<String>, |value| value.as_deref(), [
    None, Some(String::new()), Some("\0".into()), Some("\u{10FFFF}".into()),
] }
extremes! { nested: Option<Option<i8>>, |value| *value, [None, Some(None), Some(Some(-128)), Some(Some(127))] }
extremes! { pair: (i8, u8), |value| *value, [(-128, 0), (-128, 255), (127, 0), (127, 255)] }
extremes! { triple: (bool, char, i64), |value| *value, [
    (false, '\0', i64::MIN), (false, '\0', i64::MAX), (false, char::MAX, i64::MIN), (true, '\0', i64::MIN),
    (true, char::MAX, i64::MAX),
] }
extremes! { twelve: Twelve, |value| *value, [
    (0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), (0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255),
    (255, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), (255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255),
] }
extremes! { duration: Duration, |value| *value, [Duration::ZERO, Duration::new(0, 999_999_999), Duration::MAX] }
extremes! { ipv4: Ipv4Addr, |value| *value, [Ipv4Addr::UNSPECIFIED, Ipv4Addr::BROADCAST] }
extremes! { ipv6: Ipv6Addr, |value| *value, [Ipv6Addr::UNSPECIFIED, Ipv6Addr::from_bits(u128::MAX)] }
extremes! { ip: IpAddr, |value| *value, [
    Ipv4Addr::UNSPECIFIED.into(), Ipv4Addr::BROADCAST.into(), Ipv6Addr::UNSPECIFIED.into(), Ipv6Addr::from_bits(u128::MAX).into(),
] }
extremes! { rank: Rank, |value| *value, [Rank::First, Rank::Last] }
extremes! { place: Place, |value| value.arg(), [
    Place { floor: -128, name: String::new() }, Place { floor: -128, name: "\u{10FFFF}".into() },
    Place { floor: 127, name: "\0".into() },
] }

extremes! { bytes_of_a_crate: Bytes, |value| &**value, [Bytes::new(), Bytes::from_static(&[0]), vec![255; 254].into()] }
extremes! { small_text: SmolStr, |value| value.as_str(), ["".into(), "\0".into(), "\u{10FFFF}".into()] }
extremes! { uuid_of_a_crate: Uuid, |value| *value, [Uuid::nil(), Uuid::max()] }
extremes! { ulid_of_a_crate: Ulid, |value| *value, [Ulid(0), Ulid(u128::MAX)] }

fn decimal(digits: i128, scale: u32) -> Result<Decimal, String> {
    Decimal::try_from_i128_with_scale(digits, scale).map_err(|error| error.to_string())
}

const DIGITS: i128 = (1 << 96) - 1;

extremes! { decimal_of_a_crate: Decimal, |value| *value, [
    Decimal::MIN, decimal(-DIGITS, 28)?, decimal(-1, 28)?, Decimal::ZERO, decimal(1, 28)?, decimal(DIGITS, 28)?,
    decimal(DIGITS, 1)?, Decimal::MAX,
] }

extremes! { chrono_date: NaiveDate, |value| *value, [NaiveDate::MIN, NaiveDate::MAX] }

/// Returns the leap second after the last second of a day.
fn leap_second(date: NaiveDate) -> Result<NaiveDateTime, &'static str> {
    let time =
        NaiveTime::from_hms_opt(23, 59, 59).and_then(|time| time.with_nanosecond(1_999_999_999));
    Ok(date.and_time(time.ok_or("no leap second")?))
}

extremes! { chrono_time: NaiveDateTime, |value| *value, [
    NaiveDateTime::MIN, NaiveDateTime::MAX, leap_second(NaiveDate::MAX)?,
] }
extremes! { chrono_instant: DateTime<Utc>, |value| *value, [
    DateTime::<Utc>::MIN_UTC, leap_second(NaiveDate::from_ymd_opt(2016, 12, 31).ok_or("no date")?)?.and_utc(),
    DateTime::<Utc>::MAX_UTC, leap_second(NaiveDate::MAX)?.and_utc(),
] }

extremes! { jiff_date: jiff::civil::Date, |value| *value, [jiff::civil::Date::MIN, jiff::civil::Date::MAX] }
extremes! { jiff_instant: Timestamp, |value| *value, [Timestamp::MIN, Timestamp::UNIX_EPOCH, Timestamp::MAX] }

extremes! { time_date: Date, |value| *value, [Date::MIN, Date::MAX] }
extremes! { time_time: PrimitiveDateTime, |value| *value, [PrimitiveDateTime::MIN, PrimitiveDateTime::MAX] }

/// Returns a time with the greatest offset from UTC, which in UTC is beyond the first or the last time.
fn beyond(
    time: PrimitiveDateTime,
    sign: i8,
) -> Result<OffsetDateTime, time::error::ComponentRange> {
    Ok(time.assume_offset(UtcOffset::from_hms(25 * sign, 59 * sign, 59 * sign)?))
}

extremes! { time_instant: OffsetDateTime, |value| *value, [
    beyond(PrimitiveDateTime::MIN, 1)?, PrimitiveDateTime::MIN.assume_utc(), OffsetDateTime::UNIX_EPOCH,
    PrimitiveDateTime::MAX.assume_utc(), beyond(PrimitiveDateTime::MAX, -1)?,
] }

/// Returns the last time of the clock of this machine. Rows with times before 1970 are refused by serde.
fn last_of_the_clock() -> SystemTime {
    let steps = (0..64).rev().map(|bit| Duration::from_secs(1 << bit));
    let steps = steps.chain([Duration::from_nanos(999_999_999)]);
    steps.fold(UNIX_EPOCH, |time, step| time.checked_add(step).unwrap_or(time))
}

extremes! { system_time: SystemTime, |value| *value, [
    UNIX_EPOCH, UNIX_EPOCH + Duration::from_nanos(1), last_of_the_clock(),
] }

/// A row with a time before 1970, which serde refuses in a field.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[index(computed(time: SystemTime))]
struct Early {
    #[primary_key]
    id: u32,
    before: Duration,
}

impl Early {
    fn time(&self) -> SystemTime {
        UNIX_EPOCH - self.before
    }
}

#[test]
fn the_first_times_of_the_clock_are_read_as_they_were_written() -> TestResult {
    let steps = (0..64).rev().map(|bit| Duration::from_secs(1 << bit));
    let first = steps.fold(Duration::ZERO, |before, step| {
        let next = before.saturating_add(step);
        if UNIX_EPOCH.checked_sub(next).is_some() { next } else { before }
    });
    let [second, moment] = [Duration::from_secs(1), Duration::from_nanos(1)];
    let before = [
        first,
        first.saturating_sub(moment),
        second + moment,
        second,
        second.saturating_sub(moment),
        moment,
        Duration::ZERO,
    ];
    let rows: Vec<_> = (0..).zip(before).map(|(id, before)| Early { id, before }).collect();

    let store = Store::in_memory();
    let table = EarlyRepository::open(&store)?;
    store.transaction(|txn| rows.iter().rev().try_for_each(|row| table.insert(txn, row)))?;
    let txn = store.read()?;
    assert_eq!(table.by_time(&txn).rows().collect::<Result<Vec<_>, _>>()?, rows);
    for (entry, row) in table.by_time(&txn).entries().zip(&rows) {
        assert_eq!(entry?.time, row.time());
        assert_eq!(table.find_by_time(&txn, row.time()).count()?, 1);
        check_plain(&row.time())?;
    }
    assert!(table.verify(&txn).run()?.is_clean());
    Ok(())
}
