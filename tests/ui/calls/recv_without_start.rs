use index_table::{IndexTable, Store};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
struct Customer {
    #[primary_key]
    id: u64,
}

fn follow(store: &Store, customers: &CustomerRepository) {
    while let Some(event) = customers.watch(store).recv() {
        drop(event);
    }
}

fn main() {}
