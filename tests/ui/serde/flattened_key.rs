use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[index(address)]
struct Customer {
    #[primary_key]
    id: u64,
    #[serde(flatten)]
    address: Vec<u8>,
}

fn query(customers: &CustomerRepository, txn: &index_table::ReadTxn<'_>) -> index_table::Result<()> {
    let _ = customers.find_by_address(txn, &[1]).first()?;
    Ok(())
}

fn main() {}
