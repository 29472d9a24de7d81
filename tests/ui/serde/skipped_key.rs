use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[index(town)]
#[index(each(tags), include = [phone])]
struct Customer {
    #[primary_key]
    #[serde(skip)]
    id: u64,
    #[serde(skip)]
    town: String,
    #[serde(skip, default)]
    tags: Vec<String>,
    #[serde(skip)]
    phone: String,
    #[serde(skip)]
    cached: u32,
}

fn query(customers: &CustomerRepository, txn: &index_table::ReadTxn<'_>) -> index_table::Result<()> {
    let _ = customers.find_by_town(txn, "Redmond").first()?;
    Ok(())
}

fn main() {}

// 4 mistakes
