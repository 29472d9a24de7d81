use index_table::{IndexTable, Result, Store};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[index(town)]
struct Customer {
    #[primary_key]
    id: u64,
    town: String,
}
fn main() -> Result<()> {
    let store = Store::open("x")?;
    let customers = CustomerRepository::open(&store)?;
    let txn = store.read()?;
    let scan = customers.find_by_town(&txn, "a");
    std::thread::scope(|s| {
        s.spawn(|| scan.count());
    });
    Ok(())
}
