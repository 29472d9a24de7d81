use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Url(String);

#[derive(Serialize, Deserialize, IndexTable)]
#[index(hash(url), include = [url])]
struct Page {
    #[primary_key]
    id: u64,
    url: Url,
}

fn main() {}
