//! Plans that give all shards about the same load, and running them.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
};

use index_table::{IndexTable, Options, Result, ShardMap, Store};
use serde::{Deserialize, Serialize};

use crate::opening::reason;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "orders", shard_by = tenant)]
#[index(number)]
struct Order {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    number: u64,
    text: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "lines", shard_by = tenant, shard_map = "orders")]
struct Line {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    order: u64,
    #[primary_key]
    part: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "events", shard_by = hash(id))]
struct Event {
    #[primary_key]
    id: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "notes")]
struct Note {
    #[primary_key]
    id: u64,
}

fn options() -> Options {
    let map = ShardMap::ranges().to("a", ..50u32).to("b", 50u32..);
    ["a", "b", "c"]
        .into_iter()
        .fold(Store::options(), |options, name| options.shard(name, name))
        .map("orders", map)
        .map("events", ShardMap::hashed(["a"]))
}

struct Tables {
    orders: OrderRepository,
    lines: LineRepository,
}

/// Creates a store in which each tenant has the number of orders that `orders` returns, each with two lines.
fn filled(orders: impl Fn(u32) -> u64) -> Result<(Store, Tables)> {
    let store = options().in_memory()?;
    let tables =
        Tables { orders: OrderRepository::open(&store)?, lines: LineRepository::open(&store)? };
    for tenant in 0..100 {
        store.transaction(|txn| {
            (0..orders(tenant)).try_for_each(|number| {
                let text = "x".repeat(tenant as usize);
                tables.orders.insert(txn, &Order { tenant, number, text })?;
                (0..2).try_for_each(|part| {
                    tables.lines.insert(txn, &Line { tenant, order: number, part })
                })
            })
        })?;
    }
    Ok((store, tables))
}

fn rows(store: &Store) -> Result<Vec<u64>> {
    Ok(store.shards()?.iter().map(|shard| shard.rows).collect())
}

#[test]
fn shards_have_the_same_number_of_rows_after_a_plan_by_rows() -> Result<()> {
    let (store, tables) = filled(|tenant| if tenant < 50 { 10 } else { 2 })?;
    assert_eq!(rows(&store)?, [1500, 300, 0]);
    let plan = store.rebalance("orders").by_rows().plan()?;
    assert_eq!(rows(&store)?, [1500, 300, 0], "a plan moves nothing");
    let after: Vec<_> = plan.shards().iter().map(|shard| shard.after).collect();
    let moved: u64 = plan.moves().iter().map(|planned| planned.rows).sum();
    assert_eq!(plan.run()?.rows, moved);
    assert_eq!(rows(&store)?, after);
    assert!(after.iter().all(|rows| *rows <= 660), "{after:?}");
    let txn = store.read()?;
    assert_eq!((tables.orders.all(&txn).count()?, tables.lines.all(&txn).count()?), (600, 1200));
    for tenant in 0..100 {
        assert_eq!(tables.lines.shard_of(&store, tenant)?, tables.orders.shard_of(&store, tenant)?);
    }
    drop(txn);
    assert!(store.verify()?.is_clean());
    let again = store.rebalance("orders").by_rows().plan()?;
    assert_eq!(again.moves(), []);
    assert!(again.to_string().ends_with("no moves"), "{again}");
    Ok(())
}

#[test]
fn a_plan_shows_which_ranges_move_where() -> Result<()> {
    let (store, _tables) = filled(|tenant| u64::from(tenant < 50))?;
    let plan = store.rebalance("orders").tolerance(0).onto(["a", "c"]).plan()?;
    let shown = plan.to_string();
    assert_eq!(
        shown,
        "shard map `orders`, rows within 0 %:\n  \
         shard `a`: 150, then 75\n  \
         shard `c`: 0, then 75\n\
         moves: 2, with 75 rows; the tolerance requires at least 75:\n  \
         25..50 from `a` to `c`: 75 rows, 2525 bytes\n  \
         50.. from `b` to `c`: 0 rows, 0 bytes"
    );
    let serialized = serde_json::to_value(plan.moves()).expect("JSON");
    assert_eq!(serialized[0]["start"], "25");
    plan.run()?;
    assert_eq!(rows(&store)?, [75, 0, 75]);
    store.remove_shard("b")
}

#[test]
fn bytes_count_and_not_rows_in_a_plan_by_bytes() -> Result<()> {
    let (store, _tables) = filled(|_| 1)?;
    let by_rows = store.rebalance("orders").onto(["a", "b"]).by_rows().plan()?;
    assert_eq!(by_rows.moves(), []);
    let by_bytes = store.rebalance("orders").onto(["a", "b"]).by_bytes().plan()?;
    assert!(by_bytes.moves().iter().all(|planned| planned.to == "a"), "{by_bytes}");
    by_bytes.run()?;
    let ranges = store.ranges("orders")?;
    assert!(ranges[0].bytes.abs_diff(ranges[1].bytes) * 5 <= ranges[0].bytes, "{ranges:?}");
    Ok(())
}

#[test]
fn one_heavy_key_is_named_since_no_split_helps() -> Result<()> {
    let (store, _tables) = filled(|tenant| if tenant == 7 { 100 } else { 1 })?;
    let plan = store.rebalance("orders").plan()?;
    let a = &plan.shards()[0];
    assert!(a.is_over, "{plan}");
    assert_eq!(a.heaviest, Some(("7".to_owned(), 300)));
    assert!(plan.to_string().contains("only a longer shard key can split its rows"), "{plan}");
    plan.run()?;
    assert_eq!(rows(&store)?[0], 300);
    Ok(())
}

