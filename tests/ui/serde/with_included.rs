use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[index(town, include = [level])]
struct Customer {
    #[primary_key]
    id: u64,
    town: String,
    #[serde(with = "as_text")]
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
