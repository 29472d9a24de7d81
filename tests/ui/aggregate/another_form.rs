use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[aggregate(desc(customer))]
#[aggregate(customer, sum = [each(amount)])]
#[aggregate(sum = [amount])]
struct Invoice {
    #[primary_key]
    number: u64,
    customer: u64,
    amount: i64,
}

fn total(invoices: &InvoiceRepository, txn: &index_table::ReadTxn<'_>) -> index_table::Result<i128> {
    Ok(invoices.aggregate(txn)?.sum_amount)
}

fn main() {}

// 2 mistakes
