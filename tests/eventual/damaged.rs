//! Damaged queues of eventual indexes.

use std::{ops::Range, path::Path, time::Duration};

use heed::RwTxn;
use index_table::{Durability, Error, FindingKind, ReadTxn, Store, VerifyReport, WhenFull};

use crate::{
    ItemRepository, TestResult, assert_drained, item,
    poison::{Raw, on},
};

use redeclared::{after, before};

type Damage = fn(&Raw<'_>, &mut RwTxn<'_>) -> heed::Result<()>;

const POSITION: [u8; 8] = [0; 8];

/// 2^63 and 2^64 − 1, as postcard encodes them.
const HALF: [u8; 10] = [0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 1];
const MOST: [u8; 10] = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];

/// Damage of a queue with two applied and four pending messages, and the finding of `verify`. Without a
/// finding, messages are applied again.
const DAMAGES: [(&str, Damage, Option<&str>); 13] = [
    ("no position", |queue, txn| queue.delete(txn, &POSITION).map(drop), None),
    ("an unreadable position", |queue, txn| queue.put(txn, &POSITION, b"\xff"), UNREADABLE),
    (
        "a position at the end",
        |queue, txn| queue.put(txn, &POSITION, &[&MOST[..], &[0]].concat()),
        UNREADABLE,
    ),
    (
        "a position after the end",
        |queue, txn| queue.put(txn, &POSITION, &[&HALF[..], &[0]].concat()),
        UNREADABLE,
    ),
    (
        "too far",
        |queue, txn| queue.put(txn, &POSITION, &[5, 0]),
        Some(
            "it has 5 records, and only 2 of them are its state, messages to apply, or dead letters",
        ),
    ),
    ("an earlier position", |queue, txn| queue.put(txn, &POSITION, &[1, 0]), None),
    (
        "a higher count of dead letters",
        |queue, txn| queue.put(txn, &POSITION, &[2, 3]),
        Some("its state counts 3 dead letters, and it has 0"),
    ),
    (
        "a count of dead letters for all messages",
        |queue, txn| queue.put(txn, &POSITION, &[&[2], &MOST[..]].concat()),
        UNREADABLE,
    ),
    (
        "an uncounted dead letter",
        |queue, txn| queue.put(txn, &(1 << 63 | 1_u64).to_be_bytes(), b"no"),
        Some("its state counts 0 dead letters, and it has 1"),
    ),
    (
        "an applied message",
        |queue, txn| queue.put(txn, &1_u64.to_be_bytes(), b"no"),
        Some(
            "it has 6 records, and only 5 of them are its state, messages to apply, or dead letters",
        ),
    ),
    (
        "the last possible number",
        |queue, txn| queue.put(txn, &((1 << 63) - 1_u64).to_be_bytes(), b"no"),
        Some("a message has the number 9223372036854775807, which is too great"),
    ),
    (
        "no number",
        |queue, txn| queue.put(txn, &[0; 7], b"no"),
        Some(
            "it has 6 records, and only 5 of them are its state, messages to apply, or dead letters",
        ),
    ),
    (
        "a message without a number",
        |queue, txn| queue.put(txn, &[0, 0, 0, 0, 0, 0, 0, 2, 0], b"no"),
        Some("a message has a key that is not a number"),
    ),
];

const UNREADABLE: Option<&str> = Some("its progress can't be read");

