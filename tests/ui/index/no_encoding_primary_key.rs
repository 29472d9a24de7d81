use index_table::{IndexTable, Result, Store};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct CustomerId(u64);
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[index(town)]
struct Customer {
    #[primary_key]
    id: CustomerId,
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
                id: CustomerId(1),
                town: "a".to_owned(),
                year: 1990,
                email: "e".to_owned(),
                tags: vec![],
            },
        )?;
        customers.update(txn, CustomerId(1), |c| c.year += 1)?;
        Ok(())
    })?;
    let txn = store.read()?;
    let one: Option<Customer> = customers.get(&txn, CustomerId(1))?;
    for c in customers.all(&txn).rows() {
        let c: Customer = c?;
    }
    for c in customers.find_by_town(&txn, "a").rows() {
        println!("{}", c?.year);
    }
    let n = customers.find_by_town(&txn, "a").count()?;
    Ok(())
}
