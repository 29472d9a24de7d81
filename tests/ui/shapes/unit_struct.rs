use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
struct Customer;

fn open(
    store: &index_table::Store,
    txn: &mut index_table::WriteTxn<'_>,
    row: &Customer,
) -> index_table::Result<()> {
    let rows = CustomerRepository::open(store)?;
    rows.insert(txn, row)?;
    rows.put(txn, row)?;
    rows.update(txn, 7, |_| {})?;
    let _: Option<Customer> = rows.get(txn, 7)?;
    rows.delete(txn, 7)?;
    Ok(())
}

fn main() {}
