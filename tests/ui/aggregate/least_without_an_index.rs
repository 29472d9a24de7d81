use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[index(customer)]
#[index(amount, filter = is_open, name = "open")]
#[aggregate(customer, sum = [amount], min = [amount], max = [amount])]
#[aggregate(min = [amount])]
#[aggregate(amount, max = [due])]
struct Invoice {
    #[primary_key]
    number: u64,
    customer: u64,
    amount: i64,
    due: Option<u32>,
}

fn total(invoices: &InvoiceRepository, txn: &index_table::ReadTxn<'_>) -> index_table::Result<i128> {
    Ok(invoices.aggregate_by_customer(txn, 7)?.min_amount.unwrap_or_default().into())
}

fn main() {}

impl Invoice {
    fn is_open(&self) -> bool {
        self.amount > 0
    }
}

// 4 mistakes
