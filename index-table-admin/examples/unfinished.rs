//! Creates stores with work for `build`, `upgrade`, `expire` and `move`, for `scripts/admin-figures`:
//!
//! - removes the indexes of the customers in `store`;
//! - `documents`, with rows of an older version;
//! - `sessions`, of which all have expired;
//! - `shards`, with two shards and without orders.

#[path = "../tests/support/mod.rs"]
mod support;

use std::{env, path::Path};

use index_table::{ShardMap, Store};

fn main() {
    let rows = env::args().nth(1).and_then(|rows| rows.parse().ok()).expect("a number of rows");
    support::open_without_indexes(Path::new("store"));
    support::older_documents(Path::new("documents"), rows, 100);
    support::sessions(Path::new("sessions"), rows, 0);
    Store::options()
        .shard("north", "north")
        .shard("south", "south")
        .map("orders", ShardMap::ranges().to("north", ..100u32).to("south", 100u32..))
        .open("shards")
        .expect("a store");
}
