use index_table::{IndexTable, Store};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[index(town)]
#[index(year)]
struct Customer {
    #[primary_key]
    id: u64,
    town: String,
    year: u16,
}

fn call(store: &Store, customers: &CustomerRepository, customer: &Customer) -> index_table::Result<()> {
    store.transaction(|txn| customers.insert_or_replace(txn, customer))?;
    Ok(())
}

fn main() {}
