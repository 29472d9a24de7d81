use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq)]
struct Kind;

#[derive(Serialize, Deserialize, IndexTable)]
#[index(town, include = [kind])]
struct Customer {
    #[primary_key]
    id: u64,
    town: String,
    kind: Kind,
}

fn main() {}
