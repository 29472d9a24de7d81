use index_table::{IndexTable, Result, Store};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[index(town)]
struct Customer {
    #[primarykey]
    id: u64,
    town: String,
    year: u16,
    email: String,
    tags: Vec<String>,
}

fn main() -> Result<()> {
    let store = Store::open("x")?;
    let customers = CustomerRepository::open(&store)?;
    store.transaction(|txn| {
        customers.insert(
            txn,
            &Customer {
                id: 1,
                town: "a".to_owned(),
                year: 1990,
                email: "e".to_owned(),
                tags: vec![],
            },
        )?;
        customers.update(txn, 1, |c| c.year += 1)?;
        Ok(())
    })?;
    let txn = store.read()?;
    let one: Option<Customer> = customers.get(&txn, 1)?;
    for c in customers.all(&txn).rows() {
        let c: Customer = c?;
    }
    for c in customers.find_by_town(&txn, "a").rows() {
        println!("{}", c?.year);
    }
    let n = customers.find_by_town(&txn, "a").count()?;
    Ok(())
}
