use index_table::{Desc, IndexTable};
use serde::{Deserialize, Deserializer, Serialize};

#[derive(Serialize, IndexTable)]
#[index(at)]
struct Event {
    #[primary_key]
    id: Desc<u64>,
    at: index_table::Desc<u64>,
}

// What serde's derive says of such fields, behind our errors, differs with its releases.
impl<'de> Deserialize<'de> for Event {
    fn deserialize<D: Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
        unimplemented!()
    }
}

fn main() {}
