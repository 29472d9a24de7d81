//! A unique index is local to a shard, so it contains the shard key.

use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[table(shard_by = tenant)]
#[index(email, unique)]
#[index(tenant, email, unique)]
#[index(hash(tenant), town, unique)]
struct Customer {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    id: u64,
    email: String,
    town: String,
}

#[derive(Serialize, Deserialize, IndexTable)]
#[table(shard_by = [tenant, region])]
#[index(tenant, email, unique)]
#[index(email, region, tenant, unique)]
struct User {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    region: String,
    email: String,
}

fn main() {}

// 4 mistakes
