use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[index(town, filter = Customer::is_active, name = "active")]
struct Customer {
    #[primary_key]
    id: u64,
    town: String,
    last_name: String,
}

impl Customer {
    fn is_active(&self) -> bool {
        self.id > 0
    }
}

fn query(customers: &CustomerRepository, txn: &index_table::ReadTxn<'_>) -> index_table::Result<()> {
    let _ = customers.find_by_active(txn, "Redmond").first()?;
    Ok(())
}

fn main() {}
