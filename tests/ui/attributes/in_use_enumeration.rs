use index_table::{IndexTable, Result, Store};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[index(town)]
enum Customer {
    A { id: u64, town: String },
    B,
}
fn main() -> Result<()> {
    let store = Store::open("x")?;
    let customers = CustomerRepository::open(&store)?;
    store.transaction(|txn| customers.insert(txn, &Customer::B))?;
    let txn = store.read()?;
    for c in customers.find_by_town(&txn, "a").rows() {
        let c: Customer = c?;
    }
    Ok(())
}
