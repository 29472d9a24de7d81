//! The program of the README. Writes to `data/shop` in the current directory.

use index_table::{IndexTable, Result, Store};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[index(town, last_name, include = [phone])]
struct Customer {
    #[primary_key]
    id: u64,
    last_name: String,
    town: String,
    phone: String,
}

fn main() -> Result<()> {
    let store = Store::open("data/shop")?;
    let customers = CustomerRepository::open(&store)?;
    let smith = Customer {
        id: 7,
        last_name: "Smith".into(),
        town: "Redmond".into(),
        phone: "555-0107".into(),
    };
    store.transaction(|txn| customers.put(txn, &smith))?; // the row and its index entry, or neither
    let txn = store.read()?;
    for entry in customers.find_by_town_last_name(&txn, "Redmond", "Smith").entries() {
        let entry = entry?; // covered: the row is not looked up, the strings are borrowed
        println!("{} {} {}", entry.id, entry.last_name, entry.phone);
    }
    Ok(())
}
