#![deny(deprecated)]

use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[index(town, strategy = "full")]
#[index(last_name, strategy = "full")]
#[index(phone, strategy = "full", allow(doubled_full))]
struct Customer {
    #[primary_key]
    id: u64,
    last_name: String,
    town: String,
    phone: String,
}

fn main() {}
