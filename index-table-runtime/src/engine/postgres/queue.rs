//! The length of a queue.
//!
//! A writer compares the length of the queue with its limit. A count in the writer's transaction would read all
//! messages, so concurrent writers would conflict. Therefore, the messages are counted in a transaction of their own, at
//! most once a second. It is READ COMMITTED: the server can refuse each statement of a SERIALIZABLE transaction, also a
//! single one, and no closure would run again for it.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::{error, names::Relation, pool::Pool};
use crate::{
    locks::{Mutex, rank::ServerQueue},
    model::error::Result,
};

/// The maximum age of a length.
const AGE: Duration = Duration::from_secs(1);

/// The maximum age of a length that has reached the limit. It is short, because writers may be waiting for room.
const AGE_IF_FULL: Duration = Duration::from_millis(20);

/// The queue of a table.
pub(crate) struct Queue {
    pub(super) relation: Relation,
    counted: Mutex<Option<Counted>, ServerQueue>,
}

/// The length of a queue at some time, up to a limit.
#[derive(Clone, Copy)]
struct Counted {
    at: Instant,
    length: u64,
    most: u64,
}

impl Queue {
    pub(super) fn new(relation: Relation) -> Self {
        Self { relation, counted: Mutex::default() }
    }

    /// Returns the number of messages, up to a limit. It may be a second old. If all connections are in use, `query` runs
    /// the query for the number in the transaction of the caller.
    pub(super) fn length(
        &self,
        pool: &Arc<Pool>,
        most: u64,
        query: impl FnOnce(&str) -> Result<u64>,
    ) -> Result<u64> {
        pool.refuse_forked()?;
        // Other transactions of this process wait for the count.
        let mut counted = self.counted.lock();
        if let Some(known) = *counted
            && known.most == most
            && known.at.elapsed() < if known.length < most { AGE } else { AGE_IF_FULL }
        {
            return Ok(known.length);
        }
        let limit = i64::try_from(most).unwrap_or(i64::MAX);
        let table = &self.relation.sql;
        let count = format!("SELECT count(*) FROM (SELECT 1 FROM {table} LIMIT {limit}) m");
        let length = if let Some(leased) = pool.take_another()? {
            let sql = format!("BEGIN ISOLATION LEVEL READ COMMITTED; {count}; COMMIT");
            let length = leased.get()?.simple(&sql);
            let length = length.map_err(|error| error::of(pool.server(), error))?;
            leased.keep();
            length.and_then(|length| length.parse().ok()).unwrap_or_default()
        } else {
            query(&count)?
        };
        *counted = Some(Counted { at: Instant::now(), length, most });
        Ok(length)
    }
}
