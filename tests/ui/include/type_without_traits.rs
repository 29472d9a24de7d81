use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[index(town, include = [address, former])]
#[index(name, strategy = "full")]
pub struct Customer {
    #[primary_key]
    id: u64,
    name: String,
    town: String,
    address: Address,
    former: Vec<Address>,
    kind: Kind,
}

#[derive(Serialize, Deserialize)]
pub struct Address {
    street: String,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub enum Kind {
    Person,
    Company,
}

fn query(customers: &CustomerRepository, txn: &index_table::ReadTxn<'_>) -> index_table::Result<u64> {
    for entry in customers.find_by_town(txn, "Redmond").entries() {
        let _ = entry?.address;
    }
    customers.find_by_name(txn, "Smith").count()
}

fn main() {}

// 4 mistakes
