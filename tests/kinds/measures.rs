//! Money, times, addresses, texts and numbers in the types of other crates, and in forms of their own.

use std::{
    collections::{BTreeMap, HashMap},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::PathBuf,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use bytes::Bytes;
use chrono::{DateTime, NaiveDate, Utc};
use compact_str::CompactString;
use index_table::IndexTable;
use ordered_float::OrderedFloat;
use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;
use time::OffsetDateTime;
use ulid::Ulid;
use url::Url;

use crate::{
    forms::{seconds, shared, span, text, text_option},
    kind,
};

/// Money, and structs in a sequence.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Position {
    article: String,
    pieces: u32,
    price: Decimal,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
enum Money {
    Chf,
    Nok,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "invoices")]
#[index(debtor, due_on)]
#[index(sum)]
struct Invoice {
    #[primary_key]
    number: u64,
    debtor: u64,
    due_on: NaiveDate,
    positions: Vec<Position>,
    sum: Decimal,
    money: Money,
}

fn invoices() -> Vec<Invoice> {
    let position = |n: u32| Position {
        article: format!("A-{n}"),
        pieces: n * 50,
        price: Decimal::new(i64::from(n) * 1995, 2),
    };
    let invoice = |n: u32| Invoice {
        number: 1 << (6 * n),
        debtor: u64::from(n) % 3,
        due_on: NaiveDate::from_yo_opt(2025, n + 1).expect("a day"),
        positions: (0..n).map(position).collect(),
        sum: Decimal::new(i64::from(n) * 77_777, 2),
        money: [Money::Nok, Money::Chf][n as usize % 2].clone(),
    };
    (0..9).map(invoice).collect()
}

kind!(rows_with_money_and_nested_structs: InvoiceRepository("invoices"), row in invoices(),
    key: (row.number),
    many: find_by_debtor_due_on(row.debtor, row.due_on),
    many: find_by_sum(row.sum),
    change: row.positions.clear(),
    plain: row,
    more: 0,
);

/// Times as numbers, by a module of their crate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "shifts")]
#[index(worker)]
struct Shift {
    #[primary_key]
    id: u64,
    worker: u64,
    #[serde(with = "chrono::serde::ts_milliseconds")]
    began: DateTime<Utc>,
    #[serde(with = "chrono::serde::ts_milliseconds_option")]
    ended: Option<DateTime<Utc>>,
}

fn shifts() -> Vec<Shift> {
    let at = |n: u64| {
        DateTime::from_timestamp_millis(1_600_000_000_000 + n as i64 * 999_999).expect("a time")
    };
    let shift = |n: u64| Shift {
        id: n,
        worker: n % 2,
        began: at(n),
        ended: n.is_multiple_of(3).then(|| at(n + 1)),
    };
    (0..9).map(shift).collect()
}

kind!(rows_with_times_in_milliseconds: ShiftRepository("shifts"), row in shifts(),
    key: (row.id),
    many: find_by_worker(row.worker),
    change: row.ended = None,
    plain: row,
    more: 0,
);

/// Times as texts, in an index.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "reminders")]
#[index(due)]
struct Reminder {
    #[primary_key]
    id: u64,
    what: String,
    #[serde(with = "seconds")]
    due: OffsetDateTime,
    #[serde(with = "seconds::option")]
    done: Option<OffsetDateTime>,
}

fn moment(number: u64) -> OffsetDateTime {
    OffsetDateTime::UNIX_EPOCH + Duration::from_secs(number * 8_888_888)
}

fn reminders() -> Vec<Reminder> {
    let reminder = |n: u64| Reminder {
        id: n,
        what: format!("call {n}"),
        due: moment(n),
        done: n.is_multiple_of(2).then(|| moment(n + 1)),
    };
    (0..9).map(reminder).collect()
}

kind!(rows_with_times_as_texts_in_an_index: ReminderRepository("reminders"), row in reminders(),
    key: (row.id),
    many: find_by_due(row.due),
    change: row.due = moment(50),
    plain: row,
    more: 0,
);

