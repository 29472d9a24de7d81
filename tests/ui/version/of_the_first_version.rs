use index_table::{IndexTable, RowVersion};
use serde::{Deserialize, Serialize};

#[derive(Deserialize, RowVersion)]
struct CustomerV0 {
    id: u64,
}

#[derive(Serialize, Deserialize, IndexTable)]
#[table(previous = CustomerV0)]
struct Customer {
    #[primary_key]
    id: u64,
}

#[derive(Deserialize, RowVersion)]
#[table(version = 1, previous = CustomerV0)]
struct CustomerV1 {
    id: u64,
}

fn main() {}

// 2 mistakes
