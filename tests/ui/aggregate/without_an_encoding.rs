use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[aggregate(tags)]
#[aggregate(sum = [amount])]
struct Invoice {
    #[primary_key]
    number: u64,
    customer: u64,
    amount: i64,
    tags: Vec<String>,
}

fn total(invoices: &InvoiceRepository, txn: &index_table::ReadTxn<'_>) -> index_table::Result<i128> {
    let _ = (invoices, txn);
    Ok(0)
}

fn main() {}
