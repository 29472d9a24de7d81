//! The same repositories over several shards, and keys that move between them.

use index_table::{IndexTable, ShardId, ShardMap, Store};
use serde::{Deserialize, Serialize};

use super::TestResult;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "customers", shard_by = tenant)]
#[index(tenant, town)]
#[index(town, include = [last_name])]
#[index(email, unique, scope = "global")]
struct Customer {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    id: u64,
    town: String,
    last_name: String,
    email: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "orders", shard_by = tenant, shard_map = "customers")]
struct Order {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    number: u64,
    total: i64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "events", shard_by = hash(id))]
struct Event {
    #[primary_key]
    id: u64,
    text: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "postal_codes", reference)]
struct PostalCode {
    #[primary_key]
    code: String,
    town: String,
}

fn customer(tenant: u32, id: u64, town: &str) -> Customer {
    let (town, last_name) = (town.to_owned(), "Smith".to_owned());
    Customer { tenant, id, town, last_name, email: format!("{tenant}.{id}@example.com") }
}

fn create(path: &std::path::Path) -> index_table::Result<Store> {
    Store::options()
        .shard("north", "north")
        .shard("south", "south")
        .map("customers", ShardMap::ranges().to("north", ..100u32).to("south", 100u32..))
        .map("events", ShardMap::hashed(["north", "south"]))
        .open(path)
}

#[test]
fn documented_shards_return_the_rows_of_all_shards() -> TestResult {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("data/shop");
    drop(create(&path)?);
    let store = Store::open(&path)?;
    let customers = CustomerRepository::open(&store)?;
    let (orders, events) = (OrderRepository::open(&store)?, EventRepository::open(&store)?);
    let postal_codes = PostalCodeRepository::open(&store)?;

    let alice = customer(7, 1, "Redmond");
    let order = Order { tenant: 7, number: 1, total: 250 };
    store.transaction(|txn| {
        customers.insert(txn, &alice)?;
        orders.insert(txn, &order)
    })?;
    store.transaction(|txn| {
        customers.insert(txn, &customer(200, 1, "Redmond"))?;
        events.insert(txn, &Event { id: 1, text: "opened".into() })?;
        postal_codes.insert(txn, &PostalCode { code: "98052".into(), town: "Redmond".into() })
    })?;
    let shard: ShardId = orders.shard_of(&store, 7)?;
    let order = Order { tenant: 7, number: 2, total: 100 };
    store.transaction_on(&shard, |txn| orders.insert(txn, &order))?;
    let writer = store.writer()?;
    let order = Order { tenant: 7, number: 3, total: 1 };
    let done = orders.submit_for(&writer, 7, {
        let orders = orders.clone();
        move |txn| orders.insert(txn, &order)
    });
    done.wait()?;

    let txn = store.read()?;
    let n = customers.find_by_town(&txn, "Redmond").rows().count();
    assert_eq!((n, txn.stats().shards), (2, 2));
    let txn = store.read()?;
    let n = customers.find_by_tenant_town(&txn, 7, "Redmond").rows().count();
    assert_eq!((n, txn.stats().shards), (1, 1));
    assert_eq!(customers.get_by_email(&txn, "7.1@example.com")?, Some(alice));
    let txn = store.read_on(&shard)?;
    assert_eq!(orders.find_by_tenant(&txn, 7).count()?, 3);
    assert_eq!(postal_codes.get(&txn, "98052")?.map(|code| code.town), Some("Redmond".into()));
    Ok(())
}

#[test]
fn documented_list_maps_and_places_return_their_rows() -> TestResult {
    let dir = tempfile::tempdir()?;
    let store = Store::options()
        .shard("north", "north")
        .shard("south", "south")
        .map("customers", ShardMap::list().to("north", [1u32, 2, 5]).otherwise("south"))
        .place("postal_codes", "south")
        .open(dir.path().join("shop"))?;
    let customers = CustomerRepository::open(&store)?;
    store.transaction(|txn| {
        customers.insert(txn, &customer(5, 1, "Redmond"))?;
        customers.insert(txn, &customer(6, 1, "Redmond"))
    })?;
    assert_eq!(customers.shard_of(&store, 5)?.to_string(), "north");
    assert_eq!(customers.shard_of(&store, 6)?.to_string(), "south");
    drop((customers, store));
    let store = Store::options().only(["north"]).open(dir.path().join("shop"))?;
    let customers = CustomerRepository::open(&store)?;
    assert!(customers.get(&store.read()?, 5, 1)?.is_some());
    Ok(())
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "invoices")]
struct Invoice {
    #[primary_key]
    number: u64,
}