/// With each kind of damage, no call panics or loops forever, `verify` finds the damage, and `repair` removes
/// it.
#[test]
fn a_repair_empties_a_damaged_queue() -> TestResult {
    for (name, damage, said) in DAMAGES {
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
        let found = verified(&items, &store.read()?)?;
        assert_eq!(found.as_deref(), said, "{name}");
        let is_expected = |error: &Error| matches!(error, Error::Corrupt { .. });
        let written = store.transaction(|txn| items.put(txn, &item(7, 7)));
        assert!(written.as_ref().err().is_none_or(is_expected), "{name}: {written:?}");
        let drained = items.drain(&store, u64::MAX);
        let is_done = drained.as_ref().is_ok_and(|drained| drained.left == 0);
        assert!(is_done || drained.as_ref().is_err_and(is_expected), "{name}: {drained:?}");
        let worker = store.start_index_worker()?;
        assert!(items.lag(&store.read()?).as_ref().err().is_none_or(is_expected), "{name}");
        drop(worker);

        let found = verified(&items, &store.read()?)?;
        let report = store.transaction(|txn| items.repair(txn).run())?;
        assert_eq!((damage_in(&report), report.left), (found, 0), "{name}");
        assert!(items.verify(&store.read()?).run()?.is_clean(), "{name}");
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

/// Verifies the table at once and in steps, and returns the finding about the queue.
fn verified(items: &ItemRepository, txn: &ReadTxn<'_>) -> index_table::Result<Option<String>> {
    let mut ticks = Vec::new();
    let whole = items.verify(txn).progress(|at| ticks.push((at.done, at.total))).run()?;
    let damage = damage_in(&whole);
    let (mut findings, mut at) = (Vec::new(), None);
    loop {
        let mut verify = items.verify(txn).limit(1);
        if let Some(at) = &at {
            verify = verify.after(at);
        }
        findings.extend(verify.by_ref().collect::<index_table::Result<Vec<_>>>()?);
        at = verify.cursor();
        if at.is_none() {
            break;
        }
    }
    assert_eq!(findings, whole.findings);
    let (steps, total) = *ticks.last().expect("progress is reported at the end");
    assert_eq!(Some(steps), total);
    // Only an intact queue explains late entries.
    assert_eq!(damage.is_none(), whole.is_clean());
    Ok(damage)
}

/// Returns the finding of a report about the queue.
fn damage_in(report: &VerifyReport) -> Option<String> {
    let mut of_queue =
        report.findings.iter().filter(|found| found.kind == FindingKind::DamagedQueue);
    let shown = of_queue.next()?.to_string();
    assert_eq!((of_queue.next(), report.count(FindingKind::DamagedQueue)), (None, 1));
    let damage = shown
        .strip_prefix("table `items`: the queue of its eventual indexes is damaged: ")
        .and_then(|shown| {
            shown.strip_suffix(
                "; `repair` empties it and rewrites the entries \
                                              from the rows",
            )
        });
    Some(damage.expect("the table, the damage and the way out").to_owned())
}

/// A damaged queue that never had a message is emptied too.
#[test]
fn a_repair_empties_a_queue_without_messages() -> TestResult {
    let dir = tempfile::tempdir()?;
    let open = || -> index_table::Result<(Store, ItemRepository)> {
        let store = Store::options().map_size(1 << 24).open(dir.path())?;
        let items = ItemRepository::open(&store)?;
        Ok((store, items))
    };
    drop(open()?);
    on(dir.path(), ".queue.items", |queue, txn| queue.put(txn, &[7], b"no"));
    let (store, items) = open()?;
    assert_eq!(
        items.verify(&store.read()?).run()?.counts.into_iter().collect::<Vec<_>>(),
        [(FindingKind::DamagedQueue, 1)]
    );
    let report = store.transaction(|txn| items.repair(txn).run())?;
    assert_eq!((report.count(FindingKind::DamagedQueue), report.left), (1, 0));
    assert_drained(&items, &store)?;
    Ok(())
}

mod redeclared {
    use index_table::IndexTable;
    use serde::{Deserialize, Serialize};

    macro_rules! table {
        ($name:ident, $($index:tt)*) => {
            pub(super) mod $name {
                use super::{Deserialize, IndexTable, Serialize};

                #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
                #[table(name = "items")]
                #[index(town, consistency = "eventual")]
                $($index)*
                pub(crate) struct Item {
                    #[primary_key]
                    pub(crate) id: u32,
                    pub(crate) town: String,
                    pub(crate) code: u32,
                }
            }
        };
    }

    table!(before,);
    table!(after, #[index(code, consistency = "eventual")]);
}

fn open_small(path: &Path) -> index_table::Result<Store> {
    let options = Store::options().map_size(1 << 24).durability(Durability::None);
    options.index_queue(6, WhenFull::Disable).open(path)
}

/// Writes a row for each id.
fn put(store: &Store, items: &before::ItemRepository, ids: Range<u32>) -> index_table::Result<()> {
    store.transaction(|txn| {
        let item = |id: u32| before::Item { id, town: format!("{}", id % 3), code: 1 };
        ids.clone().try_for_each(|id| items.put(txn, &item(id)))
    })
}

/// A changed declaration has to read the indexes of each message. If the queue is damaged, it is emptied, and
/// all eventual indexes are rebuilt: at once in a small table, and in batches in a large one.
#[test]
fn another_declaration_empties_the_queue() -> TestResult {
    for ((name, damage, said), rows) in DAMAGES.into_iter().zip([6, 5000].into_iter().cycle()) {
        let dir = tempfile::tempdir()?;
        let store = open_small(dir.path())?;
        let items = before::ItemRepository::open(&store)?;
        let all = (0..rows).map(|id| before::Item { id, town: "Oz".to_owned(), code: 0 });
        items.bulk_load(&store, all).run()?;
        put(&store, &items, 0..6)?;
        items.drain(&store, 2)?;
        drop((items, store));
        on(dir.path(), ".queue.items", damage);

        let store = open_small(dir.path())?;
        let items =
            after::ItemRepository::open(&store).map_err(|error| format!("{name}: {error}"))?;
        assert_eq!(items.lag(&store.read()?)?.messages == 0, said.is_some(), "{name}");
        items.drain(&store, u64::MAX)?;
        let report = items.verify(&store.read()?).run()?;
        assert!(report.is_clean(), "{name}: {report}");
        assert_eq!((report.rows, report.entries), (u64::from(rows), 2 * u64::from(rows)));
    }
    Ok(())
}

/// Building a disabled index empties a damaged queue.
#[test]
fn a_disabled_index_is_built_without_the_queue() -> TestResult {
    for rows in [7, 5000] {
        let dir = tempfile::tempdir()?;
        let store = open_small(dir.path())?;
        let items = before::ItemRepository::open(&store)?;
        let all = (0..rows).map(|id| before::Item { id, town: "Oz".to_owned(), code: 0 });
        items.bulk_load(&store, all).run()?;
        put(&store, &items, 0..7)?;
        assert!(items.find_by_town(&store.read()?, "Oz").stale().count().is_err());
        drop((items, store));
        on(dir.path(), ".queue.items", |queue, txn| {
            queue.delete(txn, &2_u64.to_be_bytes())?;
            queue.put(txn, &[0, 0, 0, 0, 0, 0, 0, 2, 0], b"no")
        });
        let store = open_small(dir.path())?;
        let items = before::ItemRepository::open(&store)?;
        let report = items.verify(&store.read()?).run()?;
        assert!(report.is_clean(), "{report}");
        assert_eq!((report.rows, report.entries), (u64::from(rows), u64::from(rows)));
    }
    Ok(())
}

/// A repair leaves the messages of an intact queue to the worker.
#[test]
fn a_repair_keeps_an_intact_queue() -> TestResult {
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
