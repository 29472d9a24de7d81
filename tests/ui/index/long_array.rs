use index_table::IndexTable;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

#[derive(IndexTable)]
#[index(signature)]
#[index(town)]
struct Customer {
    #[primary_key]
    id: [u8; 33],
    town: String,
    signature: [u8; 0x40],
}

// serde's derive does not support such arrays either.
impl Serialize for Customer {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.town)
    }
}

impl<'de> Deserialize<'de> for Customer {
    fn deserialize<D: Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
        Err(D::Error::custom("no customer"))
    }
}

fn query(customers: &CustomerRepository, txn: &index_table::ReadTxn<'_>) -> index_table::Result<()> {
    let _ = customers.find_by_town(txn, "Redmond").first()?;
    Ok(())
}

fn main() {}

// 2 mistakes
