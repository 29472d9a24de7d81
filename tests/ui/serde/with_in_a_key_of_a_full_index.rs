use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[index(town, last_name)]
#[index(each(tags), strategy = "full")]
struct Customer {
    #[primary_key]
    #[serde(with = "as_it_is")]
    id: u64,
    #[serde(serialize_with = "as_it_is::serialize")]
    town: String,
    #[serde(deserialize_with = "as_it_is::deserialize")]
    last_name: String,
    #[serde(with = "as_it_is")]
    tags: Vec<String>,
}

mod as_it_is {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<T: Serialize, S: Serializer>(
        value: &T,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        value.serialize(serializer)
    }

    pub fn deserialize<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<T, D::Error> {
        T::deserialize(deserializer)
    }
}

fn query(customers: &CustomerRepository, txn: &index_table::ReadTxn<'_>) -> index_table::Result<()> {
    let _ = customers.find_by_town(txn, "Redmond").first()?;
    Ok(())
}

fn main() {}

// 4 mistakes
