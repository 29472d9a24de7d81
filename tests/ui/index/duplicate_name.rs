use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[index(town, name = "place")]
#[index(last_name, name = "place")]
#[index(tags_count, name = "town_last_name")]
#[index(town, last_name)]
struct Customer {
    #[primary_key]
    id: u64,
    town: String,
    last_name: String,
    phone: String,
    tags: Vec<String>,
    tags_count: u32,
}

fn query(customers: &CustomerRepository, txn: &index_table::ReadTxn<'_>) -> index_table::Result<()> {
    let _ = customers.find_by_place(txn, "Redmond").first()?;
    Ok(())
}

fn main() {}

// 2 mistakes
