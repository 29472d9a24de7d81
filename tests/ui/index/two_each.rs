use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[index(each(tags), each(more))]
struct Customer {
    #[primary_key]
    id: u64,
    town: String,
    last_name: String,
    phone: String,
    tags: Vec<String>,
    more: Vec<u32>,
}

fn query(customers: &CustomerRepository, txn: &index_table::ReadTxn<'_>) -> index_table::Result<()> {
    customers.get(txn, 7)?;
    Ok(())
}

fn main() {}
