use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[index(hash(links))]
#[index(hash(tags))]
struct Page {
    #[primary_key]
    id: u64,
    links: std::collections::HashMap<String, String>,
    tags: Vec<String>,
}

fn main() {}

// 2 mistakes
