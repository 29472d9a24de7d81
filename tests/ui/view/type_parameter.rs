use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[table(view)]
struct Customer<T> {
    #[primary_key]
    id: u64,
    payload: T,
}

fn query(customers: &CustomerRepository, txn: &index_table::ReadTxn<'_>) -> index_table::Result<()> {
    let _: Option<CustomerView<'_>> = customers.get_view(txn, 7)?;
    Ok(())
}

fn main() {}
