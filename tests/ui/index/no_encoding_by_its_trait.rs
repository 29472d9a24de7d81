use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Kind {
    Private,
    Company,
}

#[derive(Serialize, Deserialize, IndexTable)]
#[index(kind)]
struct Customer {
    #[primary_key]
    id: u64,
    kind: Kind,
}

fn main() {}
