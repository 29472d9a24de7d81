//! Malformed shard keys.

use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[table(shard_by = "tenant")]
struct InQuotes {
    #[primary_key]
    tenant: u32,
}

#[derive(Serialize, Deserialize, IndexTable)]
#[table(shard_by = [])]
struct Empty {
    #[primary_key]
    tenant: u32,
}

#[derive(Serialize, Deserialize, IndexTable)]
#[table(shard_by = hash())]
struct EmptyHash {
    #[primary_key]
    tenant: u32,
}

#[derive(Serialize, Deserialize, IndexTable)]
#[table(shard_by = desc(tenant))]
struct OtherForm {
    #[primary_key]
    tenant: u32,
}

#[derive(Serialize, Deserialize, IndexTable)]
#[table(shard_by)]
struct NoValue {
    #[primary_key]
    tenant: u32,
}

#[derive(Serialize, Deserialize, IndexTable)]
#[table(shard_map = "tenants")]
struct MapAlone {
    #[primary_key]
    tenant: u32,
}

#[derive(Serialize, Deserialize, IndexTable)]
#[table(shard_by = tenant, shard_map = "ten.ants")]
struct BadMapName {
    #[primary_key]
    tenant: u32,
}

#[derive(Serialize, Deserialize, IndexTable)]
#[index(tenant, shard_by = tenant)]
struct OnTheIndex {
    #[primary_key]
    tenant: u32,
}

#[derive(Serialize, Deserialize, IndexTable)]
#[table(shard_by = tenant, reference)]
struct Both {
    #[primary_key]
    tenant: u32,
}

#[derive(Serialize, Deserialize, IndexTable)]
#[table(reference = true)]
struct Valued {
    #[primary_key]
    tenant: u32,
}

fn main() {}

// 10 mistakes
