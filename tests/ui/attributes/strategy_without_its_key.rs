use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[index(town, full)]
struct Customer {
    #[primary_key]
    id: u64,
    town: String,
    last_name: String,
}

fn query(customers: &CustomerRepository, txn: &index_table::ReadTxn<'_>) -> index_table::Result<()> {
    for entry in customers.find_by_town(txn, "Redmond").entries() {
        let _ = entry?.last_name;
    }
    Ok(())
}

fn main() {}
