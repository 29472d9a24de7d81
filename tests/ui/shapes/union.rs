use index_table::IndexTable;

#[derive(IndexTable)]
union Number {
    integer: u32,
    float: f32,
}

fn open(
    store: &index_table::Store,
    txn: &mut index_table::WriteTxn<'_>,
    row: &Number,
) -> index_table::Result<()> {
    let rows = NumberRepository::open(store)?;
    rows.insert(txn, row)?;
    rows.put(txn, row)?;
    rows.update(txn, 7, |_| {})?;
    let _: Option<Number> = rows.get(txn, 7)?;
    rows.delete(txn, 7)?;
    Ok(())
}

fn main() {}
