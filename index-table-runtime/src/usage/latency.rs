//! The durations of commits and queries: counters that are always enabled, and their report.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

use crate::locks::OfProcess;

/// The number of buckets. The last bucket with an upper bound ends at eight seconds.
const BUCKETS: usize = 25;

/// One of this number of queries of an index is timed, because reading the clock takes as long as a short query.
const QUERIES: u64 = 256;

/// One of this number of commits is timed.
const COMMITS: u64 = 16;

/// Durations in buckets: up to 1 µs, up to 2 µs, up to 4 µs, and so on; the last bucket has all longer durations.
#[derive(Default)]
pub(crate) struct Durations {
    buckets: [AtomicU64; BUCKETS],
    nanos: AtomicU64,
}

impl Durations {
    /// Adds the time since `begun`.
    #[cold]
    pub(crate) fn end(&self, begun: u64) {
        self.add(Duration::from_nanos(now().saturating_sub(begun)));
    }

    fn add(&self, duration: Duration) {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        // The bucket is the number of doublings of a microsecond until it is at least the duration.
        let micros = nanos.div_ceil(1000).max(1);
        let bucket = (u64::BITS - (micros - 1).leading_zeros()) as usize;
        if let Some(count) = self.buckets.get(bucket.min(BUCKETS - 1)) {
            count.fetch_add(1, Relaxed);
            self.nanos.fetch_add(nanos, Relaxed);
        }
    }

    pub(crate) fn report(&self) -> Latency {
        let mut count = 0;
        let mut buckets = Vec::with_capacity(BUCKETS - 1);
        for (doublings, own) in self.buckets.iter().enumerate() {
            count += own.load(Relaxed);
            if doublings + 1 < BUCKETS {
                buckets.push((Duration::from_micros(1 << doublings), count));
            }
        }
        Latency { count, sum: Duration::from_nanos(self.nanos.load(Relaxed)), buckets }
    }
}

/// Returns the current time if the query after this number of queries is timed; otherwise 0.
#[inline]
pub(crate) fn begin_query(queries: u64) -> u64 {
    if queries.is_multiple_of(QUERIES) { now() } else { 0 }
}

/// Returns the current time if the commit with this number is timed; otherwise 0.
#[inline]
pub(crate) fn begin_commit(number: u64) -> u64 {
    if number.is_multiple_of(COMMITS) { now() } else { 0 }
}

/// Returns the nanoseconds since the first call, but never 0.
#[cold]
fn now() -> u64 {
    static FIRST: OfProcess<Instant> = OfProcess::new(Instant::now);
    u64::try_from(FIRST.elapsed().as_nanos()).unwrap_or(u64::MAX) | 1
}

/// The durations of the commits of a store, or of the queries of an index. Every 256th query and every 16th commit is
/// timed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Latency {
    /// The number of timed commits or queries.
    pub count: u64,
    /// The sum of their durations.
    pub sum: Duration,
    /// Upper bounds, each with the number of durations up to it. Longer durations are only in `count`.
    pub buckets: Vec<(Duration, u64)>,
}

impl Latency {
    /// Returns the upper bound of the bucket with this percentile, from 0 to 100. `None` if nothing was timed, or if
    /// the duration is longer than all bounds.
    #[must_use]
    pub fn percentile(&self, percent: u64) -> Option<Duration> {
        let rank = (u128::from(self.count) * u128::from(percent)).div_ceil(100).max(1);
        let found = self.buckets.iter().find(|(_, count)| u128::from(*count) >= rank);
        found.map(|(bound, _)| *bound)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_in_the_bucket_of_the_next_bound() {
        let durations = Durations::default();
        for nanos in [0, 1000, 1001, 2000, 2001, 4000, u64::MAX] {
            durations.add(Duration::from_nanos(nanos));
        }
        let latency = durations.report();
        let micros = |bound: u64| {
            let bound = Duration::from_micros(bound);
            latency.buckets.iter().find(|(own, _)| *own == bound).map(|(_, count)| *count)
        };
        assert_eq!([micros(1), micros(2), micros(4), micros(1 << 23)], [2, 4, 6, 6].map(Some));
        assert_eq!((latency.count, latency.buckets.len()), (7, BUCKETS - 1));
        assert_eq!(latency.percentile(50), Some(Duration::from_micros(2)));
        assert_eq!(latency.percentile(100), None, "longer than all bounds");
        assert_eq!(Durations::default().report().percentile(50), None);
    }
}
