//! The contents and the load of shards and ranges.

use index_table::{
    Error, IndexTable, Result, ShardMap, Store,
    report::{RangeInfo, ShardInfo, ShardStatus},
};
use serde::{Deserialize, Serialize};

#[derive(Debug, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "orders", shard_by = tenant)]
#[index(town)]
struct Order {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    number: u64,
    town: String,
}

#[derive(Debug, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "notes", shard_by = tenant, shard_map = "orders")]
struct Note {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    number: u64,
}

#[derive(Debug, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "events", shard_by = hash(id))]
struct Event {
    #[primary_key]
    id: u64,
}

#[derive(Debug, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "towns", reference)]
struct Town {
    #[primary_key]
    name: String,
}

fn order(tenant: u32, number: u64) -> Order {
    Order { tenant, number, town: "Oslo".to_owned() }
}

fn open(path: &std::path::Path) -> Result<Store> {
    let orders = ShardMap::ranges().to("north", ..100u32).to("south", 100u32..200);
    Store::options()
        .shard("north", "north")
        .shard("south", "south")
        .map("orders", orders)
        .map("events", ShardMap::hashed(["north", "south"]))
        .open(path)
}

fn of<T>(shards: &[ShardInfo], value: impl Fn(&ShardInfo) -> T) -> Vec<T> {
    shards.iter().map(value).collect()
}

#[test]
fn each_shard_has_its_rows_bytes_reads_and_writes() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path())?;
    let (orders, notes) = (OrderRepository::open(&store)?, NoteRepository::open(&store)?);
    let towns = TownRepository::open(&store)?;
    let before = store.shards()?;
    assert_eq!(of(&before, |shard| (shard.rows, shard.writes)), [(0, 0), (0, 0)]);

    store.transaction(|txn| orders.insert(txn, &order(7, 1)))?;
    store.transaction(|txn| {
        orders.insert(txn, &order(8, 1))?;
        orders.insert(txn, &order(107, 1))?;
        notes.insert(txn, &Note { tenant: 107, number: 1 })
    })?;
    // Neither a rolled-back transaction nor a transaction without changes counts.
    let refused = store.transaction(|txn| orders.insert(txn, &order(7, 1)));
    assert!(matches!(refused, Err(Error::DuplicateKey { .. })));
    store.transaction(|txn| orders.get(txn, 107, 1).map(drop))?;
    let shards = store.shards()?;
    assert_eq!(of(&shards, |shard| (shard.rows, shard.writes)), [(2, 2), (2, 1)]);
    assert!(shards.iter().all(|shard| shard.bytes > 0));

    // A copy of a reference table is part of each shard.
    store.transaction(|txn| towns.insert(txn, &Town { name: "Oslo".to_owned() }))?;
    let shards = store.shards()?;
    assert_eq!(of(&shards, |shard| (shard.rows, shard.writes)), [(3, 3), (3, 2)]);
    let reads = of(&shards, |shard| shard.reads);

    // A transaction counts once in each shard that it reads.
    {
        let txn = store.read()?;
        assert!(orders.get(&txn, 107, 1)?.is_some());
        assert!(orders.get(&txn, 108, 1)?.is_none());
    }
    {
        assert_eq!(orders.find_by_town(&store.read()?, "Oslo").rows().count(), 3);
    }
    let shards = store.shards()?;
    // One of the reads is the previous call of `shards`.
    assert_eq!(of(&shards, |shard| shard.reads), [reads[0] + 2, reads[1] + 3]);
    assert_eq!(shards[0].to_string().split(':').next(), Some("shard `north`, available"));
    let json = serde_json::to_string(&shards).expect("JSON");
    assert!(json.starts_with(r#"[{"name":"north","state":"Available","rows":3,"#), "{json}");
    Ok(())
}

#[test]
#[expect(clippy::cast_precision_loss, reason = "the numbers are small")]
fn the_shares_of_shards_and_ranges_are_parts_of_their_totals() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path())?;
    let orders = OrderRepository::open(&store)?;
    let none = store.ranges("orders")?;
    assert!(none.iter().all(|range| (range.row_share, range.byte_share) == (0.0, 0.0)));
    store.transaction(|txn| {
        (1..4).try_for_each(|number| orders.insert(txn, &order(7, number)))?;
        orders.insert(txn, &order(107, 1))
    })?;
    store.transaction(|txn| orders.insert(txn, &order(107, 2)))?;
    store.transaction(|txn| orders.delete(txn, 107, 2).map(drop))?;
    assert!(orders.get(&store.read()?, 7, 1)?.is_some());

    let shards = store.shards()?;
    assert_eq!(of(&shards, |shard| shard.row_share), [0.75, 0.25]);
    assert_eq!(of(&shards, |shard| shard.write_share), [0.25, 0.75]);
    let reads: Vec<_> = of(&shards, |shard| shard.reads);
    let part = reads[0] as f64 / (reads[0] + reads[1]) as f64;
    assert!((shards[0].read_share - part).abs() < 1e-9, "{shards:?}");
    let sum = |share: fn(&ShardInfo) -> f64| of(&shards, share).iter().sum::<f64>();
    assert!((sum(|shard| shard.read_share) - 1.0).abs() < 1e-9);
    assert!((sum(|shard| shard.byte_share) - 1.0).abs() < 1e-9);

    let ranges = store.ranges("orders")?;
    assert_eq!(ranges.iter().map(|range| range.row_share).collect::<Vec<_>>(), [0.75, 0.25]);
    let all: u64 = ranges.iter().map(|range| range.bytes).sum();
    assert!((ranges[0].byte_share - ranges[0].bytes as f64 / all as f64).abs() < 1e-9);
    let json = serde_json::to_value(&ranges).expect("JSON");
    assert_eq!(json[0]["row_share"], 0.75);
    Ok(())
}

