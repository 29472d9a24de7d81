use index_table::{IndexTable, RowVersion};
use serde::{Deserialize, Serialize};

#[derive(Deserialize, RowVersion)]
struct CustomerV1 {
    id: u64,
}

#[derive(Deserialize, RowVersion)]
#[table(version = 2, previous = CustomerV1)]
struct CustomerV2 {
    id: u64,
}

#[derive(Serialize, Deserialize, IndexTable)]
#[table(version = 3, previous = CustomerV2)]
struct Customer {
    #[primary_key]
    id: u64,
}

fn main() {}

// 2 mistakes
