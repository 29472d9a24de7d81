use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct String(u8);

#[derive(Serialize, Deserialize, IndexTable)]
#[index(town)]
struct Customer {
    #[primary_key]
    id: u64,
    town: Option<String>,
    name: String,
}

// A field that is in no key can have this type.
#[derive(Serialize, Deserialize, IndexTable)]
struct Street {
    #[primary_key]
    id: u64,
    name: String,
}

fn main() {}

// 7 mistakes
