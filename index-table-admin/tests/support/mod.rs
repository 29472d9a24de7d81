//! Stores with rows.
#![allow(dead_code, reason = "each suite uses a part of it")]

pub(crate) mod everything;

use std::{
    path::Path,
    time::{Duration, SystemTime},
};

use index_table::{IndexKey, IndexTable, ShardMap, Store};
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, IndexKey)]
pub(crate) enum Kind {
    Private,
    Company,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "customers")]
#[index(town)]
#[index(since, desc(id))]
#[index(kind, score, include = [town])]
#[index(email, unique)]
pub(crate) struct Customer {
    #[primary_key]
    pub(crate) id: u64,
    pub(crate) town: String,
    pub(crate) since: jiff::civil::Date,
    pub(crate) kind: Kind,
    pub(crate) score: f64,
    pub(crate) email: Option<String>,
}

mod later {
    use super::{Deserialize, IndexTable, Kind, Serialize};

    #[derive(Serialize, Deserialize, IndexTable)]
    #[table(name = "customers")]
    pub(crate) struct Customer {
        #[primary_key]
        id: u64,
        town: String,
        since: jiff::civil::Date,
        kind: Kind,
        score: f64,
        email: Option<String>,
    }
}

/// Another type with the same table.
pub(crate) mod other {
    use super::{Deserialize, IndexTable, Serialize};

    #[derive(Serialize, Deserialize, IndexTable)]
    #[table(name = "customers")]
    pub(crate) struct Customer {
        #[primary_key]
        pub(crate) id: u64,
    }
}

mod online {
    use super::{Deserialize, IndexTable, Kind, Serialize};

    #[derive(Serialize, Deserialize, IndexTable)]
    #[table(name = "customers")]
    #[index(town)]
    #[index(score)]
    pub(crate) struct Customer {
        #[primary_key]
        id: u64,
        town: String,
        since: jiff::civil::Date,
        kind: Kind,
        score: f64,
        email: Option<String>,
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "orders", shard_by = tenant)]
#[index(total)]
#[index(code, unique, scope = "global")]
#[aggregate(tenant, sum = [total])]
pub(crate) struct Order {
    #[primary_key]
    pub(crate) tenant: u32,
    #[primary_key]
    pub(crate) number: u64,
    pub(crate) total: i64,
    pub(crate) code: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "readings", shard_by = [place, day])]
pub(crate) struct Reading {
    #[primary_key]
    pub(crate) place: String,
    #[primary_key]
    pub(crate) day: jiff::civil::Date,
    #[primary_key]
    pub(crate) number: u32,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "postal_codes", reference)]
pub(crate) struct PostalCode {
    #[primary_key]
    pub(crate) code: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "sessions", expires = until)]
pub(crate) struct Session {
    #[primary_key]
    id: u64,
    until: SystemTime,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "documents", repository = DocumentsV1)]
pub(crate) struct DocumentV1 {
    #[primary_key]
    id: u64,
    text: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "documents", version = 2, previous = DocumentV1)]
pub(crate) struct Document {
    #[primary_key]
    id: u64,
    text: String,
    pages: u32,
}

impl From<DocumentV1> for Document {
    fn from(old: DocumentV1) -> Self {
        Self { id: old.id, text: old.text, pages: 1 }
    }
}

/// Creates a store with documents of the older version, with texts of this length.
pub(crate) fn older_documents(dir: &Path, rows: u64, length: usize) {
    let store = Store::open(dir).expect("a store");
    let documents = DocumentsV1::open(&store).expect("a table");
    let document = |id| DocumentV1 { id, text: "x".repeat(length) };
    documents.bulk_load(&store, (0..rows).map(document)).run().expect("a load");
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "events", changes)]
#[index(kind)]
#[index(text, consistency = "eventual")]
pub(crate) struct Event {
    #[primary_key]
    pub(crate) id: u64,
    pub(crate) kind: u8,
    pub(crate) text: String,
    pub(crate) body: String,
}

