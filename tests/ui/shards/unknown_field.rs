//! The shard key is made of fields of the row.

use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[table(shard_by = tenent)]
struct Order {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    id: u64,
}

fn main() {}
