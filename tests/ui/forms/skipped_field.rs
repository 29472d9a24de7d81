use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[index(title, filter = is_shown, name = "shown")]
struct Film {
    #[primary_key]
    id: u64,
    title: String,
    year: u16,
    #[serde(skip)]
    rating: Option<u8>,
    cast: Vec<String>,
}

impl Film {
    fn is_shown(&self) -> bool {
        true
    }
}

fn main() {}
