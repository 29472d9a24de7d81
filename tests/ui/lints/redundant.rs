#![deny(deprecated)]

use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[index(year)]
#[index(year, title)]
#[index(genre, allow(few_values))]
#[index(genre, title, name = "shelf", allow(redundant))]
#[index(title, include = [year])]
#[index(title, include = [year], name = "once_more")]
struct Film {
    #[primary_key]
    genre: String,
    #[primary_key]
    title: String,
    year: u16,
}

fn main() {}

// 3 mistakes
