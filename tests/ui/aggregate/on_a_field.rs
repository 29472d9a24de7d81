use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
struct Invoice {
    #[primary_key]
    number: u64,
    #[aggregate(sum)]
    amount: i64,
}

fn main() {}
