use index_table::{IndexTable, Result, Store};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[index(town)]
struct Customer<T> {
    #[primary_key]
    id: u64,
    town: String,
    value: T,
}
fn main() -> Result<()> {
    let store = Store::open("x")?;
    let customers = CustomerRepository::open(&store)?;
    store.transaction(|txn| {
        customers.insert(txn, &Customer { id: 1, town: String::new(), value: 1u8 })
    })?;
    let txn = store.read()?;
    for c in customers.find_by_town(&txn, "a").rows() {
        let c: Customer<u8> = c?;
    }
    Ok(())
}
