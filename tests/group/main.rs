//! Group writers, which commit closures of many threads together.

mod closing;
mod killed;
#[path = "../support/killed.rs"]
mod killing;
mod outcomes;
mod room;
mod stress;
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

use index_table::{Durability, GroupWriter, IndexTable, Store, Submitted};
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

type TestResult = Result<(), Box<dyn std::error::Error>>;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[index(code, unique)]
#[index(group)]
#[index(bytes, strategy = "full")]
struct Item {
    #[primary_key]
    id: u64,
    code: u64,
    group: u8,
    bytes: Vec<u8>,
}

fn item(id: u64) -> Item {
    Item { id, code: !id, group: id as u8, bytes: vec![id as u8; 20] }
}

type Stores = [(Store, Option<TempDir>); 3];

/// Returns a store on disk without syncs, a store with a journal, and a store in memory.
fn stores() -> Result<Stores, Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let store = Store::options().durability(Durability::None).open(dir.path())?;
    let other = tempfile::tempdir()?;
    let journalled = killing::journal(Store::options()).open(other.path())?;
    Ok([(store, Some(dir)), (journalled, Some(other)), (Store::in_memory(), None)])
}

fn insert(
    writer: &GroupWriter,
    items: &ItemRepository,
    item: Item,
) -> Submitted<(), index_table::Error> {
    let items = items.clone();
    writer.submit(move |txn| items.insert(txn, &item))
}

/// Checks that the table and every index have exactly the items with these ids.
fn check(store: &Store, items: &ItemRepository, ids: impl IntoIterator<Item = u64>) -> TestResult {
    let mut ids: Vec<u64> = ids.into_iter().collect();
    ids.sort_unstable();
    let txn = store.read()?;
    assert_eq!(items.all(&txn).keys().collect::<Result<Vec<_>, _>>()?, ids);
    for index in [items.by_code(&txn).count()?, items.by_group(&txn).count()?] {
        assert_eq!(index, ids.len() as u64);
    }
    let report = items.verify(&txn).run()?;
    assert!(report.is_clean(), "{report}");
    Ok(())
}

/// Starts a transaction. Submitted closures wait until it ends.
fn hold(store: &Store) -> index_table::Result<index_table::WriteTxn<'_>> {
    store.write()
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future with a minimal executor.
fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}
