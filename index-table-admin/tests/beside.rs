//! Commands while another process, the test, writes to the store.

#[path = "support/process.rs"]
mod process;
mod support;

use std::{
    path::Path,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
};

use index_table::{Durability, Error, Store};
use process::{fails, json_of, text_of, typed_fails, typed_json, typed_text};
use support::{CustomerRepository, Order, OrderRepository, customer, plain, sharded};

/// The commands that read, for any table.
const READ: [&[&str]; 9] = [
    &["tables"],
    &["indexes"],
    &["sizes"],
    &["analyze"],
    &["advice"],
    &["readers"],
    &["catalog"],
    &["consumers"],
    &["lag"],
];

/// Runs `body` while `write` is called with ascending numbers.
fn beside(write: impl Fn(u64) + Sync, body: impl FnOnce()) {
    let (is_over, writes) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Relaxed) {
                write(1000 + writes.fetch_add(1, Relaxed));
            }
        });
        // Ends the thread even if `body` panics.
        let end = End(&is_over);
        while writes.load(Relaxed) == 0 {
            thread::yield_now();
        }
        let before = writes.load(Relaxed);
        body();
        assert!(writes.load(Relaxed) > before, "nothing was written meanwhile");
        drop(end);
    });
}

struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

fn rows(dir: &Path) -> u64 {
    json_of(&["tables"], dir, &[])["tables"][0]["rows"].as_u64().expect("a number")
}

#[test]
fn commands_work_beside_a_writer() {
    for durability in [Durability::Full, Durability::Journal] {
        let dir = plain(300);
        let store = Store::options().durability(durability).open(dir.path()).expect("a store");
        let customers = CustomerRepository::open(&store).expect("a table");
        let write = |id| {
            store.transaction(|txn| customers.put(txn, &customer(id))).expect("a commit");
        };
        beside(write, || {
            for command in READ {
                text_of(command, dir.path(), &[]);
            }
            text_of(&["check"], dir.path(), &[]);
            text_of(&["keys"], dir.path(), &["customers", "town", "--limit", "1000"]);
            typed_text(&["verify"], dir.path(), &["customers"]);
            typed_json(&["find"], dir.path(), &["customers", "town", "Oslo", "--limit", "500"]);
            typed_json(&["get"], dir.path(), &["customers", "1"]);
            assert!(typed_text(&["dump"], dir.path(), &["customers"]).lines().count() >= 300);
            let copies = tempfile::tempdir().expect("a directory");
            for command in ["backup", "compact"] {
                let copy = copies.path().join(command);
                text_of(&[command], dir.path(), &[copy.to_str().expect("text")]);
                text_of(&["check"], &copy, &[]);
                typed_text(&["verify"], &copy, &["customers"]);
                assert!(rows(&copy) >= 300);
            }
            if durability == Durability::Full {
                // Several processes write, one after another.
                typed_text(&["delete"], dir.path(), &["customers", "2"]);
                typed_text(&["repair"], dir.path(), &["customers"]);
                text_of(&["drop-retired"], dir.path(), &[]);
            } else {
                // Only the process with the journal can write.
                let error = typed_fails(4, &["delete"], dir.path(), &["customers", "2"]);
                assert!(error.contains("another process"), "{error}");
                let error = fails(4, &["drop-retired"], dir.path(), &[]);
                assert!(error.contains("another process"), "{error}");
            }
        });
        typed_text(&["verify"], dir.path(), &["customers"]);
    }
}

#[test]
fn commands_work_beside_a_writer_of_a_sharded_store() {
    let dir = sharded();
    let store = Store::open(dir.path()).expect("a store");
    let orders = OrderRepository::open(&store).expect("a table");
    let write = |number: u64| {
        let (tenant, code) = ((number % 200) as u32, number.to_string());
        let order = Order { tenant, number, total: 1, code };
        match store.transaction(|txn| orders.put(txn, &order)) {
            Ok(()) | Err(Error::OtherShard { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    };
    beside(write, || {
        for command in
            READ.iter().copied().chain([&["check"][..], &["shards"], &["ranges"], &["moves"]])
        {
            text_of(command, dir.path(), &[]);
        }
        text_of(&["keys"], dir.path(), &["orders", "total", "--limit", "1000"]);
        typed_json(&["get"], dir.path(), &["orders", "7", "1"]);
        typed_json(&["find"], dir.path(), &["orders", "total", "--limit", "500"]);
        typed_json(&["rebalance"], dir.path(), &["orders", "--dry-run"]);
        assert!(typed_text(&["dump"], dir.path(), &["orders"]).lines().count() >= 6);
        for command in ["move", "split"] {
            let error = typed_fails(4, &[command], dir.path(), &["orders", "50", "south"]);
            assert!(error.contains("another process"), "{error}");
        }
    });
}
