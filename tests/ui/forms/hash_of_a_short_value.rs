use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[index(hash(year))]
#[index(hash(size), unique)]
#[index(hash(exact))]
#[index(hash(optional_exact))]
struct Page {
    #[primary_key]
    id: u64,
    year: u16,
    size: Option<f64>,
    exact: u128,
    optional_exact: Option<u128>,
}

fn query(pages: &PageRepository, txn: &index_table::ReadTxn<'_>) -> index_table::Result<()> {
    let _ = pages.find_by_year(txn, 2000).first()?;
    let _ = pages.get_by_size(txn, Some(1.5))?;
    Ok(())
}

fn main() {}

// 3 mistakes
