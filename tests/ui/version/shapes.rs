use index_table::RowVersion;
use serde::Deserialize;

#[derive(Deserialize, RowVersion)]
enum Shape {
    Round,
}

#[derive(Deserialize, RowVersion)]
struct Pair(u64, u64);

#[derive(Deserialize, RowVersion)]
struct Boxed<T> {
    id: T,
}

fn main() {}

// 3 mistakes
