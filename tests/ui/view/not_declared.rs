use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[index(town)]
struct Customer {
    #[primary_key]
    id: u64,
    town: String,
}

fn query(customers: &CustomerRepository, txn: &index_table::ReadTxn<'_>) -> index_table::Result<()> {
    let _ = customers.find_by_town(txn, "Redmond").views();
    let _ = customers.all(txn).or(customers.all(txn)).views();
    let _ = customers.get_many(txn, [1]).views();
    Ok(())
}

fn main() {}

// 3 mistakes
