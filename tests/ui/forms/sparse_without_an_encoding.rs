// One mistake, and one message for it: that `Grade` can't be absent is not known.
use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Grade(u8);

#[derive(Serialize, Deserialize, IndexTable)]
#[index(grade, sparse)]
struct Film {
    #[primary_key]
    id: u64,
    grade: Grade,
}

fn main() {}
