//! The requests of ranges and shard keys, and advice on shards with more than their share.

use index_table::{IndexTable, Options, Result, ShardMap, Store};
use serde::{Deserialize, Serialize};

use crate::opening::reason;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "orders", shard_by = tenant)]
#[index(tenant, total)]
#[index(code, scope = "global")]
struct Order {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    number: u64,
    total: u64,
    code: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "events", shard_by = hash(user))]
struct Event {
    #[primary_key]
    user: u64,
    #[primary_key]
    number: u64,
}

fn options() -> Options {
    ["a", "b"]
        .into_iter()
        .fold(Store::options(), |options, name| options.shard(name, name))
        .map("orders", ShardMap::ranges().to("a", ..50u32).to("b", 50u32..))
        .map("events", ShardMap::hashed(["a", "b"]))
}

fn order(tenant: u32, number: u64) -> Order {
    Order { tenant, number, total: number % 10, code: number }
}

/// Creates a store in which each tenant has the number of orders that `orders` returns.
fn filled(orders: impl Fn(u32) -> u64) -> Result<(Store, OrderRepository)> {
    let store = options().in_memory()?;
    let repository = OrderRepository::open(&store)?;
    store.transaction(|txn| {
        (0..100).try_for_each(|tenant| {
            (0..orders(tenant)).try_for_each(|it| repository.insert(txn, &order(tenant, it)))
        })
    })?;
    Ok((store, repository))
}

#[test]
fn ranges_have_their_share_of_the_requests() -> Result<()> {
    let (store, orders) = filled(|_| 10)?;
    for request in 0..8000_u32 {
        let txn = store.read()?;
        // Three in four requests are look-ups and queries of the range of `a`.
        let tenant = if request % 4 == 0 { 50 + request % 50 } else { request % 50 };
        if request % 3 == 0 {
            assert!(orders.get(&txn, tenant, 1)?.is_some());
        } else {
            assert_eq!(orders.find_by_tenant_total(&txn, tenant, 3).rows().count(), 1);
        }
    }
    let ranges = store.ranges("orders")?;
    let reads: u64 = ranges.iter().map(|range| range.reads).sum();
    assert!((7900..8100).contains(&reads), "{ranges:?}");
    assert!((0.65..0.85).contains(&ranges[0].read_share), "{ranges:?}");
    let writes: u64 = ranges.iter().map(|range| range.writes).sum();
    assert!((900..1100).contains(&writes), "{ranges:?}");
    assert!((0.3..0.7).contains(&ranges[1].write_share), "{ranges:?}");
    let shown = ranges[0].to_string();
    assert!(shown.contains("reads") && shown.contains("writes"), "{shown}");
    let json = serde_json::to_value((&ranges, store.shards()?)).expect("JSON");
    assert!(json[0][0]["read_share"].is_number() && json[1][0]["row_share"].is_number(), "{json}");
    // Planning and listing don't count as requests.
    assert_eq!(store.ranges("orders")?, ranges);
    assert!(store.ranges("orders.code")?.iter().all(|range| range.reads == 0 && range.rows > 0));
    Ok(())
}

#[test]
fn the_hottest_keys_are_named_with_their_shards() -> Result<()> {
    let (store, orders) = filled(|_| 1)?;
    let events = EventRepository::open(&store)?;
    for request in 0..6000_u64 {
        let txn = store.read()?;
        let tenant = if request % 2 == 0 { 77 } else { (request % 100) as u32 };
        assert!(orders.get(&txn, tenant, 0)?.is_some());
        let user = if request % 3 == 0 { 5 } else { request };
        events.get(&txn, user, 1)?;
    }
    let hot = store.hot_keys("orders", 3)?;
    assert_eq!(hot.len(), 3);
    assert_eq!((hot[0].key.as_str(), hot[0].shard.as_deref()), ("77", Some("b")));
    assert!((0.4..0.6).contains(&hot[0].share), "{hot:?}");
    assert!(hot[1].share < 0.05 && hot[0].reads > 2500, "{hot:?}");
    assert!(hot[0].to_string().starts_with("77 in `b`: "), "{}", hot[0]);
    let user = store.hot_keys("events", 1)?.remove(0);
    let own = events.shard_of(&store, 5)?;
    assert_eq!((user.key.as_str(), user.shard.as_deref()), ("5", Some(own.name())));
    assert!(reason(store.hot_keys("orders.code", 1)).contains("no table whose rows"));
    assert!(reason(store.hot_keys("x", 1)).contains("no such map"));
    Ok(())
}

#[test]
fn a_shard_with_more_than_its_share_is_named_with_the_reason() -> Result<()> {
    let (store, orders) = filled(|tenant| if tenant < 50 { 10 } else { 2 })?;
    let advice = store.shard_advice("orders")?;
    assert_eq!(advice[0].shard, "a");
    assert_eq!((advice[0].unit, advice[0].key.as_ref()), ("rows", None), "{advice:?}");
    let shown = advice[0].to_string();
    let expected = "shard `a` has 83 % of the rows of shard map `orders`, and an even share is 50 %: \
                    `rebalance(\"orders\").by_rows()` plans moves to other shards";
    assert_eq!(shown, expected);
    store.rebalance("orders").by_rows().plan()?.run()?;
    let units: Vec<_> = store.shard_advice("orders")?.iter().map(|it| it.unit).collect();
    assert!(!units.contains(&"rows"), "{units:?}");

    // A single key is the reason.
    store.transaction(|txn| (100..3000).try_for_each(|it| orders.insert(txn, &order(7, it))))?;
    for _ in 0..6000 {
        orders.get(&store.read()?, 7, 1)?;
    }
    for unit in ["rows", "bytes", "requests"] {
        let advice = store.shard_advice("orders")?.into_iter().find(|it| it.unit == unit);
        let advice = advice.expect("advice");
        assert_eq!(advice.key.as_ref().map(|(key, _)| key.as_str()), Some("7"), "{advice}");
        assert!(advice.to_string().contains("no split helps; only a longer shard key"), "{advice}");
    }
    Ok(())
}

#[test]
fn a_hot_key_of_a_hash_map_is_the_reason_of_its_shard() -> Result<()> {
    let store = options().in_memory()?;
    let events = EventRepository::open(&store)?;
    store.transaction(|txn| {
        (0..1000).try_for_each(|user| events.insert(txn, &Event { user, number: 1 }))
    })?;
    assert_eq!(store.shard_advice("events")?, []);
    for _ in 0..8000 {
        events.get(&store.read()?, 42, 1)?;
    }
    let advice = store.shard_advice("events")?;
    assert_eq!(advice.len(), 1, "{advice:?}");
    assert_eq!(advice[0].key.as_ref().map(|(key, _)| key.as_str()), Some("42"));
    Ok(())
}

#[test]
fn keys_with_many_requests_are_divided_by_a_plan_by_requests() -> Result<()> {
    let (store, orders) = filled(|_| 10)?;
    for request in 0..12_000_u32 {
        orders.get(&store.read()?, [3, 4][request as usize % 2], 1)?;
    }
    let plan = store.rebalance("orders").by_requests().plan()?;
    plan.run()?;
    assert_ne!(orders.shard_of(&store, 3)?, orders.shard_of(&store, 4)?, "{plan}");
    Ok(())
}
