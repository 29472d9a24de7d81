//! The memory that a bulk load allocates is bounded for any number of rows.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    error::Error,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

use index_table::{Durability, IndexTable, OnDuplicate, Store};
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
#[index(town)]
#[index(town, name, include = [phone])]
#[index(email, unique)]
#[index(name, strategy = "full")]
struct Customer {
    #[primary_key]
    id: u64,
    town: String,
    name: String,
    phone: String,
    email: String,
}

/// Returns a customer whose keys differ for all numbers and are in no order.
fn customer(number: u64) -> Customer {
    let id = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    Customer {
        id,
        town: format!("Town {}", id % 50),
        name: format!("Name {}", id % 4999),
        phone: format!("555-{:07}", id % 10_000_000),
        email: format!("{id}@example.com"),
    }
}

const MEMORY: usize = 1 << 20;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[index(title)]
struct Document {
    #[primary_key]
    id: u64,
    title: String,
    text: String,
}

const LARGE: usize = 1 << 16;

/// Returns the peak of the memory allocated by a load of rows of 64 KiB.
fn peak_of_large(rows: u64) -> Result<usize, Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let store = Store::options().durability(Durability::None).open(directory.path())?;
    let documents = DocumentRepository::open(&store)?;
    let document = |number| {
        let Customer { id, name, .. } = customer(number);
        Document { id, title: name, text: "t".repeat(LARGE) }
    };
    let before = NOW.load(Relaxed);
    MOST.store(before, Relaxed);
    let report = documents.bulk_load(&store, (0..rows).map(document)).memory(MEMORY).run()?;
    let most = MOST.load(Relaxed) - before;
    assert_eq!(report.written, rows);
    assert_eq!(documents.by_title(&store.read()?).count()?, rows);
    Ok(most)
}

/// Returns the peak of the memory allocated by a load of rows, each of them `times` times.
fn peak(rows: u64, times: u64, policy: OnDuplicate) -> Result<usize, Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let store = Store::options().durability(Durability::None).open(directory.path())?;
    let customers = CustomerRepository::open(&store)?;
    let all = (0..times).flat_map(|_| 0..rows).map(customer);
    let before = NOW.load(Relaxed);
    MOST.store(before, Relaxed);
    let report = customers.bulk_load(&store, all).memory(MEMORY).on_duplicate(policy).run()?;
    let most = MOST.load(Relaxed) - before;
    assert_eq!((report.written, report.read), (rows, rows * times));
    assert_eq!(customers.by_email(&store.read()?).count()?, rows);
    Ok(most)
}

#[test]
fn a_load_stays_within_its_memory_limit() -> Result<(), Box<dyn Error>> {
    // A row has about 300 bytes: the first load fits into memory, the second has ten times as many rows.
    for rows in [3_000, 30_000] {
        let most = peak(rows, 1, OnDuplicate::Fail)?;
        assert!(most <= MEMORY, "{most} bytes for {rows} rows");
    }
    // Finding duplicates stays within the same bound.
    for policy in [OnDuplicate::Skip, OnDuplicate::Replace] {
        let most = peak(10_000, 3, policy)?;
        assert!(most <= MEMORY, "{most} bytes to {policy:?}");
    }
    // A merge has a row of each run in memory.
    for rows in [16, 400] {
        let most = peak_of_large(rows)?;
        assert!(most <= MEMORY + 4 * LARGE, "{most} bytes for {rows} large rows");
    }
    Ok(())
}
