use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[index(aggregate)]
#[aggregate(sum = [amount])]
#[aggregate(count, customer)]
#[aggregate(sum_amount, sum = [amount])]
struct Invoice {
    #[primary_key]
    number: u64,
    customer: u64,
    amount: i64,
    aggregate: u8,
    count: u64,
    sum_amount: u64,
}

fn total(invoices: &InvoiceRepository, txn: &index_table::ReadTxn<'_>) -> index_table::Result<i128> {
    Ok(invoices.find_by_aggregate(txn, 7).count()?.into())
}

fn main() {}

// 3 mistakes