#[test]
fn a_shard_that_is_not_available_has_no_rows() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    drop(open(dir.path())?);
    let store = Store::options().only(["north"]).open(dir.path())?;
    let orders = OrderRepository::open(&store)?;
    store.transaction(|txn| orders.insert(txn, &order(7, 1)))?;
    let shards = store.shards()?;
    assert_eq!(of(&shards, |shard| shard.rows), [1, 0]);
    assert!(
        matches!(&shards[1].state, ShardStatus::Unavailable { reason } if reason.contains("only"))
    );
    assert!(matches!(store.ranges("orders"), Err(Error::ShardUnavailable { .. })));
    Ok(())
}

#[test]
fn each_range_has_the_rows_of_all_tables_of_its_map() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path())?;
    assert!(matches!(store.ranges("orders"), Err(Error::ShardRefused { .. })));
    let (orders, notes) = (OrderRepository::open(&store)?, NoteRepository::open(&store)?);
    let events = EventRepository::open(&store)?;
    store.transaction(|txn| {
        orders.insert(txn, &order(7, 1))?;
        orders.insert(txn, &order(100, 1))?;
        orders.insert(txn, &order(199, 1))?;
        notes.insert(txn, &Note { tenant: 100, number: 1 })?;
        (0..50).try_for_each(|id| events.insert(txn, &Event { id }))
    })?;
    let ranges = store.ranges("orders")?;
    let ends = |range: &RangeInfo| (range.start.clone(), range.end.clone());
    let text = |text: &str| Some(text.to_owned());
    // No shard has keys from 200 on.
    let expected = [(None, text("100")), (text("100"), text("200"))];
    assert_eq!(ranges.iter().map(ends).collect::<Vec<_>>(), expected);
    let shards: Vec<_> = ranges.iter().map(|range| range.shard.as_str()).collect();
    assert_eq!(shards, ["north", "south"]);
    assert_eq!(ranges.iter().map(|range| range.rows).collect::<Vec<_>>(), [1, 3]);
    assert!(ranges[1].bytes > 3 * 12);
    assert!(ranges[0].to_string().starts_with("..100 in `north`: 1 rows, "));
    assert!(serde_json::to_string(&ranges).expect("JSON").contains(r#""start":"100""#));

    let slots = store.ranges("events")?;
    assert_eq!(slots.len(), 2);
    assert_eq!(slots[1].start.as_deref(), Some("2048"));
    for range in &slots {
        let shard = store.shard(&range.shard)?;
        let rows = store.sizes_on(&shard)?;
        let rows = rows.iter().find(|size| size.table == "events").map(|size| size.rows);
        assert_eq!(Some(range.rows), rows);
    }
    assert_eq!(slots.iter().map(|range| range.rows).sum::<u64>(), 50);
    assert!(matches!(store.ranges("nothing"), Err(Error::ShardRefused { .. })));
    Ok(())
}
