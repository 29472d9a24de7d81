use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[index]
#[index()]
#[index(unique)]
struct Customer {
    #[primary_key]
    id: u64,
    town: String,
    last_name: String,
    phone: String,
    tags: Vec<String>,
}

fn query(customers: &CustomerRepository, txn: &index_table::ReadTxn<'_>) -> index_table::Result<()> {
    customers.get(txn, 7)?;
    Ok(())
}

fn main() {}

// 3 mistakes
