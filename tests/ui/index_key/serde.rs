use index_table::IndexKey;
use serde::{Deserialize, Serialize};

mod whole {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(value: &u32, serializer: S) -> Result<S::Ok, S::Error> {
        (value / 10).serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
        Ok(u32::deserialize(deserializer)? * 10)
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexKey)]
struct Moment {
    #[serde(with = "whole")]
    seconds: u32,
    #[serde(skip)]
    zone: u8,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexKey)]
struct Score(#[serde(serialize_with = "whole::serialize")] u32);

fn main() {}

// 3 mistakes
