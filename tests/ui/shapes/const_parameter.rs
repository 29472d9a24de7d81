use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
struct Row<const N: usize> {
    #[primary_key]
    id: u64,
}

fn open(
    store: &index_table::Store,
    txn: &mut index_table::WriteTxn<'_>,
    row: &Row<4>,
) -> index_table::Result<()> {
    let rows = RowRepository::open(store)?;
    rows.insert(txn, row)?;
    rows.put(txn, row)?;
    let _: Option<Row<4>> = rows.get(txn, 7)?;
    rows.delete(txn, 7)?;
    Ok(())
}

fn main() {}
