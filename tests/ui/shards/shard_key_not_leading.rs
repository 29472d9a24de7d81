//! The shard key is the first field of the primary key, or the first fields.

use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[table(shard_by = id)]
struct Behind {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    id: u64,
}

#[derive(Serialize, Deserialize, IndexTable)]
#[table(shard_by = town)]
struct Elsewhere {
    #[primary_key]
    tenant: u32,
    town: String,
}

#[derive(Serialize, Deserialize, IndexTable)]
#[table(shard_by = [tenant, id])]
struct WithAGap {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    region: String,
    #[primary_key]
    id: u64,
}

#[derive(Serialize, Deserialize, IndexTable)]
#[table(shard_by = hash(id))]
struct Hashed {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    id: u64,
}

fn main() {}

// 4 mistakes
