use index_table::{IndexTable, ReadTxn, Store};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[index(town, consistency = "eventual")]
#[index(name)]
struct Person {
    #[primary_key]
    id: u64,
    town: String,
    name: String,
}

fn rows(people: &PersonRepository, txn: &ReadTxn<'_>) {
    let _ = people.find_by_town(txn, "Rome").rows();
    let _ = people.find_by_name(txn, "Li").and(people.find_by_town(txn, "Rome"));
    let _ = people.distinct_town(txn);
}

fn main() {
    let _ = Store::open("");
}

// 3 mistakes
