use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[index(each(computed(words: Vec<String>)))]
#[index(each(computed(letters: Vec<char>)))]
#[index(hash(computed(text: String)))]
struct Film {
    #[primary_key]
    id: u64,
    title: String,
}

impl Film {
    fn words(&self) -> Vec<&str> {
        self.title.split(' ').collect()
    }

    fn text(&self, upper: bool) -> String {
        if upper { self.title.to_uppercase() } else { self.title.clone() }
    }
}

#[derive(Serialize, Deserialize, IndexTable)]
#[index(computed(words: Vec<String>))]
#[index(each(computed(length: usize)))]
#[index(each(computed(points: Vec<Vec<f32>>)))]
#[index(hash(computed(length: usize)))]
#[index(each(computed(words)))]
#[index(each(tags), each(computed(words: Vec<String>)))]
#[index(computed(hash(title)))]
struct Book {
    #[primary_key]
    id: u64,
    title: String,
    tags: Vec<String>,
}

fn main() {}

// 10 mistakes
