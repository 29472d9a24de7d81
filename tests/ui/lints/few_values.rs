#![deny(deprecated)]

use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[index(active)]
#[index(desc(blocked))]
#[index(computed(is_new: bool))]
#[index(listed, allow(few_values))]
struct Customer {
    #[primary_key]
    id: u64,
    active: bool,
    blocked: Option<bool>,
    listed: bool,
}

impl Customer {
    fn is_new(&self) -> bool {
        self.id > 100
    }
}

fn main() {}

// 3 mistakes
