use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[index(hash(text))]
struct Page {
    #[primary_key]
    id: u64,
    #[serde(skip)]
    text: String,
}

fn main() {}
