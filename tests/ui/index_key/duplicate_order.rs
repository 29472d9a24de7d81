use index_table::IndexKey;
use serde::Serialize;

#[derive(Debug, Clone, Copy, PartialEq, Serialize, IndexKey)]
enum Kind {
    #[key(order = 1)]
    Private,
    #[key(order = 2)]
    Company,
    #[key(order = 1)]
    Club,
}

fn main() {}