#[test]
fn pinned_ranges_and_capacities_are_kept() -> Result<()> {
    let (store, _tables) = filled(|tenant| u64::from(tenant < 50))?;
    let pinned = store.rebalance("orders").pin(10u32..).plan()?;
    assert!(pinned.moves().iter().all(|planned| planned.end.as_deref() <= Some("10")), "{pinned}");
    let small = store.rebalance("orders").capacity("c", 100).plan()?;
    let to_c = small.moves().iter().filter(|planned| planned.to == "c");
    assert!(to_c.map(|planned| planned.bytes).sum::<u64>() <= 100, "{small}");
    Ok(())
}

#[test]
fn slots_of_a_hash_map_move_too() -> Result<()> {
    let store = options().in_memory()?;
    let events = EventRepository::open(&store)?;
    store.transaction(|txn| (0..3000).try_for_each(|id| events.insert(txn, &Event { id })))?;
    store.rebalance("events").by_rows().plan()?.run()?;
    let rows = rows(&store)?;
    assert!(rows.iter().all(|rows| (900..=1100).contains(rows)), "{rows:?}");
    assert_eq!(events.all(&store.read()?).count()?, 3000);
    Ok(())
}

#[test]
fn requests_are_the_load_of_a_plan_by_requests() -> Result<()> {
    let (store, tables) = filled(|_| 1)?;
    for _ in 0..1000 {
        assert!(tables.orders.get(&store.read()?, 3, 0)?.is_some());
    }
    let plan = store.rebalance("orders").by_requests().plan()?;
    assert!(plan.moves().iter().any(|planned| planned.from == "a"), "{plan}");
    assert!(plan.shards()[0].before >= 1000, "{plan}");
    Ok(())
}

#[test]
fn a_shard_with_placed_tables_alone_gets_no_keys() -> Result<()> {
    let store = options().place("notes", "c").in_memory()?;
    let (orders, _lines) = (OrderRepository::open(&store)?, LineRepository::open(&store)?);
    let notes = NoteRepository::open(&store)?;
    store.transaction(|txn| {
        notes.insert(txn, &Note { id: 1 })?;
        (0..10).try_for_each(|tenant| {
            orders.insert(txn, &Order { tenant, number: 1, text: String::new() })
        })
    })?;
    let plan = store.rebalance("orders").plan()?;
    assert!(plan.moves().iter().all(|planned| planned.to == "b"), "{plan}");
    Ok(())
}

#[test]
fn a_run_is_stopped_between_moves_and_planned_again() -> Result<()> {
    let (store, _tables) = filled(|tenant| 1 + u64::from(tenant % 7))?;
    let plan = store.rebalance("orders").plan()?;
    assert!(plan.moves().len() >= 2, "{plan}");
    let mut first = true;
    let moved = plan.run_while(|_| std::mem::take(&mut first))?;
    assert_eq!(moved.rows, plan.moves()[0].rows);
    store.rebalance("orders").plan()?.run()?;
    assert_eq!(store.rebalance("orders").plan()?.moves(), []);
    Ok(())
}

#[test]
fn shards_are_rebalanced_beside_writers() -> Result<()> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let store = options().open(dir.path().join("shop"))?;
    let (orders, _lines) = (OrderRepository::open(&store)?, LineRepository::open(&store)?);
    let written = AtomicU64::new(0);
    let insert = |number: u64| {
        let tenant = u32::try_from(number % 40).unwrap_or_default();
        let text = String::new();
        store.transaction(|txn| orders.insert(txn, &Order { tenant, number, text: text.clone() }))
    };
    (0..400).try_for_each(|_| insert(written.fetch_add(1, Relaxed)))?;
    let done = AtomicBool::new(false);
    thread::scope(|scope| -> Result<()> {
        let writer = scope.spawn(|| -> Result<()> {
            while !done.load(Relaxed) {
                insert(written.fetch_add(1, Relaxed))?;
            }
            Ok(())
        });
        let run = || -> Result<()> {
            store.rebalance("orders").plan()?.run()?;
            store.add_shard("d", "d")?;
            store.rebalance("orders").plan()?.run().map(drop)
        };
        let outcome = run();
        done.store(true, Relaxed);
        writer.join().expect("the writer has not panicked")?;
        outcome
    })?;
    assert_eq!(orders.all(&store.read()?).count()?, written.load(Relaxed));
    assert!(store.shards()?.iter().all(|shard| shard.rows > 0));
    assert!(store.verify()?.is_clean());
    Ok(())
}

#[test]
fn maps_that_cannot_be_planned_are_refused() -> Result<()> {
    let store = options().in_memory()?;
    let text = |map: &str| reason(store.rebalance(map).plan());
    assert_eq!(text("x"), "rebalancing shard map `x`: the store has no such map");
    assert_eq!(text("orders"), "rebalancing shard map `orders`: no table with this map is in use");
    let orders = OrderRepository::open(&store)?;
    drop(LineRepository::open(&store)?);
    assert!(text("orders").ends_with("open the repository of table `lines` first"));
    let _lines = LineRepository::open(&store)?;
    let unknown = reason(store.rebalance("orders").onto(["z"]).plan());
    assert!(unknown.ends_with("there is no shard `z`"), "{unknown}");
    let none = reason(store.rebalance("orders").onto(Vec::<String>::new()).plan());
    assert!(none.ends_with("no shard remains as a target"), "{none}");
    drop(orders);
    Ok(())
}
