use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[index(each(town))]
#[index(each(age))]
#[index(each(place))]
struct Customer {
    #[primary_key]
    id: u64,
    town: String,
    last_name: String,
    phone: String,
    tags: Vec<String>,
    age: u8,
    place: (u32, u32),
}

fn query(customers: &CustomerRepository, txn: &index_table::ReadTxn<'_>) -> index_table::Result<()> {
    let _ = customers.find_by_town(txn, "Redmond").first()?;
    Ok(())
}

fn main() {}

// 3 mistakes
