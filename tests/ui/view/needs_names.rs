use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[table(view)]
struct Customer {
    #[primary_key]
    id: u64,
    #[serde(flatten)]
    address: Address,
    #[serde(skip_serializing_if = "String::is_empty")]
    phone: String,
    #[serde(skip_serializing)]
    secret: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Address {
    town: String,
}

fn query(customers: &CustomerRepository, txn: &index_table::ReadTxn<'_>) -> index_table::Result<()> {
    customers.get_view(txn, 7)?;
    Ok(())
}

fn main() {}
