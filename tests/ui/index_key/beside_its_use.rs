// One mistake, and one message for it, though the type is in use.
use index_table::{IndexKey, IndexTable, ReadTxn, Result};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, IndexKey)]
enum Kind {
    #[key(order = 1)]
    Private,
    #[key(order = 1)]
    Company,
}

#[derive(Serialize, Deserialize, IndexTable)]
#[index(kind)]
struct Customer {
    #[primary_key]
    id: u64,
    kind: Kind,
}

fn ask(customers: &CustomerRepository, txn: &ReadTxn<'_>) -> Result<u64> {
    customers.find_by_kind(txn, Kind::Company).count()
}

fn main() {}
