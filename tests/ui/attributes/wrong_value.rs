use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[table(name = 1, version = "1", repository = "Shop", crate = "index_table")]
#[index(town, strategy = full, name = town)]
#[index(last_name, include = phone)]
#[index(phone, unique = true)]
struct Customer {
    #[primary_key]
    id: u64,
    town: String,
    last_name: String,
    phone: String,
    tags: Vec<String>,
}

fn query(customers: &CustomerRepository, txn: &index_table::ReadTxn<'_>) -> index_table::Result<()> {
    let _ = customers.find_by_town(txn, "Redmond").first()?;
    Ok(())
}

fn main() {}

// 8 mistakes
