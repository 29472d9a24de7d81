use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
struct Customer {
    #[primary_key]
    id: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    phone: Option<String>,
    #[serde(skip_serializing)]
    secret: String,
    #[serde(skip_deserializing)]
    level: u8,
    #[serde(flatten)]
    address: Address,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Address {
    town: String,
}

fn query(customers: &CustomerRepository, txn: &index_table::ReadTxn<'_>) -> index_table::Result<()> {
    customers.get(txn, 7)?;
    Ok(())
}

fn main() {}
