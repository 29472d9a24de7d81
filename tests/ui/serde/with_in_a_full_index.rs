use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[index(town, strategy = "full")]
struct Customer {
    #[primary_key]
    id: u64,
    town: String,
    #[serde(serialize_with = "as_text::serialize", deserialize_with = "as_text::deserialize")]
    level: Level,
}

mod as_text {
    use super::Level;

    pub fn serialize<S: serde::Serializer>(_: &Level, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str("high")
    }

    pub fn deserialize<'de, D: serde::Deserializer<'de>>(_: D) -> Result<Level, D::Error> {
        Ok(Level)
    }
}

struct Level;

fn query(customers: &CustomerRepository, txn: &index_table::ReadTxn<'_>) -> index_table::Result<()> {
    let _ = customers.find_by_town(txn, "Redmond").first()?;
    Ok(())
}

fn main() {}

// 2 mistakes
