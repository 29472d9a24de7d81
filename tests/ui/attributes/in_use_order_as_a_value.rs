use index_table::{IndexTable, Store};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[index(town = desc)]
struct Customer {
    #[primary_key]
    id: u64,
    town: String,
    email: String,
}

fn query(store: &Store) -> index_table::Result<()> {
    let customers = CustomerRepository::open(store)?;
    let txn = store.read()?;
    for customer in customers.find_by_town(&txn, "Rome").entries() {
        assert_eq!(customer?.town, "Rome");
    }
    Ok(())
}

fn main() {}
