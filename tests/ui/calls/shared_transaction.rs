use index_table::{IndexTable, Store};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
struct Customer {
    #[primary_key]
    id: u64,
}

fn query(customers: &CustomerRepository, store: &Store) -> index_table::Result<()> {
    let txn = store.read()?;
    std::thread::scope(|scope| {
        scope.spawn(|| customers.get(&txn, 7));
    });
    Ok(())
}

fn main() {}
