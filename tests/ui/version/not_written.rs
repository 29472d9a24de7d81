use index_table::RowVersion;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, RowVersion)]
struct CustomerV1 {
    id: u64,
    #[serde(skip_serializing)]
    phone: String,
}

fn main() {}
