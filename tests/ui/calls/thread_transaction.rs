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
    let mut txn = store.write()?;
    std::thread::spawn(move || customers.delete(&mut txn, 1)).join().unwrap()?;
    Ok(())
}
