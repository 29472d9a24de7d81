//! The memory that a cascade allocates does not grow with the number of rows.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    error::Error,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

use index_table::{Durability, IndexTable, ShardMap, Store};
use serde::{Deserialize, Serialize};

/// Counts the currently allocated bytes and their maximum, without LMDB's allocations.
struct Peak;

static NOW: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

fn allocated(bytes: usize) {
    let now = NOW.fetch_add(bytes, Relaxed) + bytes;
    MOST.fetch_max(now, Relaxed);
}

#[expect(unsafe_code, reason = "an allocator is unsafe to implement")]
// SAFETY: all calls are forwarded to the system's allocator. The default `realloc` allocates, copies and
// frees.
unsafe impl GlobalAlloc for Peak {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        allocated(layout.size());
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Relaxed);
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Peak = Peak;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
struct Customer {
    #[primary_key]
    id: u32,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "orders")]
#[index(customer)]
#[aggregate(customer)]
struct Order {
    #[primary_key]
    number: u64,
    #[references(Customer, on_delete = "cascade")]
    customer: u32,
    text: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(part_of = Order)]
struct Scan {
    #[primary_key]
    number: u64,
    pdf: Vec<u8>,
}

/// Returns the peak of the memory that a cascade allocates when it deletes this number of orders with their scans. Of as
/// many other orders, each is between two of these.
fn peak(durability: Durability, rows: u64) -> Result<usize, Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let store = Store::options().durability(durability).open(directory.path())?;
    let customers = CustomerRepository::open(&store)?;
    let orders = OrderRepository::open(&store)?;
    let scans = ScanRepository::open(&store)?;
    store.transaction(|txn| {
        customers.insert(txn, &Customer { id: 7 })?;
        customers.insert(txn, &Customer { id: 8 })
    })?;
    let order = |number| Order { number, customer: 7 + (number % 2) as u32, text: "x".repeat(60) };
    orders.bulk_load(&store, (0..2 * rows).map(order)).run()?;
    scans.bulk_load(&store, (0..2 * rows).map(|number| Scan { number, pdf: vec![7; 60] })).run()?;
    let before = NOW.load(Relaxed);
    MOST.store(before, Relaxed);
    assert!(store.transaction(|txn| customers.delete(txn, 7))?);
    let most = MOST.load(Relaxed) - before;
    let txn = store.read()?;
    assert_eq!((orders.all(&txn).count()?, scans.all(&txn).count()?), (rows, rows));
    assert_eq!(orders.aggregate_by_customer(&txn, 7)?.count, 0);
    assert!(store.verify()?.is_clean());
    Ok(most)
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "accounts", shard_by = tenant)]
struct Account {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    id: u32,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "bookings", shard_by = tenant, shard_map = "accounts")]
#[index(tenant, account, include = [text])]
#[references(Account, fields = [tenant, account], on_delete = "cascade")]
struct Booking {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    number: u32,
    account: u32,
    text: String,
}

/// In a shard of its own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "receipts", part_of = Booking)]
struct Receipt {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    number: u32,
}

/// Returns the peak of the memory that a cascade allocates when it deletes this number of bookings in one shard with their
/// parts in another shard.
fn peak_over_shards(rows: u32) -> Result<usize, Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let store = Store::options()
        .shard("a", "a")
        .shard("b", "b")
        .shard("receipts", "receipts")
        .map("accounts", ShardMap::ranges().to("a", ..10u32).to("b", 10u32..))
        .place("receipts", "receipts")
        .open(directory.path().join("store"))?;
    let accounts = AccountRepository::open(&store)?;
    let bookings = BookingRepository::open(&store)?;
    let receipts = ReceiptRepository::open(&store)?;
    let (tenant, account) = (7, 1);
    store.transaction(|txn| accounts.insert(txn, &Account { tenant, id: account }))?;
    // The keys of the entries are long, because a deletion has only keys.
    let text = "x".repeat(40);
    let booking = |number| Booking { tenant, number, account, text: text.clone() };
    bookings.bulk_load(&store, (0..rows).map(booking)).run()?;
    receipts.bulk_load(&store, (0..rows).map(|number| Receipt { tenant, number })).run()?;
    let before = NOW.load(Relaxed);
    MOST.store(before, Relaxed);
    assert!(store.transaction(|txn| accounts.delete(txn, tenant, account))?);
    let most = MOST.load(Relaxed) - before;
    let txn = store.read()?;
    assert_eq!((bookings.all(&txn).count()?, receipts.all(&txn).count()?), (0, 0));
    Ok(most)
}

#[test]
fn the_memory_of_a_cascade_does_not_grow_with_its_rows() -> Result<(), Box<dyn Error>> {
    for rows in [1_000, 30_000] {
        let most = peak(Durability::None, rows)?;
        assert!(most < 64 << 10, "{most} bytes for {rows} rows");
        // The journal has the changes of one part in memory.
        let most = peak(Durability::Journal, rows)?;
        assert!(most < 5 << 20, "{most} bytes for {rows} rows with the journal");
    }
    // The shards share a journal, in which the changes of a transaction are together.
    for rows in [1_000, 150_000] {
        let most = peak_over_shards(rows)?;
        assert!(most < 8 << 20, "{most} bytes for {rows} rows in shards");
    }
    Ok(())
}
