use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[table(repository = Shapes)]
#[index(radius)]
enum Shape {
    Circle { radius: u32 },
    Point,
}

fn open(
    store: &index_table::Store,
    txn: &mut index_table::WriteTxn<'_>,
    row: &Shape,
) -> index_table::Result<()> {
    let rows = Shapes::open(store)?;
    rows.insert(txn, row)?;
    rows.put(txn, row)?;
    rows.update(txn, 7, |_| {})?;
    let _: Option<Shape> = rows.get(txn, 7)?;
    rows.delete(txn, 7)?;
    Ok(())
}

fn main() {}
