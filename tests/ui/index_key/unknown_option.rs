use index_table::IndexKey;
use serde::Serialize;

#[derive(Debug, Clone, Copy, PartialEq, Serialize, IndexKey)]
#[key(crat = index_table)]
enum Kind {
    #[key(ordr = 1)]
    Private,
    #[key]
    Company,
    #[key = 3]
    Club,
    #[key("order")]
    Union,
}

fn main() {}

// 5 mistakes
