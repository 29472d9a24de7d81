use index_table::IndexKey;
use serde::Serialize;

#[derive(Debug, Clone, PartialEq, Serialize)]
struct Place;

#[derive(Debug, Clone, PartialEq, Serialize, IndexKey)]
struct Tags(Vec<String>);

#[derive(Debug, Clone, PartialEq, Serialize, IndexKey)]
struct Address {
    street: String,
    place: Place,
}

#[derive(Debug, Clone, PartialEq, Serialize, IndexKey)]
struct Wrapper(Place);

fn main() {}

// 3 mistakes
