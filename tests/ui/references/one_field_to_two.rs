use index_table::{IndexTable, Result, Store};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
struct Customer {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    id: u64,
    name: String,
}
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[index(customer)]
struct Order {
    #[primary_key]
    id: u64,
    #[references(Customer)]
    customer: u64,
}
fn main() -> Result<()> {
    let store = Store::open("x")?;
    let scans = OrderRepository::open(&store)?;
    let txn = store.read()?;
    let n: Option<Order> = scans.get(&txn, 1)?;
    Ok(())
}
