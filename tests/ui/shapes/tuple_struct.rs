use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
struct Customer(#[primary_key] u64, String);

fn open(
    store: &index_table::Store,
    txn: &mut index_table::WriteTxn<'_>,
    row: &Customer,
) -> index_table::Result<()> {
    let rows = CustomerRepository::open(store)?;
    rows.insert(txn, row)?;
    rows.put(txn, row)?;
    rows.update(txn, 7, |row| row.1.clear())?;
    let _: Option<Customer> = rows.get(txn, 7)?;
    rows.delete(txn, 7)?;
    Ok(())
}

fn main() {}
