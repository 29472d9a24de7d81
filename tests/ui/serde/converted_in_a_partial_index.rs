use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Clone, Serialize, Deserialize, IndexTable)]
#[serde(from = "Wire", into = "Wire")]
#[index(town, include = [phone])]
struct Customer {
    #[primary_key]
    id: u64,
    town: String,
    phone: String,
}

#[derive(Serialize, Deserialize)]
struct Wire(u64, String, String);

impl From<Wire> for Customer {
    fn from(Wire(id, town, phone): Wire) -> Self {
        Self { id, town, phone }
    }
}

impl From<Customer> for Wire {
    fn from(Customer { id, town, phone }: Customer) -> Self {
        Self(id, town, phone)
    }
}

fn main() {}

// 2 mistakes
