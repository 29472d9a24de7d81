use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[aggregate(customer, consistency = "eventul")]
#[aggregate(customer, region, consistency = "sometimes")]
#[aggregate(region, sum = [amount], consistency = eventual)]
#[aggregate(region, kind, consistency)]
#[aggregate(kind, consistency = "eventual", consistency = "strong")]
#[aggregate(kind, consistency = "eventual", customer)]
#[aggregate(consistancy = "eventual")]
struct Invoice {
    #[primary_key]
    number: u64,
    customer: u64,
    region: String,
    kind: u8,
    amount: i64,
}

fn main() {}

// 7 mistakes
