use index_table::RowVersion;
use serde::Deserialize;

#[derive(Deserialize, RowVersion)]
#[table(name = "customers", repository = Customers, view)]
#[index(town)]
struct CustomerV1 {
    #[primary_key]
    id: u64,
    town: String,
}

fn main() {}

// 4 mistakes
