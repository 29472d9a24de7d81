use index_table::{IndexTable, RowVersion};
use serde::{Deserialize, Serialize};

#[derive(Deserialize, RowVersion)]
#[table(changed = [town])]
struct CustomerV1 {
    id: u64,
    town: String,
}

#[derive(Deserialize, RowVersion)]
#[table(version = 2, previous = CustomerV1, changed = [twon, town, town, desc(town), id])]
struct CustomerV2 {
    #[primary_key]
    id: u64,
    town: String,
}

#[derive(Deserialize, RowVersion)]
#[table(version = 3, previous = CustomerV2, changed = [twon, town, town, id])]
struct CustomerV3 {
    #[primary_key]
    id: u64,
    town: String,
}

#[derive(Serialize, Deserialize, IndexTable)]
#[table(version = 4, previous = CustomerV3, changed = [])]
struct Customer {
    #[primary_key]
    id: u64,
    town: String,
}

#[derive(Serialize, Deserialize, IndexTable)]
#[table(version = 4, previous = CustomerV3, changed = "town")]
#[index(town, changed = [town])]
struct Client {
    #[primary_key]
    id: u64,
    town: String,
}

impl From<CustomerV1> for CustomerV2 {
    fn from(old: CustomerV1) -> Self {
        Self { id: old.id, town: old.town }
    }
}

impl From<CustomerV2> for CustomerV3 {
    fn from(old: CustomerV2) -> Self {
        Self { id: old.id, town: old.town }
    }
}

impl From<CustomerV3> for Customer {
    fn from(old: CustomerV3) -> Self {
        Self { id: old.id, town: old.town }
    }
}

impl From<CustomerV3> for Client {
    fn from(old: CustomerV3) -> Self {
        Self { id: old.id, town: old.town }
    }
}

fn main() {}

// 8 mistakes
