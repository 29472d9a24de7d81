use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Default, Serialize, Deserialize, IndexTable)]
#[serde(default)]
#[table(view)]
struct Customer {
    #[primary_key]
    id: u64,
    town: String,
    #[serde(skip)]
    cache: Vec<u8>,
    #[serde(skip, default)]
    other: Vec<u8>,
}

fn query(customers: &CustomerRepository, txn: &index_table::ReadTxn<'_>) -> index_table::Result<()> {
    customers.get_view(txn, 7)?;
    Ok(())
}

fn main() {}
