use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[aggregate(customer)]
#[aggregate(customer, kind)]
#[aggregate(customer, kind_of_customer)]
struct Invoice {
    #[primary_key]
    number: u64,
    customer: u64,
    kind: u8,
    kind_of_customer: u8,
}

fn groups(invoices: &InvoiceRepository, txn: &index_table::ReadTxn<'_>) -> usize {
    invoices.aggregates_by_customer(txn).count()
        + invoices.aggregates_by_customer_kind_of_customer(txn).count()
}

fn main() {}
