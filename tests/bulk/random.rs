//! Random rows loaded into tables with random rows, with each policy and different memory limits.

use std::collections::BTreeMap;

use index_table::{Error, OnDuplicate, Result, Store, WriteTxn};
use proptest::prelude::*;

use crate::{Item, ItemRepository, Place, PlaceRepository, all, item};

/// Generates rows with keys below `keys`, so that keys of different rows sometimes collide.
fn rows(keys: u32) -> impl Strategy<Value = Item> {
    (0..keys, 0..keys, prop::collection::vec(0..keys, 0..3), 0..keys).prop_map(
        |(id, code, tags, url)| {
            let tags = tags.into_iter().map(|tag| tag.to_string()).collect();
            Item { code, tags, url: format!("https://example.com/{url}"), ..item(id) }
        },
    )
}

#[derive(Debug, Clone)]
struct Case {
    before: Vec<Item>,
    rows: Vec<Item>,
    policy: OnDuplicate,
    memory: usize,
    inside: bool,
}

fn case() -> impl Strategy<Value = Case> {
    let rows_of = |keys, most| prop::collection::vec(rows(keys), 0..most);
    let few = (rows_of(30, 20), rows_of(30, 40));
    let many = (rows_of(400, 100), rows_of(4_000_000_000, 400));
    let ordered = (rows_of(100, 2), (0..600_u32).prop_map(|most| (0..most).map(item).collect()));
    (
        prop_oneof![few, many, ordered],
        prop_oneof![Just(OnDuplicate::Fail), Just(OnDuplicate::Skip), Just(OnDuplicate::Replace)],
        prop_oneof![Just(0), Just(1 << 26)],
        any::<bool>(),
    )
        .prop_map(|((before, rows), policy, memory, inside)| Case {
            before,
            rows,
            policy,
            memory,
            inside,
        })
}

/// Inserts the rows one by one, and skips rejected rows.
fn insert_free(items: &ItemRepository, txn: &mut WriteTxn<'_>, rows: &[Item]) -> Result<u64> {
    let mut inserted = 0;
    for row in rows {
        match items.insert(txn, row) {
            Ok(()) => inserted += 1,
            Err(Error::DuplicateKey { .. } | Error::UniqueViolation { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(inserted)
}

/// Returns the expected rows of the table and the expected number of written rows, or `None` if the load must
/// fail.
fn expected(case: &Case, before: &[Item]) -> Result<Option<(Vec<Item>, u64)>> {
    let store = Store::in_memory();
    let items = ItemRepository::open(&store)?;
    let mut txn = store.write()?;
    let written = match case.policy {
        OnDuplicate::Replace => {
            let latest: BTreeMap<u32, &Item> = case.rows.iter().map(|row| (row.id, row)).collect();
            let unchanged = before.iter().filter(|row| !latest.contains_key(&row.id));
            let rows: Vec<Item> = unchanged.chain(latest.values().copied()).cloned().collect();
            if insert_free(&items, &mut txn, &rows)? < rows.len() as u64 {
                return Ok(None);
            }
            latest.len() as u64
        }
        policy => {
            insert_free(&items, &mut txn, before)?;
            let inserted = insert_free(&items, &mut txn, &case.rows)?;
            if policy == OnDuplicate::Fail && inserted < case.rows.len() as u64 {
                return Ok(None);
            }
            inserted
        }
    };
    Ok(Some((items.all(&txn).rows().collect::<Result<_>>()?, written)))
}

/// Returns a quarter of the requested number of cases, because each case has many rows.
fn cases() -> u32 {
    ProptestConfig::default().cases / 4
}

fn check(store: &Store, case: &Case) -> Result<()> {
    let items = ItemRepository::open(store)?;
    store.transaction(|txn| insert_free(&items, txn, &case.before))?;
    let before = all(&items, &store.read()?)?;
    let expected = expected(case, &before)?;
    let mut txn = store.write()?;
    let report = if case.inside {
        let load = items.bulk_load_in(&mut txn, &case.rows);
        let report = load.on_duplicate(case.policy).memory(case.memory).run();
        // A refused load leaves the transaction unchanged and usable.
        items.put(&mut txn, &item(4_000_000_001))?;
        items.delete(&mut txn, 4_000_000_001)?;
        txn.commit()?;
        report
    } else {
        drop(txn);
        let load = items.bulk_load(store, case.rows.iter().cloned());
        load.on_duplicate(case.policy).memory(case.memory).run()
    };
    let after = all(&items, &store.read()?)?;
    match (expected, report) {
        (None, Err(Error::DuplicateKey { .. } | Error::UniqueViolation { .. })) => {
            assert_eq!(after, before);
        }
        (Some((rows, written)), Ok(report)) => {
            assert_eq!(after, rows);
            assert_eq!(report.written, written);
            assert_eq!(report.read, case.rows.len() as u64);
            assert_eq!(report.skipped, report.read - written);
            let other = |row: &&Item| before.iter().any(|old| old.id == row.id && old != *row);
            let replaced = rows.iter().filter(other).count() as u64;
            assert_eq!(report.replaced, replaced);
        }
        (expected, report) => panic!("{report:?} instead of {expected:?}"),
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    #[test]
    fn a_load_equals_single_inserts_in_memory(case in case()) {
        check(&Store::in_memory(), &case)?;
    }

    #[test]
    fn a_load_equals_single_inserts_on_disk(case in case()) {
        let directory = tempfile::tempdir()?;
        let store = Store::options().durability(index_table::Durability::None);
        check(&store.open(directory.path())?, &case)?;
    }

    #[cfg(feature = "postgres")]
    #[test]
    fn a_load_equals_single_inserts_on_a_server(case in case()) {
        if let Some(schema) = crate::postgres::Schema::new() {
            check(&schema.open()?, &case)?;
        }
    }

    #[test]
    fn a_load_with_composite_keys_equals_single_inserts(
        rows in prop::collection::vec(("[a-c]{0,3}", -3..3_i16, 0..400_u32), 0..200),
        memory in prop_oneof![Just(0), Just(1 << 26)],
    ) {
        let place = |(name, number, code): &(String, i16, u32)| Place {
            name: name.clone(), number: *number, town: name.repeat(2), code: *code,
        };
        let store = Store::in_memory();
        let places = PlaceRepository::open(&store)?;
        let mut expected: Vec<Place> = Vec::new();
        for row in rows.iter().map(place) {
            let key = |row: &Place| (row.name.clone(), row.number);
            if !expected.iter().any(|it| key(it) == key(&row) || it.code == row.code) {
                expected.push(row);
            }
        }
        expected.sort_by_key(|row| (row.name.clone(), row.number));
        let load = places.bulk_load(&store, rows.iter().map(place));
        load.memory(memory).on_duplicate(OnDuplicate::Skip).run()?;
        let txn = store.read()?;
        prop_assert!(places.verify(&txn).run()?.is_clean());
        prop_assert_eq!(places.all(&txn).rows().collect::<Result<Vec<_>>>()?, expected);
    }
}
