use index_table::{IndexTable, RowVersion};
use serde::{Deserialize, Serialize};

#[derive(Deserialize, RowVersion)]
#[table(version = 3)]
struct CustomerV3 {
    id: u64,
}

#[derive(Deserialize, RowVersion)]
#[table(version = 3, previous = CustomerV3)]
struct CustomerV2 {
    id: u64,
}

impl From<CustomerV3> for CustomerV2 {
    fn from(old: CustomerV3) -> Self {
        Self { id: old.id }
    }
}

#[derive(Serialize, Deserialize, IndexTable)]
#[table(version = 2, previous = CustomerV2)]
struct Customer {
    #[primary_key]
    id: u64,
}

impl From<CustomerV2> for Customer {
    fn from(old: CustomerV2) -> Self {
        Self { id: old.id }
    }
}

fn main() {}

// 2 mistakes
