//! Asynchronous calls, on any executor.

#[cfg(unix)]
#[path = "../support/fork.rs"]
mod child;
mod declared;
mod dropped;
mod ended;
#[cfg(unix)]
mod forks;
mod forms;
#[cfg(feature = "postgres")]
#[path = "../support/postgres.rs"]
mod postgres;
mod random;
#[path = "../support/threads.rs"]
mod support;
mod waiting;

use std::{
    future::Future,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
};

use index_table::{IndexTable, ShardMap, Store};
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

type Failed = Box<dyn std::error::Error>;

type TestResult = Result<(), Box<dyn std::error::Error>>;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "customers", shard_by = tenant, changes)]
#[index(email, unique, scope = "global")]
#[index(town)]
#[index(tenant, note, consistency = "eventual")]
struct Customer {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    id: u64,
    email: String,
    town: String,
    note: String,
}

fn customer(tenant: u32, id: u64) -> Customer {
    Customer {
        tenant,
        id,
        email: format!("{tenant}-{id}@example.com"),
        town: "Redmond".to_owned(),
        note: "new".to_owned(),
    }
}

/// A store with its repository, and what it needs until its test ends.
type Opened<K> = (Store, CustomerRepository, K);

/// A store of each kind: with one data file, with two, and in memory.
fn stores() -> Result<Vec<Opened<Option<TempDir>>>, Failed> {
    let map = || ShardMap::ranges().to("north", ..100u32).to("south", 100u32..);
    let (one, several) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let both =
        Store::options().shard("north", "north").shard("south", "south").map("customers", map());
    let stores = [
        (Store::open(one.path().join("one"))?, Some(one)),
        (both.open(several.path().join("several"))?, Some(several)),
        (Store::in_memory(), None),
    ];
    let opened = |(store, dir)| {
        let customers = CustomerRepository::open(&store)?;
        Ok((store, customers, dir))
    };
    stores.into_iter().map(opened).collect()
}

/// What a store needs until its test ends.
#[cfg(feature = "postgres")]
type Kept = (Option<TempDir>, Option<postgres::Schema>);
#[cfg(not(feature = "postgres"))]
type Kept = (Option<TempDir>, Option<()>);

/// The [`stores`], and one on a server if there is one.
fn all_stores() -> Result<Vec<Opened<Kept>>, Failed> {
    let kept = |(store, customers, dir)| (store, customers, (dir, None));
    #[cfg_attr(not(feature = "postgres"), expect(unused_mut, reason = "there is no server"))]
    let mut all: Vec<_> = stores()?.into_iter().map(kept).collect();
    #[cfg(feature = "postgres")]
    if let Some(schema) = postgres::Schema::new() {
        let store = schema.open()?;
        let customers = CustomerRepository::open(&store)?;
        all.push((store, customers, (None, Some(schema))));
    }
    Ok(all)
}

/// Wakes a thread, and thus stands for any executor.
struct Woken(Thread);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Woken(thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        thread::park();
    }
}

/// Polls a future once, which submits a call.
fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    pin!(future).poll(&mut Context::from_waker(Waker::noop()))
}
