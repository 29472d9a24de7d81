#![deny(deprecated)]

use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[index(genre, title, unique)]
#[index(genre, title, unique, name = "kept", allow(redundant))]
#[index(title, unique)]
struct Film {
    #[primary_key]
    genre: String,
    #[primary_key]
    title: String,
}

fn main() {}
