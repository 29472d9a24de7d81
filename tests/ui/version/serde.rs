use index_table::RowVersion;
use serde::Deserialize;

#[derive(Deserialize, RowVersion)]
struct CustomerV1 {
    id: u64,
    #[serde(flatten)]
    address: Address,
    #[serde(skip_deserializing)]
    phone: String,
}

#[derive(Deserialize)]
struct Address {
    town: String,
}

fn main() {}
