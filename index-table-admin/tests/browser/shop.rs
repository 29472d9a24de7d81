//! A service with a store whose page has every view, and a follower of another store.

use std::{
    net::SocketAddr,
    sync::mpsc::{Sender, channel},
    thread,
    time::{Duration, SystemTime},
};

use axum::Router;
use index_table::{Durability, Follower, IndexKey, IndexTable, ShardMap, Store};
use serde::{Deserialize, Serialize};
use tempfile::TempDir;
use tokio::{net::TcpListener, runtime, sync::oneshot};

pub(crate) const MARKUP: &str =
    "<script>document.title='pwned'</script><img src=x onerror=alert(1)>\"'&";

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, IndexKey)]
pub(crate) enum Kind {
    Private,
    Company,
    Club,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "customers", shard_by = hash(id), shard_map = "customers", changes)]
#[index(town, name)]
#[index(since)]
#[index(kind, score, include = [town])]
#[index(email, unique, scope = "global")]
#[index(hash(note))]
#[index(score, desc(since), consistency = "eventual", name = "ranking")]
pub(crate) struct Customer {
    #[primary_key]
    pub(crate) id: u64,
    pub(crate) name: String,
    pub(crate) town: String,
    pub(crate) since: jiff::civil::Date,
    pub(crate) kind: Kind,
    pub(crate) score: f64,
    pub(crate) email: Option<String>,
    pub(crate) note: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "orders", shard_by = tenant, shard_map = "tenants")]
#[index(placed)]
#[index(total)]
pub(crate) struct Order {
    #[primary_key]
    pub(crate) tenant: u32,
    #[primary_key]
    pub(crate) number: u64,
    pub(crate) placed: SystemTime,
    pub(crate) total: i64,
    pub(crate) lines: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "notes")]
pub(crate) struct Note {
    #[primary_key]
    pub(crate) id: u64,
}

const TOWNS: [&str; 16] = [
    "Oslo",
    "Bergen",
    "Trondheim",
    "Stavanger",
    "Tromsø",
    "Kristiansand",
    "Ålesund",
    "Bodø",
    "Drammen",
    "Fredrikstad",
    "Haugesund",
    "Lillehammer",
    "Molde",
    "Narvik",
    "Sandnes",
    "Voss",
];

const NAMES: [&str; 12] = [
    "Berg", "Dahl", "Eide", "Foss", "Hagen", "Iversen", "Johansen", "Kvam", "Lie", "Moen",
    "Nygård", "Strand",
];

/// Returns numbers that look random, and are the same in each run.
fn mixed(number: u64) -> u64 {
    let mixed = (number ^ number >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 16
}

fn of<'a>(all: &[&'a str], number: u64) -> &'a str {
    // The first items are more common.
    let part =
        |bits: u64| usize::try_from(mixed(number + bits) % all.len() as u64).expect("a position");
    all[part(1).min(part(2)).min(part(3))]
}

pub(crate) fn customer(id: u64) -> Customer {
    let days = i64::try_from(mixed(id) % 3000).expect("days");
    let score =
        f64::from(u32::try_from(mixed(id + 7) % 1000 + mixed(id + 8) % 1000).expect("a score"));
    Customer {
        id,
        name: of(&NAMES, id).to_owned(),
        town: of(&TOWNS, id * 5).to_owned(),
        since: jiff::civil::date(2016, 1, 1).saturating_add(jiff::Span::new().days(days)),
        kind: [Kind::Private, Kind::Private, Kind::Company, Kind::Club][(mixed(id) % 4) as usize],
        score: score / 10.0 - 50.0,
        email: Some(format!("{id}@example.com")),
        note: format!("customer {id}"),
    }
}

fn order(tenant: u32, number: u64) -> Order {
    let begun = SystemTime::UNIX_EPOCH + Duration::from_hours(480_000);
    Order {
        tenant,
        number,
        placed: begun + Duration::from_secs(mixed(number) % 40_000_000),
        total: i64::try_from(mixed(number) % 90_000).expect("a total") - 5_000,
        lines: (0..mixed(number) % 4).map(|line| format!("article {line}")).collect(),
    }
}

/// A service. It ends when it is dropped.
pub(crate) struct Service {
    pub(crate) address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Service {
    pub(crate) fn start(routes: Router) -> Self {
        let runtime = runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a port");
        let address = listener.local_addr().expect("an address");
        let (stop, stopped) = oneshot::channel();
        let thread = thread::spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    served = axum::serve(listener, routes) => served.expect("served"),
                    _ = stopped => {}
                }
            });
        });
        Self { address, stop: Some(stop), thread: Some(thread) }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}/{path}", self.address)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the service ends");
        }
    }
}

