use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[index(town, consistency = "eventul")]
#[index(last_name, consistency = "sometimes")]
#[index(email, unique, consistency = "eventual")]
#[index(phone, unique, consistency = "strong")]
#[index(street, consistency = eventual)]
#[index(house, consistency)]
#[index(zip, consistancy = "eventual")]
struct Customer {
    #[primary_key]
    id: u64,
    town: String,
    last_name: String,
    email: String,
    phone: String,
    street: String,
    house: String,
    zip: String,
}

fn main() {}

// 6 mistakes
