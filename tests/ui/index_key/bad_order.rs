use index_table::IndexKey;
use serde::Serialize;

#[derive(Debug, Clone, Copy, PartialEq, Serialize, IndexKey)]
enum Kind {
    #[key(order = 65536)]
    Private,
    #[key(order = -1)]
    Company,
    #[key(order = "3")]
    Club,
    #[key(order)]
    Union,
    #[key(order = 4, order = 5)]
    State,
}

fn main() {}

// 5 mistakes
