//! Operations in an open transaction of one shard, and in an open transaction of a plain store.

use index_table::{Durability, IndexTable, Options, ReadTxn, ShardId, ShardMap, Store, WriteTxn};
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use crate::{COVERED, NAME, ROWS, Result, SOME, data, measured};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "customers", shard_by = tenant)]
#[indexes(
    (tenant, town),
    (tenant, town, last_name, include = [phone]),
    (tenant, email, unique)
)]
struct Customer {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    id: u64,
    first_name: String,
    last_name: String,
    town: String,
    phone: String,
    email: String,
}

const TENANT: u32 = 7;

impl Customer {
    fn number(number: u64) -> Self {
        let data::Customer { id, first_name, last_name, town, phone, email } =
            data::Customer::number(number);
        Self { tenant: TENANT, id, first_name, last_name, town, phone, email }
    }
}

/// A plain store, or a shard of a store with shards.
struct Side {
    store: Store,
    shard: Option<ShardId>,
    customers: CustomerRepository,
    _directory: TempDir,
}

impl Side {
    fn new(sharded: bool) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let options: Options = Store::options().map_size(1 << 28).durability(Durability::None);
        let options = if sharded {
            let map = ShardMap::ranges().to("a", ..5_u32).to("b", 5_u32..10).to("c", 10_u32..);
            let all = options.map("customers", map);
            ["a", "b", "c"].into_iter().fold(all, |all, name| all.shard(name, name))
        } else {
            options
        };
        let store = options.open(directory.path())?;
        let shard = if sharded { Some(store.shard("b")?) } else { None };
        let customers = CustomerRepository::open(&store)?;
        let side = Self { store, shard, customers, _directory: directory };
        let mut txn = side.write()?;
        for number in 0..ROWS {
            side.customers.insert(&mut txn, &Customer::number(number))?;
        }
        txn.commit()?;
        Ok(side)
    }

    fn write(&self) -> Result<WriteTxn<'_>> {
        Ok(match &self.shard {
            None => self.store.write()?,
            Some(shard) => self.store.write_on(shard)?,
        })
    }

    fn read(&self) -> Result<ReadTxn<'_>> {
        Ok(match &self.shard {
            None => self.store.read()?,
            Some(shard) => self.store.read_on(shard)?,
        })
    }
}

/// Runs an operation many times in a transaction.
pub(crate) fn run(operation: &str, sharded: bool) -> Result<usize> {
    let side = Side::new(sharded)?;
    let customers = &side.customers;
    let some: Vec<Customer> =
        (0..ROWS).step_by((ROWS / SOME) as usize).map(Customer::number).collect();
    match operation {
        "shard-get" => {
            let txn = side.read()?;
            measured(|| {
                some.iter().try_fold(0, |sum, row| {
                    let row = customers.get(&txn, TENANT, row.id)?;
                    Ok(sum + row.map_or(0, |row| row.last_name.len()))
                })
            })
        }
        "shard-insert" => {
            let new: Vec<Customer> = (ROWS..ROWS + SOME).map(Customer::number).collect();
            let mut txn = side.write()?;
            measured(|| new.iter().try_for_each(|row| customers.insert(&mut txn, row)))?;
            Ok(customers.find_by_tenant(&txn, TENANT).count()? as usize)
        }
        "shard-update" => {
            let mut txn = side.write()?;
            let change = |row: &mut Customer| NAME.clone_into(&mut row.first_name);
            measured(|| {
                some.iter().try_fold(0, |sum, row| {
                    Ok(sum + usize::from(customers.update(&mut txn, TENANT, row.id, change)?))
                })
            })
        }
        "shard-find-entries" => {
            let txn = side.read()?;
            let names: Vec<(&str, &str)> = (0..COVERED).map(data::Customer::names).collect();
            measured(|| {
                let mut sum = 0;
                for (last_name, town) in &names {
                    let found =
                        customers.find_by_tenant_town_last_name(&txn, TENANT, town, last_name);
                    for entry in found.entries() {
                        let entry = entry?;
                        sum += entry.phone.len() + (entry.id & 1) as usize;
                    }
                }
                Ok(sum)
            })
        }
        _ => crate::merged::run(operation, sharded),
    }
}
