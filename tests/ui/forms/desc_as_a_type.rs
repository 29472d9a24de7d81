use index_table::{Desc, IndexTable};
use serde::{Deserialize, Deserializer, Serialize};

#[derive(Serialize, IndexTable)]
#[index(at)]
struct Event {
    #[primary_key]
    id: Desc<u64>,
    at: index_table::Desc<u64>,
}

// The messages that serde's derive adds to ours for such fields differ between its releases.
impl<'de> Deserialize<'de> for Event {
    fn deserialize<D: Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
        unimplemented!()
    }
}

fn main() {}

// 2 mistakes
