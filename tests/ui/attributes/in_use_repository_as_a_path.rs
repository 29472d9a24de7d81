use index_table::{IndexTable, Store};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[table(repository = shop::Customers)]
struct Customer {
    #[primary_key]
    id: u64,
    town: String,
    visits: u32,
}

fn query(store: &Store) -> index_table::Result<()> {
    let customers = Customers::open(store)?;
    let txn = store.read()?;
    let customer: Option<Customer> = customers.get(&txn, 7)?;
    Ok(())
}

fn main() {}
