use index_table::IndexTable;
use serde::{Deserialize, Serialize};

struct Kind;

#[derive(Serialize, Deserialize, IndexTable)]
#[index(computed(kind: Kind))]
struct Film {
    #[primary_key]
    id: u64,
    title: String,
    year: u16,
    rating: Option<u8>,
    cast: Vec<String>,
}

impl Film {
    fn kind(&self) -> Kind {
        Kind
    }
}

fn main() {}
