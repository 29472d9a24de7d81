use index_table::IndexKey;
use serde::Serialize;

#[derive(Debug, Clone, PartialEq, Serialize, IndexKey)]
enum Kind {
    Private,
    Company,
}

fn main() {}
