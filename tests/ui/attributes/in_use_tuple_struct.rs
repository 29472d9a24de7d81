use index_table::{IndexTable, Result, Store};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
struct Customer(#[primary_key] u64, String);
fn main() -> Result<()> {
    let store = Store::open("x")?;
    let customers = CustomerRepository::open(&store)?;
    store.transaction(|txn| {
        customers.insert(txn, &Customer(1, String::new()))?;
        customers.delete(txn, 1)?;
        Ok(())
    })?;
    let txn = store.read()?;
    println!("{:?} {}", customers.get(&txn, 1)?, customers.count(&txn)?);
    Ok(())
}
