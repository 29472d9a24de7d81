//! The limit for each wait for a lock in a transaction that writes rows.
//!
//! The server finds a deadlock only after its `deadlock_timeout`, a second. So the first limit is short. A wait can also be for what is no
//! conflict, for example while another client extends a table, or before it is rolled back. So the limit is doubled when it has ended a
//! transaction of this thread, up to the limit of the session, until a transaction of this thread is committed.

use std::{cell::Cell, time::Duration};

use super::error;

/// The first limit.
const FIRST: Duration = Duration::from_millis(20);

/// The limit of a transaction that does not run again: its program has to handle each conflict. It is shorter than the server's time for finding
/// a deadlock.
pub(super) const ONE: Duration = Duration::from_millis(500);

thread_local! {
    /// The number of transactions of this thread that the limit has ended since the last commit.
    static ENDED: Cell<u32> = const { Cell::new(0) };
}

/// Returns the limit of the next transaction of this thread, which is at most `longest`.
pub(super) fn limit(longest: Duration) -> Duration {
    after(ENDED.get()).min(longest)
}

fn after(ended: u32) -> Duration {
    FIRST.saturating_mul(1 << ended.min(16))
}

/// Notes that a transaction of this thread ends with this error.
pub(super) fn note_failure(error: &tokio_postgres::Error) {
    if error::is_locked(error) {
        ENDED.set(ENDED.get().saturating_add(1));
    }
}

/// Notes that a transaction of this thread was committed.
pub(super) fn note_commit() {
    ENDED.set(0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_grows_up_to_that_of_the_session() {
        let longest = Duration::from_secs(5);
        assert_eq!(limit(longest), FIRST);
        ENDED.set(3);
        assert_eq!(limit(longest), Duration::from_millis(160));
        for ended in [8, 100, u32::MAX] {
            ENDED.set(ended);
            assert_eq!(limit(longest), longest);
        }
        note_commit();
        assert_eq!(limit(longest), FIRST);
        assert_eq!(limit(Duration::from_millis(7)), Duration::from_millis(7));
    }
}
