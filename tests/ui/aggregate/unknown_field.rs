use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[aggregate(customer, sum = [amount, amont], min = [discount])]
#[aggregate(custmer)]
struct Invoice {
    #[primary_key]
    number: u64,
    customer: u64,
    amount: i64,
}

fn total(invoices: &InvoiceRepository, txn: &index_table::ReadTxn<'_>) -> index_table::Result<i128> {
    Ok(invoices.aggregate_by_customer(txn, 7)?.sum_amount)
}

fn main() {}

// 3 mistakes
