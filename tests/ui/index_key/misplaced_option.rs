use index_table::IndexKey;
use serde::Serialize;

#[derive(Debug, Clone, Copy, PartialEq, Serialize, IndexKey)]
#[key(order = 1)]
enum Kind {
    #[key(crate = index_table)]
    Private,
}

#[derive(Debug, Clone, PartialEq, Serialize, IndexKey)]
struct Place {
    #[key(order = 1)]
    town: String,
    #[key(crate = index_table)]
    zip: u32,
}

fn main() {}

// 4 mistakes
