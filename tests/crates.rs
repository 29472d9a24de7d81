//! Types of other crates, and of the standard library, in rows and in their keys.

use std::{
    borrow::Cow,
    net::{IpAddr, Ipv6Addr},
    num::NonZero,
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use bytes::Bytes;
use chrono::{DateTime, NaiveDate, Utc};
use compact_str::CompactString;
use index_table::{IndexTable, Store};
use ordered_float::OrderedFloat;
use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;
use time::OffsetDateTime;
use ulid::Ulid;
use url::Url;
use uuid::Uuid;

type TestResult = Result<(), Box<dyn std::error::Error>>;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[index(day, at, include = [price, ip])]
#[index(price)]
#[index(name, include = [title])]
#[index(title)]
#[index(payload, strategy = "full")]
#[index(ulid, unique)]
#[index(seen, moment, stamp)]
#[index(ip, pause, number)]
#[index(url, path, include = [word])]
#[index(word, score)]
struct Sale {
    #[primary_key]
    id: Uuid,
    ulid: Ulid,
    day: NaiveDate,
    at: DateTime<Utc>,
    moment: OffsetDateTime,
    stamp: jiff::Timestamp,
    price: Decimal,
    name: SmolStr,
    title: Cow<'static, str>,
    payload: Bytes,
    seen: SystemTime,
    ip: IpAddr,
    pause: Duration,
    number: NonZero<u16>,
    url: Url,
    path: PathBuf,
    word: CompactString,
    score: OrderedFloat<f64>,
}

fn sale(number: u16) -> Result<Sale, Box<dyn std::error::Error>> {
    let seconds = i64::from(number) * 1000;
    let at = DateTime::from_timestamp(seconds, 5).ok_or("no time")?;
    Ok(Sale {
        id: Uuid::from_u128(u128::from(number) << 64),
        ulid: Ulid(u128::from(number)),
        day: at.date_naive(),
        at,
        moment: OffsetDateTime::from_unix_timestamp(seconds)?,
        stamp: jiff::Timestamp::from_second(seconds).map_err(|error| error.to_string())?,
        price: Decimal::new(i64::from(number) * 10, 2),
        name: format!("name {number}").into(),
        title: format!("title {number}").into(),
        payload: vec![0, 1, number as u8].into(),
        seen: UNIX_EPOCH + Duration::from_secs(number.into()),
        ip: Ipv6Addr::from_bits(number.into()).into(),
        pause: Duration::from_millis(number.into()),
        number: NonZero::new(number).ok_or("zero")?,
        url: Url::parse(&format!("https://Example.com/{}", number / 10))?,
        path: format!("/films/{number}").into(),
        word: if number.is_multiple_of(2) { "even" } else { "odd" }.into(),
        score: OrderedFloat(f64::from(number) / 10.0 - 5.0),
    })
}

#[test]
fn rows_are_found_by_keys_of_other_crates_types() -> TestResult {
    let dir = tempfile::tempdir()?;
    let store = Store::options().map_size(1 << 26).open(dir.path())?;
    let sales = SaleRepository::open(&store)?;
    let rows = (1..300).map(sale).collect::<Result<Vec<_>, _>>()?;
    store.transaction(|txn| rows.iter().try_for_each(|row| sales.insert(txn, row)))?;

    let txn = store.read()?;
    assert_eq!(sales.all(&txn).rows().collect::<Result<Vec<_>, _>>()?, rows);
    let row = &rows[110];
    assert_eq!(sales.get(&txn, row.id)?.as_ref(), Some(row));
    assert_eq!(sales.get_by_ulid(&txn, row.ulid)?.as_ref(), Some(row));
    // 11.10 and 11.100 are equal numbers.
    let price = Decimal::new(11_100, 3);
    assert_eq!(sales.find_by_price(&txn, price).first()?.as_ref(), Some(row));
    assert_eq!(sales.find_by_price_range(&txn, price..).count()?, 189);
    assert_eq!(sales.find_by_day(&txn, row.day).count()?, 86);
    let entry = sales.find_by_day_at(&txn, row.day, row.at).entries().next().ok_or("none")??;
    assert_eq!((entry.id, entry.price, entry.ip), (row.id, price, row.ip));
    let entry = sales.find_by_name(&txn, "name 111").entries().next().ok_or("none")??;
    assert_eq!((entry.name, entry.title), ("name 111", "title 111"));
    assert_eq!(sales.find_by_title_starting_with(&txn, "title 1").count()?, 111);
    assert_eq!(sales.find_by_payload(&txn, &[0, 1, 7]).count()?, 2);
    let entry = sales.by_payload(&txn).entries().next().ok_or("none")??;
    assert_eq!(entry.payload, rows[255].payload);
    let found = sales.find_by_seen_moment_stamp(&txn, row.seen, row.moment, row.stamp);
    assert_eq!(found.first()?.as_ref(), Some(row));
    let found = sales.find_by_ip_pause_number(&txn, row.ip, row.pause, row.number);
    assert_eq!(found.first()?.as_ref(), Some(row));
    let found = sales.find_by_url_path(&txn, &row.url, &row.path);
    assert_eq!(found.first()?.as_ref(), Some(row));
    let entry = sales.find_by_url(&txn, &row.url).entries().next().ok_or("none")??;
    assert_eq!((entry.url, entry.path), ("https://example.com/11", Path::new("/films/110")));
    assert_eq!(entry.word, "even");
    let scores = sales.find_by_word_score_range(&txn, "odd", OrderedFloat(-0.0)..);
    assert_eq!(scores.count()?, 125);
    let urls = sales.distinct_url(&txn).values().collect::<Result<Vec<&str>, _>>()?;
    assert_eq!((urls.len(), urls.contains(&row.url.as_str())), (30, true));
    Ok(())
}
