use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[table(changes(days = 7))]
struct Invoice {
    #[primary_key]
    number: u64,
}

fn main() {}
