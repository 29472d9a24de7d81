//! Queries in a read transaction of all shards, compared with a plain store. The rows of three tenants alternate, and
//! each tenant is in a shard of its own.

use index_table::{Durability, IndexTable, ShardMap, Store};
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use crate::{ROWS, Result, SOME, data, measured};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "customers", shard_by = tenant)]
#[indexes((tenant, town), (town, last_name, include = [phone]))]
struct Customer {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    id: u64,
    first_name: String,
    last_name: String,
    town: String,
    phone: String,
}

impl Customer {
    fn number(number: u64) -> Self {
        let data::Customer { id, first_name, last_name, town, phone, .. } =
            data::Customer::number(number);
        Self { tenant: [2, 7, 12][(number % 3) as usize], id, first_name, last_name, town, phone }
    }
}

/// Fills a store, and calls `query` with it.
fn in_store<T>(
    sharded: bool,
    query: impl FnOnce(&Store, &CustomerRepository) -> Result<T>,
) -> Result<T> {
    let directory = TempDir::new()?;
    let options = Store::options().map_size(1 << 28).durability(Durability::None);
    let fill = |store: &Store| -> Result<CustomerRepository> {
        let customers = CustomerRepository::open(store)?;
        let mut txn = store.write()?;
        for number in 0..ROWS {
            customers.insert(&mut txn, &Customer::number(number))?;
        }
        txn.commit()?;
        Ok(customers)
    };
    if sharded {
        let map = ShardMap::ranges().to("a", ..5_u32).to("b", 5_u32..10).to("c", 10_u32..);
        let all = options.map("customers", map);
        let all = ["a", "b", "c"].into_iter().fold(all, |all, name| all.shard(name, name));
        let store = all.open(directory.path())?;
        query(&store, &fill(&store)?)
    } else {
        let store = options.open(directory.path())?;
        query(&store, &fill(&store)?)
    }
}

/// Runs an operation in a transaction.
pub(crate) fn run(operation: &str, sharded: bool) -> Result<usize> {
    let some: Vec<Customer> =
        (0..ROWS).step_by((ROWS / SOME) as usize).map(Customer::number).collect();
    in_store(sharded, |store, customers| {
        let txn = store.read()?;
        match operation {
            "shard-find-rows" => measured(|| {
                let mut sum = 0;
                for Customer { tenant, town, .. } in &some {
                    for row in customers.find_by_tenant_town(&txn, *tenant, town).limit(20).rows() {
                        sum += row?.last_name.len();
                    }
                }
                Ok(sum)
            }),
            "shard-merged-entries" => measured(|| {
                let mut sum = 0;
                for entry in customers.by_town_last_name(&txn).entries() {
                    let entry = entry?;
                    sum += entry.phone.len() + (entry.id & 1) as usize;
                }
                Ok(sum)
            }),
            "shard-merged-rows" => measured(|| {
                let mut sum = 0;
                for row in customers.by_town_last_name(&txn).rows() {
                    sum += row?.first_name.len();
                }
                Ok(sum)
            }),
            _ => Err(format!("unknown operation `{operation}`").into()),
        }
    })
}