/// A sharded store with customers and orders, of which some keys are being moved.
pub(crate) struct Shop {
    pub(crate) store: Store,
    pub(crate) customers: CustomerRepository,
    pub(crate) _orders: OrderRepository,
    _directory: TempDir,
}

impl Shop {
    pub(crate) fn new(rows: u64) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let store = Store::options()
            .durability(Durability::Journal)
            .shard("north", "north")
            .shard("middle", "middle")
            .shard("south", "south")
            .map("customers", ShardMap::hashed(["north", "middle", "south"]))
            .map(
                "tenants",
                ShardMap::ranges()
                    .to("north", ..100_u32)
                    .to("south", 100_u32..140)
                    .to("middle", 140_u32..400)
                    .to("north", 400_u32..),
            )
            .open(directory.path().join("shop"))
            .expect("a store");
        let customers = CustomerRepository::open(&store).expect("a table");
        let orders = OrderRepository::open(&store).expect("a table");
        let _mailer = customers.changes(&store, "mailer").expect("a consumer");
        let mut search = customers.changes(&store, "search").expect("a consumer");
        for some in (1..=rows).collect::<Vec<_>>().chunks(1000) {
            let write = |txn: &mut index_table::WriteTxn<'_>| {
                some.iter().try_for_each(|id| customers.insert(txn, &customer(*id)))?;
                some.iter().try_for_each(|number| {
                    let tenant = u32::try_from(mixed(*number) % 500).expect("a tenant");
                    orders.insert(txn, &order(tenant, *number))
                })
            };
            store.transaction(write).expect("a commit");
        }
        customers.drain(&store, rows + 1).expect("entries");
        for id in 1..=64 {
            let change = |txn: &mut index_table::WriteTxn<'_>| {
                customers.update(txn, id, |row| row.score += 1.0).map(drop)
            };
            store.transaction(change).expect("a commit");
        }
        customers.drain(&store, 1000).expect("entries");
        let batch = search.next_batch(500).expect("changes");
        batch.commit(&store).expect("a commit");
        let txn = store.read().expect("a transaction");
        for at in 0..2000 {
            let town = of(&TOWNS, at);
            let found = customers.find_by_town(&txn, town).rows().take(3).count();
            assert!(found <= 3);
        }
        drop(txn);
        Self { store, customers, _orders: orders, _directory: directory }
    }

    /// Adds a row with markup in each of its fields.
    pub(crate) fn add_markup(&self) {
        let mut row = customer(1_000_000);
        let text = MARKUP.to_owned();
        (row.name, row.town, row.note) = (text.clone(), text.clone(), text.clone());
        row.email = Some(text);
        self.store.transaction(|txn| self.customers.insert(txn, &row)).expect("a commit");
    }

    pub(crate) fn page(&self) -> Router {
        index_table_admin::router_with_rows::<(Customer, Order)>(&self.store)
    }

    /// Begins a move, and stops it in the middle until the result is dropped.
    pub(crate) fn begin_move(&self) -> PausedMove {
        let (go_on, wait) = channel::<()>();
        let (begun, is_begun) = channel();
        let store = self.store.clone();
        let thread = thread::spawn(move || {
            let mut is_first = true;
            let moving = store.move_range("tenants", 150_u32..300, "south");
            let moving = moving.progress(|_| {
                if std::mem::take(&mut is_first) {
                    begun.send(()).expect("the test waits");
                    // The sender is dropped.
                    let _ = wait.recv();
                }
            });
            moving.run().expect("a move");
        });
        is_begun.recv().expect("the move has begun");
        PausedMove { go_on: Some(go_on), thread: Some(thread) }
    }
}

pub(crate) struct PausedMove {
    go_on: Option<Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl PausedMove {
    /// Completes the move.
    pub(crate) fn finish(mut self) {
        drop(self.go_on.take());
        self.thread.take().map(thread::JoinHandle::join).expect("once").expect("the move ends");
    }
}

/// A store with an archive, and its follower.
pub(crate) struct Pair {
    pub(crate) store: Store,
    pub(crate) _notes: NoteRepository,
    pub(crate) follower: Follower,
    _directory: TempDir,
}

impl Pair {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let archive = directory.path().join("archive");
        let store = Store::options()
            .durability(Durability::Journal)
            .archive(&archive)
            .open(directory.path().join("shop"))
            .expect("a store");
        let notes = NoteRepository::open(&store).expect("a table");
        store.transaction(|txn| notes.insert(txn, &Note { id: 1 })).expect("a commit");
        while store.archive_lag().is_none_or(|lag| lag.commits > 0 || !lag.has_base) {
            thread::sleep(Duration::from_millis(20));
        }
        let follower =
            Follower::open(directory.path().join("standby"), &archive).expect("a follower");
        Self { store, _notes: notes, follower, _directory: directory }
    }
}
