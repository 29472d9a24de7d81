use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Clone, Serialize, Deserialize, IndexTable)]
#[serde(from = "Wire", into = "Wire")]
#[table(view)]
struct Customer {
    #[primary_key]
    id: u64,
    town: String,
}

#[derive(Serialize, Deserialize)]
struct Wire(u64, String);

impl From<Wire> for Customer {
    fn from(Wire(id, town): Wire) -> Self {
        Self { id, town }
    }
}

impl From<Customer> for Wire {
    fn from(Customer { id, town }: Customer) -> Self {
        Self(id, town)
    }
}

fn query(customers: &CustomerRepository, txn: &index_table::ReadTxn<'_>) -> index_table::Result<()> {
    customers.get_view(txn, 7)?;
    Ok(())
}

fn main() {}

// 2 mistakes
