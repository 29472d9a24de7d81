//! `paths put|query|commit|move` runs an operation inside of [`measured`]. `scripts/paths` lists the files of the runtime
//! that it passes.

use std::error::Error;

use index_table::{IndexTable, ShardMap, Store};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "customers", shard_by = tenant)]
#[index(town)]
#[index(tenant, email, unique)]
struct Customer {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    id: u64,
    town: String,
    email: String,
}

const ROWS: u64 = 100;
const TENANT: u32 = 7;

fn customer(id: u64, town: &str) -> Customer {
    Customer { tenant: TENANT, id, town: town.to_owned(), email: format!("{id}@example.com") }
}

/// Runs the operation whose functions are listed.
#[inline(never)]
fn measured<T>(operation: impl FnOnce() -> T) -> T {
    operation()
}

fn main() -> Result<(), Box<dyn Error>> {
    let operation = std::env::args().nth(1).unwrap_or_default();
    let directory = tempfile::tempdir()?;
    let options = Store::options().map_size(1 << 26);
    let options = if operation == "move" {
        let map = ShardMap::list().to("a", [TENANT]).to("b", [TENANT + 1]);
        options.map("customers", map).shard("a", "a").shard("b", "b")
    } else {
        options
    };
    let store = options.open(directory.path())?;
    let customers = CustomerRepository::open(&store)?;
    let rows = (0..ROWS).map(|id| customer(id, "Redmond"));
    store.transaction(|txn| rows.clone().try_for_each(|row| customers.put(txn, &row)))?;
    match operation.as_str() {
        "put" => {
            let mut txn = store.write()?;
            customers.put(&mut txn, &customer(0, "Seattle"))?;
            measured(|| customers.put(&mut txn, &customer(1, "Seattle")))?;
            txn.commit()?;
        }
        "query" => {
            let txn = store.read()?;
            let found = measured(|| customers.find_by_town(&txn, "Redmond").rows().count());
            assert_eq!(found, ROWS as usize);
        }
        "commit" => {
            let mut txn = store.write()?;
            customers.put(&mut txn, &customer(1, "Seattle"))?;
            measured(|| txn.commit())?;
        }
        "move" => {
            let moved = measured(|| store.move_keys("customers", [TENANT], "b").run())?;
            assert_eq!(moved.rows, ROWS);
        }
        _ => return Err("paths put|query|commit|move".into()),
    }
    Ok(())
}
