use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[aggregate(customer, tag, sum = [amount, bonus, discount])]
struct Invoice {
    #[primary_key]
    number: u64,
    customer: u64,
    amount: i64,
    #[serde(skip)]
    tag: u8,
    #[serde(with = "money")]
    bonus: i64,
    #[serde(default, skip_serializing_if = "money::is_small")]
    discount: i64,
}

fn total(invoices: &InvoiceRepository, txn: &index_table::ReadTxn<'_>) -> index_table::Result<i128> {
    Ok(invoices.aggregate_by_customer_tag(txn, 7, 1)?.sum_amount)
}

fn main() {}

mod money {
    pub fn is_small(value: &i64) -> bool {
        *value < 10
    }

    pub fn serialize<S: serde::Serializer>(_: &i64, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_unit()
    }

    pub fn deserialize<'de, D: serde::Deserializer<'de>>(_: D) -> Result<i64, D::Error> {
        Ok(0)
    }
}

// 3 mistakes
