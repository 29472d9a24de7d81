use index_table::{IndexTable, Result, Store};
use serde::{Deserialize, Serialize};

mod a {
    use super::*;

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
    #[table(view)]
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
    let v = customers.get_view(&txn, 1)?.unwrap();
    println!("{} {}", v.town, v.phone);
    Ok(())
}
