use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[index(year, computed(year: u16), name = "same_part")]
#[index(computed(decade: u16), computed(decade: u16), name = "twice")]
#[index(computed(id: u16), name = "primary_key")]
#[index(computed(title: u16), include = [title], name = "included")]
#[index(computed(year: u16), strategy = "full", name = "whole")]
struct Film {
    #[primary_key]
    id: u64,
    title: String,
    year: u16,
    rating: Option<u8>,
    cast: Vec<String>,
}

impl Film {
    fn decade(&self) -> u16 {
        self.year / 10
    }

    fn id(&self) -> u16 {
        0
    }

    fn title(&self) -> u16 {
        0
    }

    fn year(&self) -> u16 {
        self.year
    }
}

fn main() {}

// 5 mistakes
