use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[index(hash(url), sparse)]
#[index(hash(url), include = [url, id], name = "covered")]
struct Page {
    #[primary_key]
    id: u64,
    url: String,
}

fn main() {}

// 2 mistakes
