use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[index(town, strategy = "ful")]
#[index(last_name, strategy = "covering")]
struct Customer {
    #[primary_key]
    id: u64,
    town: String,
    last_name: String,
    phone: String,
    tags: Vec<String>,
}

fn query(customers: &CustomerRepository, txn: &index_table::ReadTxn<'_>) -> index_table::Result<()> {
    let _: Option<&str> =
        customers.by_town(txn).entries().next().transpose()?.map(|entry| entry.phone);
    Ok(())
}

fn main() {}

// 2 mistakes
