#![deny(deprecated)]

use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
struct Customer {
    #[primary_key]
    id: Option<u64>,
}

#[derive(Serialize, Deserialize, IndexTable)]
struct Film {
    #[primary_key]
    title: String,
    #[primary_key]
    part: Option<u16>,
}

#[derive(Serialize, Deserialize, IndexTable)]
#[table(allow(optional_key))]
struct Chapter {
    #[primary_key]
    title: String,
    #[primary_key]
    part: Option<u16>,
}

fn main() {}

// 2 mistakes
