use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[index(town)]
struct Customer {
    id: u64,
    town: String,
}

fn query(customers: &CustomerRepository, txn: &index_table::ReadTxn<'_>) -> index_table::Result<()> {
    customers.get(txn, 7)?;
    let _ = customers.find_by_town(txn, "Redmond").first()?;
    Ok(())
}

fn main() {}
