use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[index(town)]
struct Customer {
    #[primary_key]
    id: u64,
    town: String,
}

fn query(
    customers: &CustomerRepository,
    txn: &index_table::ReadTxn<'_>,
    from: &String,
    to: String,
) -> index_table::Result<u64> {
    customers.find_by_town_range(txn, from..&to).count()?;
    customers.find_by_town_range(txn, to..).count()
}

fn main() {}

// 2 mistakes
