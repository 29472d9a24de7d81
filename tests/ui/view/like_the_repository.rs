use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[table(repository = CustomerView, view)]
struct Customer {
    #[primary_key]
    id: u64,
    town: String,
}

fn query(customers: &CustomerView, txn: &index_table::ReadTxn<'_>) -> index_table::Result<()> {
    customers.get_view(txn, 7)?;
    Ok(())
}

fn main() {}
