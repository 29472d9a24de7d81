use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[table(view = CustomerByTown)]
#[index(town)]
struct Customer {
    #[primary_key]
    id: u64,
    town: String,
}

fn query(customers: &CustomerRepository, txn: &index_table::ReadTxn<'_>) -> index_table::Result<()> {
    customers.get_view(txn, 7)?;
    let _ = customers.find_by_town(txn, "Redmond").views();
    Ok(())
}

fn main() {}
