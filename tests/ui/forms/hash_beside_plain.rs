use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[index(url, hash(url))]
#[index(hash(url), desc(url))]
#[index(hash(url), hash(url), name = "twice")]
struct Page {
    #[primary_key]
    id: u64,
    url: String,
}

fn query(pages: &PageRepository, txn: &index_table::ReadTxn<'_>) -> index_table::Result<()> {
    let _ = pages.find_by_url(txn, "https://example.com").first()?;
    let _ = pages.find_by_twice(txn, "https://example.com").first()?;
    Ok(())
}

fn main() {}

// 4 mistakes
