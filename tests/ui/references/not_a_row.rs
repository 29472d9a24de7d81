use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
struct Customer {
    #[primary_key]
    id: u64,
}

#[derive(Serialize, Deserialize, IndexTable)]
#[index(customer)]
struct Invoice {
    #[primary_key]
    number: u64,
    #[references(String)]
    customer: u64,
}

fn find(invoices: &InvoiceRepository, txn: &index_table::ReadTxn<'_>) -> index_table::Result<bool> {
    Ok(invoices.get(txn, 1)?.is_some())
}

fn main() {}
