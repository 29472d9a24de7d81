use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[table(primary_key = id)]
struct Customer {
    id: u64,
    town: String,
    last_name: String,
}

fn query(customers: &CustomerRepository, txn: &index_table::ReadTxn<'_>) -> index_table::Result<()> {
    let _ = customers.get(txn, 1)?;
    Ok(())
}

fn main() {}
