use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[aggregate(
    a_long_name_of_a_field_of_the_row_in_the_table,
    another_long_name_of_a_field_of_the_row_in_the_table
)]
struct Invoice {
    #[primary_key]
    number: u64,
    customer: u64,
    amount: i64,
    a_long_name_of_a_field_of_the_row_in_the_table: u8,
    another_long_name_of_a_field_of_the_row_in_the_table: u8,
}

fn total(invoices: &InvoiceRepository, txn: &index_table::ReadTxn<'_>) -> index_table::Result<i128> {
    Ok(invoices.all(txn).count()?.into())
}

fn main() {}
