use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[index(town, allow(redundent))]
#[index(town, last_name, allow(dead_code, redundant))]
#[index(phone, allow)]
#[index(last_name, allow())]
#[index(last_name, phone, alow(redundant))]
struct Customer {
    #[primary_key]
    id: u64,
    last_name: String,
    town: String,
    phone: String,
}

fn query(customers: &CustomerRepository, txn: &index_table::ReadTxn<'_>) -> index_table::Result<()> {
    let _ = customers.find_by_town(txn, "Redmond").first()?;
    Ok(())
}

fn main() {}

// 5 mistakes
