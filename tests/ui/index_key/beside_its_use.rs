// One message for each mistake, though the types are in use.
use index_table::{IndexKey, IndexTable, ReadTxn, Result};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, IndexKey)]
enum Kind {
    #[key(order = 1)]
    Private,
    #[key(order = 1)]
    Company,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexKey)]
struct Words(Vec<String>);

#[derive(Serialize, Deserialize, IndexTable)]
#[index(kind)]
#[index(words, sparse)]
struct Customer {
    #[primary_key]
    id: u64,
    kind: Kind,
    words: Words,
}

fn query(customers: &CustomerRepository, txn: &ReadTxn<'_>) -> Result<u64> {
    for entry in customers.find_by_words(txn, &Words(Vec::new())).entries() {
        let _: Words = entry?.words;
    }
    customers.find_by_kind(txn, Kind::Company).count()
}

fn main() {}

// 2 mistakes
