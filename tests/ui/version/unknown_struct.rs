use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[table(version = 2, previous = CustomerV1)]
struct Customer {
    #[primary_key]
    id: u64,
}

fn main() {}
