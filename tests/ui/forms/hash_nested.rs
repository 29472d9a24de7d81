use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[index(hash(each(tags)))]
#[index(each(hash(tags)))]
#[index(hash(desc(url)))]
#[index(desc(hash(url)))]
#[index(hash(hash(url)))]
#[index(hash())]
#[index(hash)]
#[index(hash = url)]
struct Page {
    #[primary_key]
    id: u64,
    url: String,
    tags: Vec<String>,
}

fn main() {}

// 8 mistakes
