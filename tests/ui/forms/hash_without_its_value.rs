use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[index(hash(url))]
struct Page {
    #[primary_key]
    id: u64,
    url: String,
}

fn url(entry: &PageByUrl) -> u64 {
    let _ = entry.url;
    entry.id
}

fn main() {}
