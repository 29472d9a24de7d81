use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
struct Größe {
    #[primary_key]
    id: u64,
}

fn main() {}
