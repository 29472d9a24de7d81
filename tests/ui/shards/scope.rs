//! The words of `scope`, and the tables that have global indexes.

use index_table::IndexTable;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[table(shard_by = tenant)]
#[index(email, unique, scope = "globl")]
#[index(town, scope = "everywhere")]
#[index(name, scope = global)]
#[index(name, town, global)]
#[index(email, town, unique, scope = "local")]
#[index(email, name, unique, consistency = "eventual", scope = "global")]
#[index(town, name, scope = "global", scope = "local")]
struct Customer {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    id: u64,
    email: String,
    name: String,
    town: String,
}

/// All rows are in one shard.
#[derive(Serialize, Deserialize, IndexTable)]
#[index(email, unique, scope = "global")]
#[index(town, scope = "local")]
struct Invoice {
    #[primary_key]
    id: u64,
    email: String,
    town: String,
}

/// The shard key is reported, and the index is right.
#[derive(Serialize, Deserialize, IndexTable)]
#[table(shard_by = tenent)]
#[index(email, unique, scope = "global")]
struct User {
    #[primary_key]
    tenant: u32,
    email: String,
}

fn main() {}

// 9 mistakes
