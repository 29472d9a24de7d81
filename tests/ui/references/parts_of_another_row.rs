use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
struct Customer {
    #[primary_key]
    id: u64,
}

#[derive(Serialize, Deserialize, IndexTable)]
struct Invoice {
    #[primary_key]
    number: u64,
}

fn both(
    customers: &CustomerRepository,
    invoices: &InvoiceRepository,
    txn: &index_table::ReadTxn<'_>,
) -> index_table::Result<bool> {
    Ok(customers.get_with_parts(txn, 1, invoices)?.is_some())
}

fn main() {}
