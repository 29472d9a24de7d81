use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[table(view = Customer)]
struct Customer {
    #[primary_key]
    id: u64,
    town: String,
}

fn query(customers: &CustomerRepository, txn: &index_table::ReadTxn<'_>) -> index_table::Result<()> {
    let _: Option<CustomerView<'_>> = customers.get_view(txn, 7)?;
    Ok(())
}

fn main() {}