pub(crate) fn event(id: u64) -> Event {
    Event { id, kind: (id % 2) as u8, text: id.to_string(), body: String::new() }
}

/// Creates a store with sessions that have expired, and others that have not.
pub(crate) fn sessions(dir: &Path, expired: u64, live: u64) {
    let store = Store::open(dir).expect("a store");
    let sessions = SessionRepository::open(&store).expect("a table");
    let hour = Duration::from_hours(1);
    let now = SystemTime::now();
    store
        .transaction(|txn| {
            (0..expired + live).try_for_each(|id| {
                let until = if id < expired { now - hour } else { now + hour };
                sessions.insert(txn, &Session { id, until })
            })
        })
        .expect("a commit");
}

pub(crate) fn customer(id: u64) -> Customer {
    Customer {
        id,
        town: if id.is_multiple_of(2) { "Bergen" } else { "Oslo" }.to_owned(),
        since: jiff::civil::date(2024, 2, 1)
            .saturating_add(jiff::Span::new().days(id.cast_signed())),
        kind: if id.is_multiple_of(2) { Kind::Private } else { Kind::Company },
        score: if id == 1 { -0.5 } else { 1.5 },
        email: Some(format!("{id}@example.com")),
    }
}

/// Creates a plain store with customers, numbered from 1.
pub(crate) fn plain(rows: u64) -> TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    let store = Store::open(dir.path()).expect("a store");
    let customers = CustomerRepository::open(&store).expect("a table");
    store
        .transaction(|txn| (1..=rows).try_for_each(|id| customers.insert(txn, &customer(id))))
        .expect("a commit");
    dir
}

/// A table whose index packs its primary keys, with one in each block.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "visits")]
#[index(place)]
pub(crate) struct Visit {
    #[primary_key]
    id: u64,
    place: u64,
}

/// The number of [`visits`], of which an overview reads a part.
pub(crate) const VISITS: u64 = 40_000;

/// Creates a store with visits.
pub(crate) fn visits() -> TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    let store = Store::open(dir.path()).expect("a store");
    let visits = VisitRepository::open(&store).expect("a table");
    let visit = |id: u64| Visit { id, place: id.wrapping_mul(0x9E37_79B9_7F4A_7C15) };
    visits.bulk_load(&store, (0..VISITS).map(visit)).run().expect("a load");
    dir
}

pub(crate) fn open_without_indexes(dir: &Path) {
    let store = Store::open(dir).expect("a store");
    later::CustomerRepository::open(&store).expect("a table");
}

/// Declares an index that is not built yet.
pub(crate) fn declare_another_index(dir: &Path) {
    let store = Store::open(dir).expect("a store");
    online::CustomerRepository::open_online(&store).expect("a table");
}

/// Returns an order with a code of its own.
pub(crate) fn order_row(tenant: u32, number: u64) -> Order {
    Order { tenant, number, total: 9, code: format!("{tenant}/{number}") }
}

/// Creates a store with two shards, three orders in each, and a reference table.
pub(crate) fn sharded() -> TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    let store = Store::options()
        .shard("north", "north")
        .shard("south", "south")
        .map("orders", ShardMap::ranges().to("north", ..100u32).to("south", 100u32..))
        .open(dir.path())
        .expect("a store");
    let orders = OrderRepository::open(&store).expect("a table");
    let codes = PostalCodeRepository::open(&store).expect("a table");
    store
        .transaction(|txn| {
            for number in 1..=3_u32 {
                let code = |side: &str| format!("{side}{number}");
                let total = i64::from(number);
                orders.insert(
                    txn,
                    &Order { tenant: 7, number: number.into(), total, code: code("n") },
                )?;
                let south =
                    Order { tenant: 107, number: number.into(), total: -total, code: code("s") };
                orders.insert(txn, &south)?;
            }
            codes.insert(txn, &PostalCode { code: "0150".to_owned() })
        })
        .expect("a commit");
    dir
}
