use index_table::{IndexTable, RowVersion};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[table(version = 2, previous = "CustomerV1")]
struct Customer {
    #[primary_key]
    id: u64,
}

#[derive(Deserialize, RowVersion)]
#[table(version = 0, previous)]
struct CustomerV1 {
    id: u64,
}

fn main() {}

// 3 mistakes
