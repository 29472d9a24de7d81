use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[table(view)]
struct Customer {
    #[primary_key]
    id: u64,
    #[serde(flatten)]
    address: Address,
    #[serde(default = "unknown", skip_serializing_if = "String::is_empty")]
    phone: String,
    #[serde(default = "unknown", skip_serializing)]
    email: String,
    #[serde(default, with = "as_it_is", skip_serializing_if = "String::is_empty")]
    town: String,
    #[serde(skip_serializing)]
    secret: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Address {
    street: String,
}

#[derive(Serialize, Deserialize, IndexTable)]
#[serde(default)]
#[index(name, strategy = "full")]
struct Product {
    #[primary_key]
    id: u64,
    name: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    sizes: Vec<u8>,
}

impl Default for Product {
    fn default() -> Self {
        Self { id: 0, name: unknown(), sizes: vec![40] }
    }
}

fn unknown() -> String {
    "unknown".to_owned()
}

mod as_it_is {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(value: &str, to: S) -> Result<S::Ok, S::Error> {
        value.serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
        String::deserialize(from)
    }
}

fn query(customers: &CustomerRepository, txn: &index_table::ReadTxn<'_>) -> index_table::Result<()> {
    customers.get_view(txn, 7)?;
    Ok(())
}

fn main() {}

// 6 mistakes
