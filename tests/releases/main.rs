//! A release of a program that is deployed again after a later one: it doesn't lose the fields of the later one.

#[path = "../support/data_files.rs"]
mod data_files;
mod kept;
#[cfg(feature = "postgres")]
#[path = "../support/postgres.rs"]
mod postgres;

use std::path::Path;

use data_files::{Kind, on_each_kind};
use index_table::{Error, IndexTable, OnDuplicate, Result, Store};
use serde::{Deserialize, Serialize};

type TestResult = std::result::Result<(), Box<dyn std::error::Error>>;

/// The tenants of the shards.
const TENANTS: [u32; 3] = [3, 13, 23];

/// Defines a release of the program: the fields of its orders, and those of their lines.
macro_rules! release {
    (
        $(#[$attribute:meta])*
        $module:ident {
            order: { $($(#[$order_attribute:meta])* $order:ident: $order_type:ty = $order_value:expr),* $(,)? },
            line: { $($line:ident: $line_type:ty = $line_value:expr),* $(,)? } $(,)?
        }
    ) => {
        mod $module {
            use super::*;

            #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
            #[table(name = "orders", shard_by = tenant, shard_map = "tenants")]
            #[indexes((town, allow(redundant)), (id, strategy = "full"), (town, id, include = [lines]))]
            $(#[$attribute])*
            pub(super) struct Order {
                #[primary_key]
                pub(super) tenant: u32,
                #[primary_key]
                pub(super) id: u32,
                pub(super) town: String,
                pub(super) lines: Vec<Option<Line>>,
                $($(#[$order_attribute])* #[serde(default)] pub(super) $order: $order_type,)*
            }

            #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
            pub(super) struct Line {
                pub(super) article: u64,
                $(#[serde(default)] pub(super) $line: $line_type,)*
            }

            pub(super) fn order(tenant: u32, id: u32) -> Order {
                let line = Line { article: u64::from(id), $($line: $line_value),* };
                let lines = vec![Some(line), None];
                Order { tenant, id, town: "Oslo".to_owned(), lines, $($order: $order_value),* }
            }

            pub(super) fn insert(store: &Store, ids: std::ops::Range<u32>) -> Result<()> {
                let orders = OrderRepository::open(store)?;
                for tenant in TENANTS {
                    store.transaction(|txn| {
                        ids.clone().try_for_each(|id| orders.insert(txn, &order(tenant, id)))
                    })?;
                }
                Ok(())
            }

            pub(super) fn check(store: &Store) -> TestResult {
                let orders = OrderRepository::open(store)?;
                let report = orders.verify(&store.read()?).run()?;
                assert!(report.is_clean(), "{report}");
                Ok(())
            }
        }
    };
}

release!(first { order: {}, line: {} });
release!(nested { order: {}, line: { count: u32 = 2 }, });
release!(outer { order: { note: String = "soon".to_owned() }, line: {}, });
release!(
    /// It has the fields of `first`.
    #[table(keep_unknown)]
    keeping { order: {}, line: {}, }
);
release!(
    /// It has another field than `outer`.
    other { order: { paid: bool = true }, line: {}, }
);

fn open(kind: Kind, path: &Path) -> Result<Store> {
    kind.store("tenants").map_size(1 << 26).open(path)
}

/// Checks that the result is the error about a field of a later release.
fn is_unknown<T: std::fmt::Debug>(result: Result<T>, key: &str, field: &str) {
    match result {
        Err(Error::UnknownField { table: "orders", key: row, field: found }) => {
            assert_eq!((&*row, &*found), (key, field));
        }
        other => panic!("{other:?}"),
    }
}

on_each_kind!(
    an_earlier_release_keeps_the_fields_of_a_later_one,
    a_later_release_removes_fields,
    an_upgrade_drops_the_fields_of_a_later_release,
    a_build_leaves_the_rows_of_a_later_release,
    unknown_fields_are_kept,
);

fn an_earlier_release_keeps_the_fields_of_a_later_one(kind: Kind) -> TestResult {
    for is_empty in [false, true] {
        let dir = tempfile::tempdir()?;
        check_earlier(|| open(kind, dir.path()), is_empty)?;
    }
    Ok(())
}

#[test]
fn an_earlier_release_keeps_the_fields_in_memory() -> TestResult {
    for is_empty in [false, true] {
        let store = Store::in_memory();
        check_earlier(|| Ok(store.clone()), is_empty)?;
    }
    Ok(())
}

#[cfg(feature = "postgres")]
#[test]
fn an_earlier_release_keeps_the_fields_on_a_server() -> TestResult {
    for is_empty in [false, true] {
        if let Some(schema) = postgres::Schema::new() {
            check_earlier(|| schema.open(), is_empty)?;
        }
    }
    Ok(())
}

/// `is_empty`: the first release writes no row before the second.
fn check_earlier(open: impl Fn() -> Result<Store>, is_empty: bool) -> TestResult {
    first::insert(&open()?, if is_empty { 0..0 } else { 0..4 })?;
    nested::insert(&open()?, 4..8)?;
    outer::insert(&open()?, 8..12)?;

    let store = open()?;
    let orders = first::OrderRepository::open(&store)?;
    for tenant in TENANTS {
        for (id, field) in [(4, "count"), (8, "note")] {
            let key = format!("({tenant}, {id})");
            let row = first::order(tenant, id);
            assert_eq!(orders.get(&store.read()?, tenant, id)?, Some(row.clone()));
            let moved = first::Order { town: "Rome".to_owned(), ..row.clone() };
            is_unknown(store.transaction(|txn| orders.put(txn, &moved)), &key, field);
            let update = |txn: &mut index_table::WriteTxn<'_>| {
                orders.update(txn, tenant, id, |row| row.town.clear())
            };
            is_unknown(store.transaction(update), &key, field);
            let rename = |txn: &mut index_table::WriteTxn<'_>| {
                orders.update(txn, tenant, id, |row| row.id = 1000)
            };
            is_unknown(store.transaction(rename), &key, field);
            let load = orders.bulk_load(&store, [moved]).on_duplicate(OnDuplicate::Replace).run();
            is_unknown(load, &key, field);
            // A row can be deleted, and then inserted again.
            store.transaction(|txn| orders.delete(txn, tenant, id))?;
            store.transaction(|txn| orders.put(txn, &row))?;
            store.transaction(update)?;
        }
        if !is_empty {
            store.transaction(|txn| orders.update(txn, tenant, 1, |row| row.town.clear()))?;
        }
    }
    drop(orders);
    first::check(&store)?;
    drop(store);

    let store = open()?;
    {
        let orders = nested::OrderRepository::open(&store)?;
        assert_eq!(orders.get(&store.read()?, 3, 5)?, Some(nested::order(3, 5)));
    }
    nested::check(&store)?;
    outer::check(&store)?;
    let orders = outer::OrderRepository::open(&store)?;
    assert_eq!(orders.get(&store.read()?, 3, 9)?, Some(outer::order(3, 9)));
    Ok(())
}

fn a_later_release_removes_fields(kind: Kind) -> TestResult {
    let dir = tempfile::tempdir()?;
    nested::insert(&open(kind, dir.path())?, 0..4)?;
    outer::insert(&open(kind, dir.path())?, 4..8)?;
    for _ in 0..2 {
        let store = open(kind, dir.path())?;
        let orders = first::OrderRepository::open(&store)?;
        for (tenant, id) in TENANTS.iter().flat_map(|tenant| [(*tenant, 1), (*tenant, 5)]) {
            store.transaction(|txn| orders.update(txn, tenant, id, |row| row.town.push('!')))?;
        }
        drop(orders);
        first::check(&store)?;
        // The former release writes another row, with a list that the later one has seen.
        let orders = outer::OrderRepository::open(&store)?;
        store.transaction(|txn| orders.put(txn, &outer::order(3, 1)))?;
    }
    let store = open(kind, dir.path())?;
    let orders = nested::OrderRepository::open(&store)?;
    let counts = |id| {
        let row = orders.get(&store.read()?, 13, id)?;
        let lines = row.into_iter().flat_map(|row| row.lines).flatten();
        Ok::<_, Error>(lines.map(|line| line.count).collect::<Vec<_>>())
    };
    assert_eq!((counts(0)?, counts(1)?), (vec![2], vec![0]));
    Ok(())
}

fn an_upgrade_drops_the_fields_of_a_later_release(kind: Kind) -> TestResult {
    let dir = tempfile::tempdir()?;
    first::insert(&open(kind, dir.path())?, 0..2)?;
    outer::insert(&open(kind, dir.path())?, 2..4)?;
    other::insert(&open(kind, dir.path())?, 4..6)?;
    let store = open(kind, dir.path())?;
    other::check(&store)?;
    let orders = first::OrderRepository::open(&store)?;
    let update = |id| {
        store.transaction(|txn| orders.update(txn, 23, id, |row| row.town.push('!'))).map(drop)
    };
    is_unknown(update(2), "(23, 2)", "note");
    is_unknown(orders.upgrade(&store).run(), "(3, 2)", "note");
    let done = orders.upgrade(&store).drop_unknown().run()?;
    assert_eq!((done.rows, done.upgraded), (18, 12));
    (2..6).try_for_each(update)?;
    drop(orders);
    drop(store);

    // Rows that the former release writes now have a list that the upgrade has seen.
    outer::insert(&open(kind, dir.path())?, 6..8)?;
    nested::insert(&open(kind, dir.path())?, 8..10)?;
    let store = open(kind, dir.path())?;
    let orders = first::OrderRepository::open(&store)?;
    let update = |id| {
        store.transaction(|txn| orders.update(txn, 23, id, |row| row.town.push('!'))).map(drop)
    };
    (2..8).try_for_each(update)?;
    is_unknown(update(8), "(23, 8)", "count");
    drop(orders);
    first::check(&store)
}

/// A release before `outer` that declares an index on a field that `outer` has removed.
mod indexed {
    use super::*;

    pub(super) const MORE: &str = "more";

    fn more() -> String {
        MORE.to_owned()
    }

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
    #[table(name = "orders", shard_by = tenant, shard_map = "tenants")]
    #[indexes((town, allow(redundant)), (id, strategy = "full"), (town, id, include = [lines]), (label))]
    pub(super) struct Order {
        #[primary_key]
        pub(super) tenant: u32,
        #[primary_key]
        pub(super) id: u32,
        pub(super) town: String,
        pub(super) lines: Vec<Option<first::Line>>,
        #[serde(default = "more")]
        pub(super) label: String,
    }
}

fn a_build_leaves_the_rows_of_a_later_release(kind: Kind) -> TestResult {
    let dir = tempfile::tempdir()?;
    {
        let store = open(kind, dir.path())?;
        let orders = indexed::OrderRepository::open(&store)?;
        assert_eq!(orders.all(&store.read()?).count()?, 0);
    }
    outer::insert(&open(kind, dir.path())?, 0..4)?;
    {
        let store = open(kind, dir.path())?;
        let orders = indexed::OrderRepository::open(&store)?;
        assert_eq!(orders.find_by_label(&store.read()?, indexed::MORE).count()?, 12);
        let update = |txn: &mut index_table::WriteTxn<'_>| {
            orders.update(txn, 13, 2, |row| row.label.clear())
        };
        is_unknown(store.transaction(update), "(13, 2)", "note");
        let report = orders.verify(&store.read()?).run()?;
        assert!(report.is_clean(), "{report}");
    }
    let store = open(kind, dir.path())?;
    let orders = outer::OrderRepository::open(&store)?;
    assert_eq!(orders.get(&store.read()?, 13, 2)?, Some(outer::order(13, 2)));
    Ok(())
}

fn unknown_fields_are_kept(kind: Kind) -> TestResult {
    let dir = tempfile::tempdir()?;
    check_kept(|| open(kind, dir.path()))
}

#[test]
fn unknown_fields_are_kept_in_memory() -> TestResult {
    let store = Store::in_memory();
    check_kept(|| Ok(store.clone()))
}

#[cfg(feature = "postgres")]
#[test]
fn unknown_fields_are_kept_on_a_server() -> TestResult {
    postgres::Schema::new().map_or(Ok(()), |schema| check_kept(|| schema.open()))
}

fn check_kept(open: impl Fn() -> Result<Store>) -> TestResult {
    keeping::insert(&open()?, 0..2)?;
    outer::insert(&open()?, 2..6)?;
    nested::insert(&open()?, 6..7)?;
    for mark in ["!", "?"] {
        let store = open()?;
        {
            let orders = keeping::OrderRepository::open(&store)?;
            for tenant in TENANTS {
                for id in [0, 2] {
                    let update = |row: &mut keeping::Order| row.town.push_str(mark);
                    store.transaction(|txn| orders.update(txn, tenant, id, update))?;
                }
                let row = keeping::Order { town: mark.into(), ..keeping::order(tenant, 3) };
                store.transaction(|txn| orders.put(txn, &row))?;
                store.transaction(|txn| orders.put(txn, &row))?;
                assert_eq!(orders.get(&store.read()?, tenant, 3)?, Some(row.clone()));
                let load = orders.bulk_load(&store, [keeping::Order { id: 4, ..row }]);
                let load = load.on_duplicate(OnDuplicate::Replace).run();
                is_unknown(load, &format!("({tenant}, 4)"), "note");
                let update = |row: &mut keeping::Order| row.town.push_str(mark);
                let inside = store.transaction(|txn| orders.update(txn, tenant, 6, update));
                is_unknown(inside, &format!("({tenant}, 6)"), "count");
            }
            is_unknown(orders.upgrade(&store).run(), "(3, 6)", "count");
        }
        keeping::check(&store)?;
        outer::check(&store)?;
        let orders = outer::OrderRepository::open(&store)?;
        for tenant in TENANTS {
            // The later release writes one of the rows in between.
            let update = |row: &mut outer::Order| row.note.push_str(mark);
            store.transaction(|txn| orders.update(txn, tenant, 2, update))?;
        }
        drop(orders);
        outer::check(&store)?;
    }
    let store = open()?;
    let orders = outer::OrderRepository::open(&store)?;
    let txn = store.read()?;
    for tenant in TENANTS {
        let row = |id, town: &str, note: &str| {
            Some(outer::Order { town: town.into(), note: note.into(), ..outer::order(tenant, id) })
        };
        assert_eq!(orders.get(&txn, tenant, 0)?, row(0, "Oslo!?", ""));
        assert_eq!(orders.get(&txn, tenant, 2)?, row(2, "Oslo!?", "soon!?"));
        assert_eq!(orders.get(&txn, tenant, 3)?, row(3, "?", "soon"));
        assert_eq!(orders.get(&txn, tenant, 5)?, row(5, "Oslo", "soon"));
    }
    Ok(())
}

/// A row with fields that it writes, and does not read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "sums")]
struct Sum {
    #[primary_key]
    id: u32,
    parts: Vec<Part>,
    #[serde(skip_deserializing)]
    total: u32,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Part {
    value: u32,
    #[serde(skip_deserializing)]
    twice: u32,
}

#[test]
fn a_field_that_is_only_written_is_no_unknown_field() -> TestResult {
    let store = Store::in_memory();
    let sums = SumRepository::open(&store)?;
    let sum = Sum { id: 1, parts: vec![Part { value: 2, twice: 4 }], total: 2 };
    store.transaction(|txn| sums.insert(txn, &sum))?;
    let update = |row: &mut Sum| row.parts[0].value += 1;
    store.transaction(|txn| sums.update(txn, 1, update))?;
    store.transaction(|txn| sums.update(txn, 1, |row| row.parts.clear()))?;
    store.transaction(|txn| sums.put(txn, &sum))?;
    sums.bulk_load(&store, [Sum { total: 5, ..sum.clone() }])
        .on_duplicate(OnDuplicate::Replace)
        .run()?;
    store.transaction(|txn| sums.put(txn, &sum))?;
    let read = sums.get(&store.read()?, 1)?;
    assert_eq!(read, Some(Sum { total: 0, parts: vec![Part { value: 2, twice: 0 }], ..sum }));
    Ok(())
}

/// A struct of lines has the fields that the lines of another struct get later.
mod alike {
    use super::*;

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub(super) struct Stock {
        pub(super) article: u64,
        #[serde(default)]
        pub(super) count: u32,
    }
}

#[test]
fn a_list_of_another_struct_does_not_hide_a_field() -> TestResult {
    #[derive(Serialize, Deserialize, IndexTable)]
    #[table(name = "orders")]
    struct Zero {
        #[primary_key]
        id: u32,
        lines: Vec<first::Line>,
        stock: Vec<alike::Stock>,
        former: u8,
    }
    #[derive(Serialize, Deserialize, IndexTable)]
    #[table(name = "orders")]
    struct Earlier {
        #[primary_key]
        id: u32,
        lines: Vec<first::Line>,
        stock: Vec<alike::Stock>,
    }
    #[derive(Serialize, Deserialize, IndexTable)]
    #[table(name = "orders")]
    struct Later {
        #[primary_key]
        id: u32,
        lines: Vec<nested::Line>,
        stock: Vec<alike::Stock>,
    }
    let store = Store::in_memory();
    let stock = || vec![alike::Stock { article: 1, count: 1 }];
    {
        let orders = ZeroRepository::open(&store)?;
        let lines = vec![first::Line { article: 1 }];
        let row = Zero { id: 0, lines, stock: stock(), former: 1 };
        store.transaction(|txn| orders.insert(txn, &row))?;
    }
    drop(EarlierRepository::open(&store)?);
    {
        let orders = LaterRepository::open(&store)?;
        let lines = vec![nested::Line { article: 1, count: 7 }];
        let row = Later { id: 1, lines, stock: stock() };
        store.transaction(|txn| orders.insert(txn, &row))?;
    }
    let orders = EarlierRepository::open(&store)?;
    store.transaction(|txn| orders.update(txn, 0, |row| row.stock.clear()))?;
    let update = store.transaction(|txn| orders.update(txn, 1, |row| row.stock.clear()));
    is_unknown(update, "1", "count");
    Ok(())
}
