use index_table::IndexKey;
use serde::Serialize;

#[derive(Debug, Clone, PartialEq, Serialize, IndexKey)]
struct Id<T>(T);

#[derive(Debug, Clone, PartialEq, Serialize, IndexKey)]
struct Name<'a>(&'a str);

fn main() {}

// 3 mistakes
