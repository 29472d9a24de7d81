//! The time that has passed, in spite of corrections of the system's clock.
//!
//! Times in files are times of the system's clock, which can be corrected by hours or by years. An [`Instant`] is never
//! corrected, but is meaningless in another process. So a process compares the two. As long as both advance equally, the
//! clock is in one *period*, and the distance of two times in this period is the time that has passed between them. A
//! correction begins another period. Time during which the machine sleeps counts as a correction.

use std::{
    collections::VecDeque,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use crate::locks::Mutex;

/// The distance by which both clocks may differ within a period, in milliseconds.
const TOLERANCE: u64 = 1000;

/// The maximum number of earlier periods that are known.
const EARLIER: usize = 16;

/// The time for which [`settled`] does not follow a correction.
const SETTLING: Duration = Duration::from_mins(10);

static PERIODS: Mutex<Option<Periods>> = Mutex::new(None);

/// The periods of the clock in this process. Times are in milliseconds since 1970.
#[derive(Debug)]
struct Periods {
    /// The first and the last time of each earlier period.
    earlier: VecDeque<(u64, u64)>,
    /// The first time of the current period.
    start: u64,
    begun: Instant,
}

/// The time that has passed since a time of the system's clock, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Passed {
    /// The time that was measured by this process.
    pub(crate) measured: u64,
    /// The time before this process observed the clock, by the system's clock. It may be the distance of a correction.
    pub(crate) unmeasured: u64,
}

impl Periods {
    const fn new(now: u64, instant: Instant) -> Self {
        Self { earlier: VecDeque::new(), start: now, begun: instant }
    }

    /// Returns the time by the clock of the current period.
    fn expected(&self, instant: Instant) -> u64 {
        let passed = instant.saturating_duration_since(self.begun).as_millis();
        self.start.saturating_add(u64::try_from(passed).unwrap_or(u64::MAX))
    }

    /// Compares the two clocks.
    fn observe(&mut self, now: u64, instant: Instant) {
        let expected = self.expected(instant);
        if now.abs_diff(expected) <= TOLERANCE {
            return;
        }
        if self.earlier.len() == EARLIER {
            self.earlier.pop_front();
        }
        self.earlier.push_back((self.start, expected));
        (self.start, self.begun) = (now, instant);
    }

    /// Returns the time that has passed since `since`. If several periods have this time, the last of them counts.
    fn since(&self, since: u64, now: u64) -> Passed {
        let mut measured = now.saturating_sub(self.start);
        if since >= self.start {
            return Passed { measured: now.saturating_sub(since), unmeasured: 0 };
        }
        let current = measured;
        for (start, end) in self.earlier.iter().rev() {
            if (*start..=*end).contains(&since) {
                return Passed { measured: measured + (end - since), unmeasured: 0 };
            }
            measured += end - start;
        }
        let first = self.earlier.front().map_or(self.start, |(start, _)| *start);
        if since < first {
            return Passed { measured, unmeasured: first - since };
        }
        // The clock had this time between a correction and its discovery.
        Passed { measured: current, unmeasured: 0 }
    }

    /// Returns the time by the clock of the last period that has lasted for some time, or of the first period.
    fn settled(&self, now: u64, instant: Instant) -> u64 {
        let is_settled = instant.saturating_duration_since(self.begun) >= SETTLING;
        match self.earlier.back() {
            Some((_, end)) if !is_settled && *end < self.start => {
                now.min(end.saturating_add(now.saturating_sub(self.start)))
            }
            _ => now,
        }
    }
}

/// Returns the current time in milliseconds since 1970.
pub(crate) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn with_periods<T>(then: impl FnOnce(&Periods, u64, Instant) -> T) -> T {
    let mut periods = PERIODS.lock();
    let (now, instant) = (now(), Instant::now());
    let periods = periods.get_or_insert_with(|| Periods::new(now, instant));
    periods.observe(now, instant);
    then(periods, now, instant)
}

/// Compares the clocks. The earlier this is called, the more time is measured.
pub(crate) fn observe() {
    with_periods(|_, _, _| ());
}

/// Returns the time since which the clock was not corrected, as far as this process has observed it.
pub(crate) fn steady_since() -> Instant {
    with_periods(|periods, _, _| periods.begun)
}

/// Returns the time that has passed since a time in milliseconds since 1970.
pub(crate) fn passed_since(since: u64) -> Passed {
    with_periods(|periods, now, _| periods.since(since, now))
}

/// Returns the current time. After a correction that moves the clock forward, it continues without the correction for ten
/// minutes, so that a wrong time that is soon corrected has no effects that can't be undone.
pub(crate) fn settled() -> SystemTime {
    let settled = with_periods(|periods, now, instant| now - periods.settled(now, instant));
    let now = SystemTime::now();
    now.checked_sub(Duration::from_millis(settled)).unwrap_or(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3_600_000;

    fn measured(measured: u64) -> Passed {
        Passed { measured, unmeasured: 0 }
    }

    #[test]
    fn passed_time_does_not_include_corrections() {
        let begun = Instant::now();
        let at = |hours: u64| begun + Duration::from_millis(hours * HOUR);
        let mut periods = Periods::new(100 * HOUR, begun);
        periods.observe(101 * HOUR + 900, at(1));
        assert_eq!(periods.since(100 * HOUR, 101 * HOUR), measured(HOUR));
        let before = Passed { measured: HOUR, unmeasured: 30 * HOUR };
        assert_eq!(periods.since(70 * HOUR, 101 * HOUR), before);

        // Forward by 50 hours.
        periods.observe(152 * HOUR, at(2));
        assert_eq!(periods.since(101 * HOUR, 153 * HOUR), measured(2 * HOUR));
        assert_eq!(periods.since(152 * HOUR, 153 * HOUR), measured(HOUR));
        assert_eq!(periods.since(120 * HOUR, 153 * HOUR), measured(HOUR));
        let before = Passed { measured: 3 * HOUR, unmeasured: 30 * HOUR };
        assert_eq!(periods.since(70 * HOUR, 153 * HOUR), before);

        // And back.
        periods.observe(103 * HOUR, at(3));
        assert_eq!(periods.since(152 * HOUR, 104 * HOUR), measured(0));
        assert_eq!(periods.since(101 * HOUR, 104 * HOUR), measured(3 * HOUR));
        assert_eq!(periods.since(103 * HOUR, 104 * HOUR), measured(HOUR));
    }

    #[test]
    fn a_correction_is_followed_after_a_while() {
        let begun = Instant::now();
        let at = |minutes: u64| begun + Duration::from_secs(minutes * 60);
        let now = |minutes: u64| minutes * 60_000;
        let mut periods = Periods::new(now(1000), begun);
        assert_eq!(periods.settled(now(1000), begun), now(1000));
        periods.observe(now(2001), at(1));
        assert_eq!(periods.settled(now(2001), at(1)), now(1001));
        periods.observe(now(2010), at(10));
        assert_eq!(periods.settled(now(2010), at(10)), now(1010));
        assert_eq!(periods.settled(now(2011), at(11)), now(2011));
        // Back at once.
        periods.observe(now(1012), at(12));
        assert_eq!(periods.settled(now(1012), at(12)), now(1012));
    }

    #[test]
    fn the_number_of_known_periods_is_bounded() {
        let begun = Instant::now();
        let mut periods = Periods::new(0, begun);
        for number in 1..100 {
            periods.observe(number * HOUR, begun);
        }
        assert_eq!(periods.earlier.len(), EARLIER);
    }
}
