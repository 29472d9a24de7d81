use index_table::IndexKey;
use serde::Serialize;

#[derive(Debug, Clone, Copy, PartialEq, Serialize, IndexKey)]
enum Never {}

#[derive(Debug, Clone, PartialEq, Serialize, IndexKey)]
struct Unit;

#[derive(Debug, Clone, PartialEq, Serialize, IndexKey)]
struct Braces {}

fn main() {}

// 3 mistakes
