use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[table(version = 2, previous = Customer)]
struct Customer {
    #[primary_key]
    id: u64,
}

fn main() {}
