use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[index(town, include = [address])]
pub struct Customer {
    #[primary_key]
    id: u64,
    town: String,
    address: Address,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Address {
    street: String,
}

fn query(customers: &CustomerRepository, txn: &index_table::ReadTxn<'_>) -> index_table::Result<u64> {
    customers.find_by_town(txn, "Redmond").count()
}

fn main() {}
