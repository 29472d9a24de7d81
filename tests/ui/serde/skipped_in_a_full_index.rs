use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[index(town, strategy = "full")]
struct Customer {
    #[primary_key]
    id: u64,
    town: String,
    #[serde(skip)]
    cached: u32,
}

fn query(customers: &CustomerRepository, txn: &index_table::ReadTxn<'_>) -> index_table::Result<()> {
    let _ = customers.find_by_town(txn, "Redmond").first()?;
    Ok(())
}

fn main() {}
