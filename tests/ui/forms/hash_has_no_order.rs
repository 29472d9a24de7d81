use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[index(hash(url), year)]
struct Page {
    #[primary_key]
    id: u64,
    url: String,
    year: u16,
}

fn query(pages: &PageRepository, txn: &index_table::ReadTxn<'_>) {
    let _ = pages.find_by_url_range(txn, "a".."b");
    let _ = pages.find_by_url_starting_with(txn, "https://");
    let _ = pages.distinct_url(txn);
    let _ = pages.distinct_url_year(txn);
    // These are there.
    let _ = pages.find_by_url_year_range(txn, "a", 2000..);
    let _ = pages.distinct_year_by_url(txn, "a");
}

fn main() {}

// 4 mistakes
