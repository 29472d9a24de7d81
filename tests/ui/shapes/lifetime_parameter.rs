use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
struct Row<'a> {
    #[primary_key]
    id: u64,
    value: &'a str,
}

fn open(
    store: &index_table::Store,
    txn: &mut index_table::WriteTxn<'_>,
    row: &Row<'static>,
) -> index_table::Result<()> {
    let rows = RowRepository::open(store)?;
    rows.insert(txn, row)?;
    rows.put(txn, row)?;
    rows.update(txn, 7, |_| {})?;
    let _: Option<Row<'static>> = rows.get(txn, 7)?;
    rows.delete(txn, 7)?;
    Ok(())
}

fn main() {}
