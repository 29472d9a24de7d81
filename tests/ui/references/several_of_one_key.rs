use index_table::{IndexTable, Store};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
struct Customer {
    #[primary_key]
    id: u64,
}

#[derive(Serialize, Deserialize, IndexTable)]
#[index(tenant, customer)]
#[references(Customer, fields = [tenant, customer])]
struct Order {
    #[primary_key]
    id: u64,
    tenant: u32,
    customer: u64,
}

fn query(store: &Store) -> index_table::Result<()> {
    let orders = OrderRepository::open(store)?;
    let order: Option<Order> = orders.get(&store.read()?, 1)?;
    Ok(())
}

fn main() {}
