use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[index(text)]
struct Wide {
    #[primary_key]
    a: u8,
    #[primary_key]
    b: u8,
    #[primary_key]
    c: u8,
    #[primary_key]
    d: u8,
    #[primary_key]
    e: u8,
    #[primary_key]
    f: u8,
    #[primary_key]
    g: u8,
    #[primary_key]
    h: u8,
    #[primary_key]
    i: u8,
    #[primary_key]
    j: u8,
    #[primary_key]
    k: u8,
    #[primary_key]
    l: u8,
    #[primary_key]
    m: u8,
    #[primary_key]
    n: u8,
    text: String,
}

fn query(rows: &WideRepository, txn: &index_table::ReadTxn<'_>) -> index_table::Result<()> {
    let _ = rows.find_by_text(txn, "x").first()?;
    Ok(())
}

fn main() {}
