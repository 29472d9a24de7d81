//! A sharded store: the customers and orders of 40 tenants across four shards.
//!
//! ```text
//! cargo run --release --example tenants
//! ```
//!
//! It prints
//! 1. each shard, with its tenants and its rows. The rows of a tenant are co-located: its customers and its
//!    orders are in the same shard, so a transaction that writes both needs one shard;
//! 2. queries, with the number of shards that each of them reads. The numbers are measured;
//! 3. the first customers of all shards in the order of an index, page by page;
//! 4. the results of the other shards after one shard was left out.
//!
//! The store is in a temporary directory that is removed at the end.

use std::{
    error::Error,
    io::{self, Write},
    process::ExitCode,
    thread,
};

use index_table::{IndexTable, ReadTxn, ShardMap, Store};
use serde::{Deserialize, Serialize};

const TENANTS: u32 = 40;
const SHARDS: [&str; 4] = ["north", "east", "south", "west"];
const TOWNS: [&str; 5] = ["Chicago", "Oslo", "Portland", "Redmond", "Seattle"];

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "customers", shard_by = tenant)]
#[indexes((tenant, town), (town, include = [name]))]
struct Customer {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    id: u32,
    name: String,
    town: String,
}

/// An order. It uses the shard map of customers, so that the orders of a tenant are in the shard of its
/// customers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "orders", shard_by = tenant, shard_map = "customers")]
#[indexes((tenant, customer), (desc(total), tenant))]
struct Order {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    number: u32,
    customer: u32,
    total: u32,
}

/// Returns three customers of a tenant, and an order of each.
fn rows_of(tenant: u32) -> impl Iterator<Item = (Customer, Order)> {
    (1..=3).map(move |id| {
        let town = TOWNS[((tenant + id) % 5) as usize].to_owned();
        let name = format!("customer {tenant}/{id}");
        let total = (tenant * 37 + id * 11) % 100;
        (Customer { tenant, id, name, town }, Order { tenant, number: id, customer: id, total })
    })
}

fn main() -> ExitCode {
    match run(&mut io::stdout().lock()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("shop");
    let map = ShardMap::ranges()
        .to("north", ..10_u32)
        .to("east", 10_u32..20)
        .to("south", 20_u32..30)
        .to("west", 30_u32..);
    let options =
        SHARDS.iter().fold(Store::options(), |options, shard| options.shard(*shard, shard));
    let store = options.map("customers", map).open(&path)?;
    let customers = CustomerRepository::open(&store)?;
    let orders = OrderRepository::open(&store)?;

    // There is a thread for each shard, so the transactions run concurrently.
    thread::scope(|scope| {
        let writers: Vec<_> = (0..4)
            .map(|shard| {
                let (store, customers, orders) = (&store, &customers, &orders);
                scope.spawn(move || {
                    (shard * 10..shard * 10 + 10).try_for_each(|tenant| {
                        store.transaction(|txn| {
                            rows_of(tenant).try_for_each(|(customer, order)| {
                                customers.insert(txn, &customer)?;
                                orders.insert(txn, &order)
                            })
                        })
                    })
                })
            })
            .collect();
        writers.into_iter().try_for_each(|writer| {
            writer.join().unwrap_or(Err(index_table::Error::Panicked { message: String::new() }))
        })
    })?;

    print_shards(out, &store, &customers, &orders)?;
    print_queries(out, &store, &customers, &orders)?;
    print_pages(out, &customers, &store.read()?)?;
    drop((customers, orders, store));

    let store = Store::options().only(["north", "east", "west"]).open(&path)?;
    let customers = CustomerRepository::open(&store)?;
    let txn = store.read()?;
    let found = customers.find_by_town(&txn, "Redmond").available();
    writeln!(out, "Without a shard, customers in Redmond\n")?;
    for missing in &found.missing {
        writeln!(out, "  missing: {}", missing.name)?;
    }
    writeln!(out, "  found:   {}", found.scan.count()?)?;
    Ok(())
}

fn print_shards(
    out: &mut impl Write,
    store: &Store,
    customers: &CustomerRepository,
    orders: &OrderRepository,
) -> Result<(), Box<dyn Error>> {
    writeln!(out, "{TENANTS} tenants over {} shards\n", SHARDS.len())?;
    for shard in store.shard_ids() {
        let mut tenants = Vec::new();
        for tenant in 0..TENANTS {
            if customers.shard_of(store, tenant)? == shard {
                tenants.push(tenant);
            }
        }
        let txn = store.read_on(&shard)?;
        let (mut own_customers, mut own_orders) = (0, 0);
        for tenant in &tenants {
            own_customers += customers.find_by_tenant(&txn, *tenant).count()?;
            own_orders += orders.find_by_tenant(&txn, *tenant).count()?;
        }
        let (first, last) = (tenants.first().unwrap_or(&0), tenants.last().unwrap_or(&0));
        writeln!(
            out,
            "  {:<5} | tenants {first:>2} to {last:>2} | {own_customers} customers | {own_orders} orders",
            shard.name()
        )?;
    }
    writeln!(out)?;
    Ok(())
}

fn print_queries(
    out: &mut impl Write,
    store: &Store,
    customers: &CustomerRepository,
    orders: &OrderRepository,
) -> Result<(), Box<dyn Error>> {
    writeln!(out, "Queries\n")?;
    let mut print = |query: &str, count: &dyn Fn(&ReadTxn<'_>) -> index_table::Result<u64>| {
        let txn = store.read()?;
        let rows = count(&txn)?;
        let shards = txn.stats().shards;
        writeln!(out, "  {query:<33} | {rows:>3} rows | shards: {shards}")?;
        Ok::<_, Box<dyn Error>>(())
    };
    print("customers of tenant 7", &|txn| customers.find_by_tenant(txn, 7).count())?;
    print("customers of tenant 7 in Seattle", &|txn| {
        customers.find_by_tenant_town(txn, 7, "Seattle").count()
    })?;
    print("orders of tenants 7 to 12", &|txn| orders.find_by_tenant_range(txn, 7..=12).count())?;
    print("customers of tenants 1, 2 and 39", &|txn| {
        customers.find_by_tenant_in(txn, [1, 2, 39]).count()
    })?;
    print("customers in Redmond", &|txn| customers.find_by_town(txn, "Redmond").count())?;
    print("all customers", &|txn| customers.all(txn).count())?;
    writeln!(out)?;
    Ok(())
}

fn print_pages(
    out: &mut impl Write,
    customers: &CustomerRepository,
    txn: &ReadTxn<'_>,
) -> Result<(), Box<dyn Error>> {
    let first = customers.by_town(txn).page(4)?;
    writeln!(out, "Customers by town, two pages of all shards\n")?;
    let second = match &first.next {
        Some(cursor) => customers.by_town(txn).after(cursor).page(4)?.items,
        None => Vec::new(),
    };
    for (page, rows) in [(1, &first.items), (2, &second)] {
        for Customer { town, name, .. } in rows {
            writeln!(out, "  {page} | {town} | {name}")?;
        }
    }
    writeln!(out)?;
    Ok(())
}
