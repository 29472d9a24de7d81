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

fn url<'txn>(entry: &PageByUrl) -> u64 {
    let _ = entry.url;
    entry.id
}

fn main() {}
