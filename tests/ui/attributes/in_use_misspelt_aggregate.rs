use index_table::{IndexTable, Store};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[agregate(town, sum = [year])]
struct Customer {
    #[primary_key]
    id: u64,
    town: String,
    year: u16,
}

fn query(store: &Store) -> index_table::Result<()> {
    let customers = CustomerRepository::open(store)?;
    let txn = store.read()?;
    let years: i128 = customers.aggregate_by_town(&txn, "Rome")?.sum_year;
    Ok(())
}

fn main() {}
