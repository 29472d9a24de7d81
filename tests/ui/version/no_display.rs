use index_table::{IndexTable, RowVersion};
use serde::{Deserialize, Serialize};

#[derive(Deserialize, RowVersion)]
struct CustomerV1 {
    id: u64,
}

#[derive(Serialize, Deserialize, IndexTable)]
#[table(version = 2, previous = CustomerV1)]
struct Customer {
    #[primary_key]
    id: u64,
}

struct Failed;

impl TryFrom<CustomerV1> for Customer {
    type Error = Failed;

    fn try_from(old: CustomerV1) -> Result<Self, Failed> {
        Ok(Self { id: old.id })
    }
}

fn main() {}
