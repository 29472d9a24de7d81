use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[index(address.town, name)]
struct Customer {
    #[primary_key]
    id: u64,
    name: String,
    address: Address,
}

#[derive(Serialize, Deserialize)]
struct Address {
    town: String,
}

fn query(customers: &CustomerRepository, txn: &index_table::ReadTxn<'_>) -> index_table::Result<()> {
    customers.get(txn, 7)?;
    Ok(())
}

fn main() {}
