use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[index(desc(each(cast)))]
#[index(each(desc(cast)))]
#[index(desc(computed(decade: u16)))]
#[index(each(computed(decade: u16)))]
#[index(desc(desc(year)))]
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
}

fn main() {}

// 5 mistakes
