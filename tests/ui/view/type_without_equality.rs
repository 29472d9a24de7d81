use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[table(view)]
pub struct Customer {
    #[primary_key]
    id: u64,
    address: Address,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Address {
    town: String,
}

fn query(customers: &CustomerRepository, txn: &index_table::ReadTxn<'_>) -> index_table::Result<()> {
    customers.get_view(txn, 7)?;
    Ok(())
}

fn main() {}
