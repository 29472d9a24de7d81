use index_table::{IndexTable, Store};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[idnex(town, unique)]
struct Customer {
    #[primary_key]
    id: u64,
    town: String,
    year: u16,
}

fn query(store: &Store) -> index_table::Result<()> {
    let customers = CustomerRepository::open(store)?;
    let txn = store.read()?;
    let customer: Option<Customer> = customers.get_by_town(&txn, "Rome")?;
    Ok(())
}

fn main() {}
