use index_table::IndexKey;
use serde::Serialize;

#[derive(Debug, Clone, Copy, PartialEq, Serialize, IndexKey)]
enum Kind {
    #[key(order = 10)]
    Private,
    Company,
    Club,
}

fn main() {}

// 2 mistakes
