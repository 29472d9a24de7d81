use index_table::{IndexTable, Result, Store};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
struct Customer {
    #[primary_key]
    id: u64,
    name: String,
}
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[index(customer)]

struct Order {
    #[primary_key]
    id: u64,
    #[references(Persn)]
    customer: u64,
}
fn main() -> Result<()> {
    let store = Store::open("x")?;
    let orders = OrderRepository::open(&store)?;
    let txn = store.read()?;
    let n: Option<Order> = orders.get(&txn, 1)?;
    for o in orders.by_customer(&txn).rows() {
        println!("{}", o?.id);
    }
    store.transaction(|txn| {
        orders.delete(txn, 1)?;
        Ok(())
    })?;
    Ok(())
}
