use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[index(town, last_name, phone)]
#[index(town_last_name)]
struct Customer {
    #[primary_key]
    id: u64,
    town: String,
    last_name: String,
    phone: String,
    tags: Vec<String>,
    town_last_name: String,
}

fn query(customers: &CustomerRepository, txn: &index_table::ReadTxn<'_>) -> index_table::Result<()> {
    let _ = customers.find_by_town_last_name(txn, "Redmond", "Smith").first()?;
    Ok(())
}

fn main() {}
