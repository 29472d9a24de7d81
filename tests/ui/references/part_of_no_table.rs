use index_table::{IndexTable, Result, Store};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
struct Invoice {
    #[primary_key]
    id: u64,
    name: String,
}
#[derive(Serialize, Deserialize)]
struct Thing {
    id: u64,
}
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(part_of = Thing)]
struct Scan {
    #[primary_key]
    id: u64,
    pdf: Vec<u8>,
}
fn main() -> Result<()> {
    let store = Store::open("x")?;
    let scans = ScanRepository::open(&store)?;
    let txn = store.read()?;
    let n: Option<Scan> = scans.get(&txn, 1)?;
    for o in scans.all(&txn).rows() {
        println!("{}", o?.pdf.len());
    }
    Ok(())
}
