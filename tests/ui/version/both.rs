use index_table::{IndexTable, RowVersion};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable, RowVersion)]
struct Customer {
    #[primary_key]
    id: u64,
}

fn main() {}
