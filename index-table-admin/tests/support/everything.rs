//! A table with a key of every type.
#![allow(
    clippy::option_option,
    clippy::zero_sized_map_values,
    reason = "they have forms of their own"
)]

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    num::NonZero,
    sync::Arc,
    time::{Duration, SystemTime},
};

use index_table::{IndexKey, IndexTable};
use serde::{Deserialize, Serialize};

#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, IndexKey,
)]
pub(crate) struct Tenant(pub(crate) u32);

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum Note {
    None,
    Text(String),
    Position { x: f32, y: f64 },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "everything")]
#[indexes(
    (unsigned), (signed), (wide), (flag, allow(few_values)), (letter), (narrow_float), (float), (text), (raw), (array),
    (optional), (nested, name = "nested"), (nonzero), (lasting), (moment), (v4), (v6), (either),
    (boxed), (shared), (kind), (pair), (each(words)), (hash(long)), (desc(text), name = "descending"),
    (buffer), (naive_date), (naive_time), (utc), (time_date), (time_plain), (time_offset), (civil), (timestamp),
    (decimal), (small), (ulid), (uuid)
)]
pub(crate) struct Everything {
    #[primary_key]
    pub(crate) tenant: Tenant,
    #[primary_key]
    pub(crate) id: i64,
    unsigned: u64,
    signed: i8,
    wide: (u128, i128),
    flag: bool,
    letter: char,
    narrow_float: f32,
    float: f64,
    text: String,
    raw: Vec<u8>,
    array: [u8; 3],
    optional: Option<String>,
    nested: Option<Option<u8>>,
    nonzero: NonZero<i16>,
    lasting: Duration,
    moment: SystemTime,
    v4: Ipv4Addr,
    v6: Ipv6Addr,
    either: IpAddr,
    boxed: Box<str>,
    shared: Arc<str>,
    kind: super::Kind,
    pair: (String, u16),
    words: BTreeSet<String>,
    long: String,
    buffer: bytes::Bytes,
    naive_date: chrono::NaiveDate,
    naive_time: chrono::NaiveDateTime,
    utc: chrono::DateTime<chrono::Utc>,
    time_date: time::Date,
    time_plain: time::PrimitiveDateTime,
    time_offset: time::OffsetDateTime,
    civil: jiff::civil::Date,
    timestamp: jiff::Timestamp,
    decimal: rust_decimal::Decimal,
    small: smol_str::SmolStr,
    ulid: ulid::Ulid,
    uuid: uuid::Uuid,
    // Not keys.
    notes: Vec<Note>,
    counts: BTreeMap<(u8, char), Option<i32>>,
    unordered: HashMap<u64, f64>,
    named: BTreeMap<String, ()>,
}

/// Returns a row with extreme values that depend on `seed`.
pub(crate) fn everything(seed: i64) -> Everything {
    let low = seed.rem_euclid(256) as u8;
    let even = seed % 2 == 0;
    let text = ["", "None", "a\0\u{1}b", "<script>\"é", "plain", "$float"][usize::from(low % 6)]
        .to_owned();
    let seconds = seed * 86_399 - 5_000_000_000;
    let utc = chrono::DateTime::from_timestamp(seconds, 5).expect("an instant");
    let offset = time::OffsetDateTime::from_unix_timestamp(seconds).expect("an instant");
    let stamp = jiff::Timestamp::new(seconds, 7).expect("an instant");
    let after = Duration::new(u64::from(low) << 30, 999_999_999);
    Everything {
        tenant: Tenant(low.into()),
        id: if even { seed } else { i64::MIN + seed },
        unsigned: u64::MAX - u64::from(low),
        signed: low.cast_signed(),
        wide: (u128::MAX - u128::from(low), i128::MIN + i128::from(low)),
        flag: even,
        letter: ['x', '\0', '\u{10ffff}'][usize::from(low % 3)],
        narrow_float: [f32::NAN, -0.0, f32::MIN_POSITIVE, 1.1][usize::from(low % 4)],
        float: [f64::NEG_INFINITY, -f64::NAN, 0.1, 5e-324][usize::from(low % 4)],
        raw: vec![low, 0, 1],
        array: [low, 0, 255],
        optional: (!even).then(|| text.clone()),
        nested: [None, Some(None), Some(Some(low))][usize::from(low % 3)],
        nonzero: NonZero::new(i16::from(low) - 300).expect("not zero"),
        lasting: after,
        moment: SystemTime::UNIX_EPOCH + after,
        v4: Ipv4Addr::new(10, 0, 0, low),
        v6: Ipv6Addr::LOCALHOST,
        either: if even { IpAddr::from([127, 0, 0, low]) } else { Ipv6Addr::UNSPECIFIED.into() },
        boxed: text.as_str().into(),
        shared: text.as_str().into(),
        kind: if even { super::Kind::Private } else { super::Kind::Company },
        pair: (text.clone(), low.into()),
        words: [text.clone(), low.to_string()].into_iter().collect(),
        long: text.repeat(200),
        buffer: bytes::Bytes::from(vec![low; 4]),
        naive_date: utc.date_naive(),
        naive_time: utc.naive_utc(),
        utc,
        time_date: offset.date(),
        time_plain: time::PrimitiveDateTime::new(offset.date(), offset.time()),
        time_offset: offset,
        civil: stamp.to_zoned(jiff::tz::TimeZone::UTC).date(),
        timestamp: stamp,
        decimal: rust_decimal::Decimal::new(seed * 1001 - 7, u32::from(low % 20)),
        small: text.as_str().into(),
        ulid: ulid::Ulid::from(u128::from(low) << 64),
        uuid: uuid::Uuid::from_u128(u128::MAX - u128::from(low)),
        notes: vec![
            Note::None,
            Note::Text(text.clone()),
            Note::Position { x: f32::INFINITY, y: f64::NAN },
        ],
        counts: [((low, 'a'), None), ((1, '\0'), Some(-1))].into_iter().collect(),
        unordered: [(u64::MAX, f64::NAN), (u64::from(low), 0.1)].into_iter().collect(),
        named: [(text.clone(), ())].into_iter().collect(),
        text,
    }
}
