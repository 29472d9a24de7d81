use std::time::SystemTime;

use index_table::{IndexTable, Store};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, IndexTable)]
#[table(expires = ends)]
struct Session {
    #[primary_key]
    id: u64,
    ends: u64,
    minutes: u32,
}

fn clean_up(sessions: &SessionRepository, store: &Store) -> index_table::Result<u64> {
    sessions.expire(store, SystemTime::now(), 1000)
}

fn main() {}
