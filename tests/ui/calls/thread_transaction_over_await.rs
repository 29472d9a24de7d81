use index_table::{IndexTable, Result, Store};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[index(town)]
struct Customer {
    #[primary_key]
    id: u64,
    town: String,
}
async fn other() {}
async fn work(store: Store, customers: CustomerRepository) -> Result<()> {
    let mut txn = store.write()?;
    customers.delete(&mut txn, 1)?;
    other().await;
    txn.commit()?;
    Ok(())
}
fn spawn<F: std::future::Future + Send + 'static>(f: F) {}
fn main() -> Result<()> {
    let store = Store::open("x")?;
    let customers = CustomerRepository::open(&store)?;
    spawn(work(store, customers));
    Ok(())
}
