use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Tags(String);

#[derive(Serialize, Deserialize, IndexTable)]
#[index(each(tags))]
struct Customer {
    #[primary_key]
    id: u64,
    tags: Tags,
}

fn main() {}
