use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[table(changes(until_consumed, keep = "7d", bytes = 1000))]
struct Invoice {
    #[primary_key]
    number: u64,
}

fn main() {}

// 2 mistakes
