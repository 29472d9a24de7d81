use index_table::{IndexTable, Result, Store};
use serde::{Deserialize, Serialize};

mod a {
    use super::*;

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
    #[index(town, include = [phone])]
    pub struct Customer {
        #[primary_key]
        pub id: u64,
        pub town: String,
        phone: String,
    }
}
use a::*;
fn main() -> Result<()> {
    let store = Store::open("x")?;
    let customers = CustomerRepository::open(&store)?;
    let txn = store.read()?;
    for e in customers.find_by_town(&txn, "a").entries() {
        let e = e?;
        println!("{}", e.phone);
    }
    Ok(())
}
