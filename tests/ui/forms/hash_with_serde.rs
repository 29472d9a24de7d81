use index_table::IndexTable;
use serde::{Deserialize, Serialize};

mod upper {
    pub fn serialize<S: serde::Serializer>(text: &str, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&text.to_uppercase())
    }

    pub fn deserialize<'de, D: serde::Deserializer<'de>>(from: D) -> Result<String, D::Error> {
        serde::Deserialize::deserialize(from)
    }
}

#[derive(Serialize, Deserialize, IndexTable)]
#[index(hash(url))]
#[index(hash(text))]
struct Page {
    #[primary_key]
    id: u64,
    #[serde(with = "upper")]
    url: String,
    #[serde(skip)]
    text: String,
}

fn main() {}
