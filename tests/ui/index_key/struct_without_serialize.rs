use index_table::IndexKey;

#[derive(Debug, Clone, PartialEq, IndexKey)]
struct Id(u64);

fn main() {}