/// Times as texts, in no index.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "chores")]
#[index(room)]
struct Chore {
    #[primary_key]
    id: u64,
    room: String,
    #[serde(with = "seconds")]
    due: OffsetDateTime,
    #[serde(with = "seconds::option")]
    done: Option<OffsetDateTime>,
}

fn chores() -> Vec<Chore> {
    let chore = |n: u64| Chore { id: n, room: format!("room {n}"), due: moment(n), done: None };
    (0..6).map(chore).collect()
}

kind!(rows_with_times_as_texts_in_no_index: ChoreRepository("chores"), row in chores(),
    key: (row.id),
    many: find_by_room(&row.room),
    change: row.done = Some(moment(7)),
    plain: row,
    more: 0,
);

/// Durations as texts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "probes")]
#[index(target, unique)]
struct Probe {
    #[primary_key]
    id: u32,
    target: String,
    #[serde(with = "span")]
    interval: Duration,
    #[serde(default, with = "span::option")]
    limit: Option<Duration>,
}

fn probes() -> Vec<Probe> {
    let probe = |n: u32| Probe {
        id: n,
        target: format!("host-{n}"),
        interval: Duration::from_secs(30 * u64::from(n)),
        limit: n.is_multiple_of(2).then(|| Duration::from_millis(1500)),
    };
    (0..7).map(probe).collect()
}

kind!(rows_with_durations_as_texts: ProbeRepository("probes"), row in probes(),
    key: (row.id),
    unique: get_by_target(&row.target),
    change: row.limit = Some(Duration::from_millis(250)),
    plain: row,
    more: 0,
);

/// A session of a website.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "visits")]
#[index(person)]
#[index(address)]
#[index(last_click)]
struct Visit {
    #[primary_key]
    cookie: [u8; 32],
    person: u64,
    address: IpAddr,
    proxy: SocketAddr,
    came_from: Option<Url>,
    browser: String,
    last_click: SystemTime,
    basket: HashMap<String, String>,
}

fn visits() -> Vec<Visit> {
    let address = |n: u8| -> IpAddr {
        if n.is_multiple_of(2) {
            Ipv4Addr::new(10, 0, 0, n).into()
        } else {
            Ipv6Addr::LOCALHOST.into()
        }
    };
    let visit = |n: u8| Visit {
        cookie: [n * 20; 32],
        person: n.into(),
        address: address(n),
        proxy: SocketAddr::new(address(n / 2), 8080),
        came_from: (n % 3 == 1)
            .then(|| Url::parse(&format!("https://example.org/?q={n}")).expect("a URL")),
        browser: "Lynx/2.9".repeat(n.into()),
        last_click: UNIX_EPOCH + Duration::from_millis(1_700_000_000_000 + u64::from(n)),
        basket: (0..n % 4).map(|at| (format!("item {at}"), "1".into())).collect(),
    };
    (0..11).map(visit).collect()
}

kind!(rows_of_sessions: VisitRepository("visits"), row in visits(),
    key: (row.cookie),
    many: find_by_person(row.person),
    many: find_by_address(row.address),
    many: find_by_last_click(row.last_click),
    change: row.last_click += Duration::from_mins(1),
    plain: row,
    more: 0,
);

/// An address in an index, and bytes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "feeds")]
#[index(source, unique)]
struct Feed {
    #[primary_key]
    id: u64,
    source: Url,
    status: u16,
    content: Bytes,
}

fn feeds() -> Vec<Feed> {
    let feed = |n: u64| Feed {
        id: n,
        source: Url::parse(&format!("https://example.com/feeds/{n}")).expect("a URL"),
        status: 200 + n as u16 * 50,
        content: vec![n as u8; n as usize * 30].into(),
    };
    (0..7).map(feed).collect()
}

kind!(rows_with_addresses_and_bytes: FeedRepository("feeds"), row in feeds(),
    key: (row.id),
    unique: get_by_source(&row.source),
    change: row.content = Bytes::from_static(b"0123456789abcdef"),
    plain: row,
    more: 0,
);

/// Shared texts and maps, and floats.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "series")]
#[index(machine, unit)]
struct Series {
    #[primary_key]
    id: u64,
    #[serde(with = "shared")]
    machine: Arc<str>,
    #[serde(with = "shared")]
    unit: Arc<str>,
    #[serde(with = "shared")]
    labels: Arc<BTreeMap<String, String>>,
    points: Vec<f64>,
}

