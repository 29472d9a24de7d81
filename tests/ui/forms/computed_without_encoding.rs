use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[index(computed(short: &str))]
#[index(computed(words: Vec<String>))]
#[index(computed(guess: _))]
struct Film {
    #[primary_key]
    id: u64,
    title: String,
    year: u16,
    rating: Option<u8>,
    cast: Vec<String>,
}

impl Film {
    fn short(&self) -> &str {
        &self.title
    }

    fn words(&self) -> Vec<String> {
        Vec::new()
    }

    fn guess(&self) -> u8 {
        0
    }
}

fn main() {}

// 3 mistakes
