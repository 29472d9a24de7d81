use index_table::IndexKey;
use serde::Serialize;

#[derive(Debug, Clone, Copy, PartialEq, Serialize, IndexKey)]
enum Shape {
    Point,
    Circle(u32),
    Rectangle { width: u32, height: u32 },
}

fn main() {}

// 2 mistakes
