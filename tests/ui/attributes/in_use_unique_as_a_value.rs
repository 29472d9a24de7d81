use index_table::{IndexTable, Store};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[index(email = unique)]
struct Customer {
    #[primary_key]
    id: u64,
    town: String,
    email: String,
}

fn query(store: &Store) -> index_table::Result<()> {
    let customers = CustomerRepository::open(store)?;
    let txn = store.read()?;
    let customer: Option<Customer> = customers.get_by_email(&txn, "a@b")?;
    Ok(())
}

fn main() {}