#[test]
fn documented_moves_keep_all_rows() -> TestResult {
    let dir = tempfile::tempdir()?;
    let store = create(dir.path())?;
    let customers = CustomerRepository::open(&store)?;
    let (_orders, _events) = (OrderRepository::open(&store)?, EventRepository::open(&store)?);
    let invoices = InvoiceRepository::open(&store)?;
    store.transaction(|txn| invoices.insert(txn, &Invoice { number: 1 }))?;
    store.transaction(|txn| {
        (0..200).try_for_each(|tenant| customers.insert(txn, &customer(tenant, 1, "Redmond")))
    })?;

    store.add_shard("east", "east")?;
    store.move_range("customers", 50u32..100, "east").run()?;
    store.move_range("customers", ..50u32, "south").offline().run()?;
    assert_eq!(customers.shard_of(&store, 70)?.to_string(), "east");
    assert!(store.remove_shard("east").is_err(), "the shard has rows");
    let mut rows = 0;
    for shard in store.shards()? {
        println!(
            "{} {:?} {} rows {} bytes {} reads {} writes",
            shard.name, shard.state, shard.rows, shard.bytes, shard.reads, shard.writes
        );
        rows += shard.rows;
    }
    assert_eq!(rows, 201);
    store.add_shard("billing", "billing")?;
    store.move_table("invoices", "billing").run()?;
    assert!(invoices.get(&store.read_on(&store.shard("billing")?)?, 1)?.is_some());
    let plan = store.rebalance("customers").by_rows().plan()?;
    assert!(!plan.to_string().is_empty());
    plan.run()?;
    assert!(store.rebalance("customers").by_bytes().onto(["south", "east"]).plan().is_ok());
    assert!(store.rebalance("customers").by_requests().plan().is_ok());
    assert_eq!(customers.find_by_town(&store.read()?, "Redmond").count()?, 200);
    assert!(store.verify()?.is_clean());
    Ok(())
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "entries", shard_by = year)]
struct Entry {
    #[primary_key]
    year: u16,
    #[primary_key]
    number: u64,
}

#[test]
fn documented_detached_shards_are_plain_stores() -> TestResult {
    let dir = tempfile::tempdir()?;
    let store = Store::options()
        .shard("2019", "2019")
        .shard("2020", "2020")
        .map("entries", ShardMap::ranges().to("2019", ..2020u16).to("2020", 2020u16..))
        .open(dir.path())?;
    let entries = EntryRepository::open(&store)?;
    store.transaction(|txn| {
        entries.insert(txn, &Entry { year: 2019, number: 1 })?;
        entries.insert(txn, &Entry { year: 2020, number: 1 })
    })?;
    store.detach_shard("2019")?;
    assert!(entries.get(&store.read()?, 2019, 1).is_err(), "its shard is detached");

    std::fs::create_dir(dir.path().join("archive"))?;
    std::fs::rename(dir.path().join("2019"), dir.path().join("archive/2019"))?;
    {
        let old = Store::open(dir.path().join("archive/2019"))?;
        let entries = EntryRepository::open(&old)?;
        assert!(entries.get(&old.read()?, 2019, 1)?.is_some());
    }
    store.attach_shard("2019", "archive/2019")?;
    assert!(entries.get(&store.read()?, 2019, 1)?.is_some());
    drop((entries, store));
    let store = Store::open(dir.path())?;
    assert!(EntryRepository::open(&store)?.get(&store.read()?, 2019, 1)?.is_some());
    Ok(())
}
