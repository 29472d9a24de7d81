//! The pace of writers beside a checkpoint.
//!
//! While a checkpoint is in progress, writers may change [`PATIENCE`] times a limit, and then wait for its end. They spread
//! the second half of these changes over the expected time of the checkpoint. So several transactions wait for a short time,
//! instead of one for most of the checkpoint. Below half, writers don't wait.

use std::time::Duration;

/// After this multiple of a limit, writers wait for the checkpoint.
pub(super) const PATIENCE: u64 = 2;

/// The maximum time over which writers spread their changes.
const LONGEST: Duration = Duration::from_secs(10);

/// The expected time of a checkpoint: the time of the last one. Before the first one, writers don't wait.
#[derive(Debug, Default)]
pub(super) struct Pace(Duration);

impl Pace {
    pub(super) fn follow(&mut self, time: Duration) {
        self.0 = time.min(LONGEST);
    }

    /// Returns the time from the start of a checkpoint at which writers may have made these changes; `None` if they have to
    /// wait for its end.
    pub(super) fn time_of(&self, changed: u64, limit: u64) -> Option<Duration> {
        let most = limit.saturating_mul(PATIENCE);
        if changed >= most {
            return None;
        }
        let half = most / 2;
        let thousandths = u128::from(changed.saturating_sub(half)) * 1000 / u128::from(most - half);
        Some(self.0 * u32::try_from(thousandths).unwrap_or(1000) / 1000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_spread_over_the_time_of_the_last_checkpoint() {
        let mut pace = Pace::default();
        assert_eq!(pace.time_of(199, 100), Some(Duration::ZERO));
        assert_eq!(pace.time_of(200, 100), None);
        pace.follow(Duration::from_millis(800));
        let times = [0, 100, 101, 150, 199].map(|changed| pace.time_of(changed, 100));
        assert_eq!(times, [0, 0, 8000, 400_000, 792_000].map(|it| Some(Duration::from_micros(it))));
        assert_eq!([200, u64::MAX].map(|changed| pace.time_of(changed, 100)), [None; 2]);
        assert_eq!([0, 1].map(|changed| pace.time_of(changed, 0)), [None; 2]);
        assert_eq!(pace.time_of(u64::MAX - 1, u64::MAX), Some(Duration::from_micros(799_200)));
    }

    #[test]
    fn the_time_has_a_limit() {
        let mut pace = Pace::default();
        pace.follow(Duration::MAX);
        assert_eq!(pace.time_of(3, 2), Some(LONGEST / 2));
    }
}