fn series() -> Vec<Series> {
    let series = |n: u64| Series {
        id: n,
        machine: format!("m{}", n % 3).into(),
        unit: "kWh".into(),
        labels: Arc::new((0..n % 3).map(|at| (format!("label {at}"), "on".into())).collect()),
        points: (0..n).map(|at| at as f64 / 3.0).collect(),
    };
    (0..8).map(series).collect()
}

kind!(rows_with_shared_values: SeriesRepository("series"), row in series(),
    key: (row.id),
    many: find_by_machine_unit(&row.machine, &row.unit),
    change: row.points.push(-0.0),
    plain: row,
    more: 0,
);

/// Small texts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "terms")]
#[index(language)]
#[index(term)]
struct Term {
    #[primary_key]
    id: u32,
    language: SmolStr,
    term: CompactString,
}

fn terms() -> Vec<Term> {
    let term = |n: u32| Term {
        id: n * 77,
        language: ["de", "no"][n as usize % 2].into(),
        term: "ø".repeat(n as usize * 9).into(),
    };
    (0..9).map(term).collect()
}

kind!(rows_with_small_texts: TermRepository("terms"), row in terms(),
    key: (row.id),
    many: find_by_language(&row.language),
    many: find_by_term(&row.term),
    change: row.term = "fjord".into(),
    plain: row,
    more: 0,
);

/// A path in an index, a time of the system, and arrays.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "scans")]
#[index(file, unique)]
struct Scan {
    #[primary_key]
    id: u64,
    file: PathBuf,
    pages: u64,
    made: SystemTime,
    digest: Option<[u8; 32]>,
    size: (u32, u32),
}

fn scans() -> Vec<Scan> {
    let scan = |n: u64| Scan {
        id: n,
        file: PathBuf::from(format!("/scans/{n}.png")),
        pages: n * n,
        made: UNIX_EPOCH + Duration::from_nanos(n * 1_000_000_000_000_007),
        digest: n.is_multiple_of(2).then_some([n as u8; 32]),
        size: (2480, 3508 * n as u32),
    };
    (0..8).map(scan).collect()
}

kind!(rows_with_paths_and_arrays: ScanRepository("scans"), row in scans(),
    key: (row.id),
    unique: get_by_file(&row.file),
    change: row.digest = Some([0xff; 32]),
    plain: row,
    more: 0,
);

/// Values as their texts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "routers")]
#[index(label)]
struct Router {
    #[primary_key]
    id: u64,
    label: String,
    #[serde(with = "text")]
    listens_on: SocketAddr,
    #[serde(default, with = "text_option")]
    quota: Option<u64>,
}

fn routers() -> Vec<Router> {
    let router = |n: u64| Router {
        id: n,
        label: format!("r{}", n % 4),
        listens_on: SocketAddr::new(Ipv4Addr::new(192, 168, 1, n as u8).into(), 443),
        quota: n.is_multiple_of(3).then_some(u64::MAX - n),
    };
    (0..9).map(router).collect()
}

kind!(rows_with_values_as_texts: RouterRepository("routers"), row in routers(),
    key: (row.id),
    many: find_by_label(&row.label),
    change: row.quota = None,
    plain: row,
    more: 0,
);

/// Floats and ids in their order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "ratings")]
#[index(stars)]
struct Rating {
    #[primary_key]
    id: Ulid,
    film: String,
    stars: OrderedFloat<f64>,
}

fn ratings() -> Vec<Rating> {
    let rating = |n: u64| Rating {
        id: Ulid::from_parts(1_700_000_000_000 + n, 7),
        film: format!("Film {n}"),
        stars: OrderedFloat(5.0 / (n + 1) as f64),
    };
    (0..7).map(rating).collect()
}

kind!(rows_with_ordered_floats_and_ids: RatingRepository("ratings"), row in ratings(),
    key: (row.id),
    many: find_by_stars(row.stars),
    change: row.stars = OrderedFloat(-0.5),
    plain: row,
    more: 0,
);
