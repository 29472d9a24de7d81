use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[index(hash(ulr))]
#[index(hash(address))]
#[index(unique, hash(url))]
struct Page {
    #[primary_key]
    id: u64,
    url: String,
}

fn main() {}

// 3 mistakes
