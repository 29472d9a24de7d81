//! Queues whose numbers are damaged.

use std::time::Duration;

use heed::RwTxn;
use index_table::{Error, Store};

use crate::{
    ItemRepository, TestResult, assert_drained, item,
    poison::{Raw, on},
};

type Damage = fn(&Raw<'_>, &mut RwTxn<'_>) -> heed::Result<()>;

const POSITION: [u8; 8] = [0; 8];

/// 2^63 and 2^64 − 1, as postcard has them.
const HALF: [u8; 10] = [0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 1];
const MOST: [u8; 10] = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];

/// What may have become of a queue of which two messages are applied, and four are not.
const DAMAGES: [(&str, Damage); 12] = [
    ("no position", |queue, txn| queue.delete(txn, &POSITION).map(drop)),
    ("a position that is none", |queue, txn| queue.put(txn, &POSITION, b"\xff")),
    ("at the end", |queue, txn| queue.put(txn, &POSITION, &[&MOST[..], &[0]].concat())),
    ("behind the end", |queue, txn| queue.put(txn, &POSITION, &[&HALF[..], &[0]].concat())),
    ("too far", |queue, txn| queue.put(txn, &POSITION, &[5, 0])),
    ("not far enough", |queue, txn| queue.put(txn, &POSITION, &[1, 0])),
    ("more set aside", |queue, txn| queue.put(txn, &POSITION, &[2, 3])),
    ("all set aside", |queue, txn| queue.put(txn, &POSITION, &[&[2], &MOST[..]].concat())),
    ("not set aside", |queue, txn| queue.put(txn, &(1 << 63 | 1_u64).to_be_bytes(), b"no")),
    ("a message that was applied", |queue, txn| queue.put(txn, &1_u64.to_be_bytes(), b"no")),
    ("the last number", |queue, txn| queue.put(txn, &((1 << 63) - 1_u64).to_be_bytes(), b"no")),
    ("no number", |queue, txn| queue.put(txn, &[0; 7], b"no")),
];

/// Nothing panics or goes on forever, and a repair mends it.
#[test]
fn a_repair_empties_the_queue() -> TestResult {
    for (name, damage) in DAMAGES {
        let dir = tempfile::tempdir()?;
        let open = || -> index_table::Result<(Store, ItemRepository)> {
            let store = Store::options().map_size(1 << 24).open(dir.path())?;
            let items = ItemRepository::open(&store)?;
            Ok((store, items))
        };
        let (store, items) = open()?;
        let token = store.transaction(|txn| {
            (0..6).try_for_each(|id| items.insert(txn, &item(id, id)))?;
            Ok(txn.token())
        })?;
        items.drain(&store, 2)?;
        drop((items, store));
        on(dir.path(), ".queue.items", damage);

        let (store, items) = open()?;
        let is_expected = |error: &Error| matches!(error, Error::Corrupt { .. });
        let written = store.transaction(|txn| items.put(txn, &item(7, 7)));
        assert!(written.as_ref().err().is_none_or(is_expected), "{name}: {written:?}");
        let drained = items.drain(&store, u64::MAX);
        let is_done = drained.as_ref().is_ok_and(|drained| drained.left == 0);
        assert!(is_done || drained.as_ref().is_err_and(is_expected), "{name}: {drained:?}");
        let worker = store.start_index_worker()?;
        assert!(items.lag(&store.read()?).as_ref().err().is_none_or(is_expected), "{name}");
        drop(worker);

        store.transaction(|txn| items.repair(txn).run())?;
        assert!(items.wait_for(&store, &token, Duration::ZERO)?, "{name}");
        let token = store.transaction(|txn| {
            items.put(txn, &item(7, 8))?;
            Ok(txn.token())
        })?;
        assert!(!items.wait_for(&store, &token, Duration::ZERO)?, "{name}");
        assert_eq!(items.drain(&store, u64::MAX)?.applied, 1, "{name}");
        assert!(items.wait_for(&store, &token, Duration::ZERO)?, "{name}");
        assert_drained(&items, &store)?;
    }
    Ok(())
}

/// What is in order is left to the worker.
#[test]
fn a_repair_leaves_what_is_in_order() -> TestResult {
    let store = Store::in_memory();
    let items = ItemRepository::open(&store)?;
    store.transaction(|txn| (0..6).try_for_each(|id| items.insert(txn, &item(id, id))))?;
    for drained in [0, 2, 4] {
        items.drain(&store, drained)?;
        let before = items.lag(&store.read()?)?.messages;
        store.transaction(|txn| items.repair(txn).run())?;
        assert_eq!(items.lag(&store.read()?)?.messages, before);
    }
    assert_drained(&items, &store)?;
    Ok(())
}
