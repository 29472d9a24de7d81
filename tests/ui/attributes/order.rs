use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[index(at, order = "desc")]
#[index(town, at desc)]
#[index(asc(town), at)]
struct Order {
    #[primary_key]
    id: u64,
    town: String,
    at: u64,
}

fn query(orders: &OrderRepository, txn: &index_table::ReadTxn<'_>) {
    let _ = orders.find_by_town(txn, "Redmond").rows();
    let _ = orders.find_by_at(txn, 7).rows();
}

fn main() {}

// 3 mistakes
