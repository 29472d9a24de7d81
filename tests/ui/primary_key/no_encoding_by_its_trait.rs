use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Id(u64);

#[derive(Serialize, Deserialize, IndexTable)]
struct Customer {
    #[primary_key]
    id: Id,
}

fn main() {}
