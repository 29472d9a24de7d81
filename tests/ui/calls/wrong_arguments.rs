use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[index(town)]
struct Customer {
    #[primary_key]
    id: u64,
    town: String,
}

fn query(customers: &CustomerRepository, txn: &mut index_table::WriteTxn<'_>) {
    let _ = customers.insert(txn);
    let _ = customers.find_by_id(txn);
    let _ = customers.find_by_town(txn);
}

fn main() {}

// 3 mistakes
