use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
struct Customer {
    #[primary_key]
    id: u64,
}

struct CustomerRepository;

#[derive(Serialize, Deserialize, IndexTable)]
struct Order {
    #[primary_key]
    id: u64,
}

struct OrderRepository {
    one_pointer: std::sync::Arc<u8>,
}

fn main() {}

// 4 errors
