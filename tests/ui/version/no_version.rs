use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Deserialize)]
struct CustomerV1 {
    id: u64,
}

#[derive(Serialize, Deserialize, IndexTable)]
#[table(version = 2, previous = CustomerV1)]
struct Customer {
    #[primary_key]
    id: u64,
}

impl From<CustomerV1> for Customer {
    fn from(old: CustomerV1) -> Self {
        Self { id: old.id }
    }
}

fn main() {}
