//! The time that has passed, in spite of corrections of the system's clock.
//!
//! Times in files are times of the system's clock, which can be corrected by hours or by years. The time since the start of
//! the machine is never corrected, but is meaningless elsewhere. So a process compares the two. As long as both advance
//! equally, the clock is in one *period*, and the distance of two times in this period is the time that has passed between
//! them. A correction begins another period.
//!
//! On Linux, the time since the start includes the time during which the machine sleeps. Elsewhere, this time counts as a
//! correction.

use std::{
    collections::VecDeque,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use crate::locks::{Mutex, OfProcess};

/// The distance by which both clocks may differ within a period, in milliseconds.
const TOLERANCE: u64 = 1000;

/// The maximum number of earlier periods that are known.
const EARLIER: usize = 16;

/// The time for which [`settled`] does not follow a correction.
const SETTLING: Duration = Duration::from_mins(10);

static PERIODS: OfProcess<Mutex<Option<Periods>>> = OfProcess::new(Mutex::default);

/// The periods of the clock in this process. Times are in milliseconds since 1970.
#[derive(Debug)]
struct Periods {
    /// The first and the last time of each earlier period.
    earlier: VecDeque<(u64, u64)>,
    /// The first time of the current period.
    start: u64,
    begun: Moment,
    /// When the clocks were last compared.
    last: Moment,
    /// The time since which the clock was not corrected and the machine has not slept, as far as this was observed.
    steady: Instant,
}

/// A moment by the clocks that are never corrected.
#[derive(Debug, Clone, Copy)]
struct Moment {
    /// The time since the start of the machine.
    up: Duration,
    /// The same without the time during which the machine has slept.
    awake: Instant,
}

impl Moment {
    fn now() -> Self {
        Self { up: os::up(), awake: Instant::now() }
    }

    fn since(self, before: Self) -> Duration {
        self.up.saturating_sub(before.up)
    }

    /// Returns the time during which the machine has slept.
    fn slept_since(self, before: Self) -> Duration {
        self.since(before).saturating_sub(self.awake.saturating_duration_since(before.awake))
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
mod os {
    use std::time::Duration;

    #[expect(unsafe_code, reason = "the operating system's functions are unsafe")]
    pub(super) fn up() -> Duration {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the call fills the time. If it failed, the machine would be in its first second.
        unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut time) };
        let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
        Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or_default())
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod os {
    use std::time::{Duration, Instant};

    use crate::locks::OfProcess;

    /// Returns the time since the first call.
    pub(super) fn up() -> Duration {
        static FIRST: OfProcess<Instant> = OfProcess::new(Instant::now);
        FIRST.elapsed()
    }
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
    const fn new(now: u64, moment: Moment) -> Self {
        Self {
            earlier: VecDeque::new(),
            start: now,
            begun: moment,
            last: moment,
            steady: moment.awake,
        }
    }

    /// Returns the time by the clock of the current period.
    fn expected(&self, moment: Moment) -> u64 {
        let passed = moment.since(self.begun).as_millis();
        self.start.saturating_add(u64::try_from(passed).unwrap_or(u64::MAX))
    }

    /// Compares the clocks.
    fn observe(&mut self, now: u64, moment: Moment) {
        if moment.slept_since(self.last) > Duration::from_millis(TOLERANCE) {
            self.steady = moment.awake;
        }
        self.last = moment;
        let expected = self.expected(moment);
        if now.abs_diff(expected) <= TOLERANCE {
            return;
        }
        if self.earlier.len() == EARLIER {
            self.earlier.pop_front();
        }
        self.earlier.push_back((self.start, expected));
        (self.start, self.begun, self.steady) = (now, moment, moment.awake);
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
    fn settled(&self, now: u64, moment: Moment) -> u64 {
        let is_settled = moment.since(self.begun) >= SETTLING;
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

fn with_periods<T>(then: impl FnOnce(&Periods, u64, Moment) -> T) -> T {
    let mut periods = PERIODS.lock();
    let (now, moment) = (now(), Moment::now());
    let periods = periods.get_or_insert_with(|| Periods::new(now, moment));
    periods.observe(now, moment);
    then(periods, now, moment)
}

/// Compares the clocks. The earlier this is called, the more time is measured.
pub(crate) fn observe() {
    with_periods(|_, _, _| ());
}

/// Returns the time since which the clock was not corrected and the machine has not slept, as far as this process has
/// observed it.
pub(crate) fn steady_since() -> Instant {
    with_periods(|periods, _, _| periods.steady)
}

/// Returns the time that has passed since a time in milliseconds since 1970.
pub(crate) fn passed_since(since: u64) -> Passed {
    with_periods(|periods, now, _| periods.since(since, now))
}

/// Returns the current time. After a correction that moves the clock forward, it continues without the correction for ten
/// minutes, so that a wrong time that is soon corrected has no effects that can't be undone.
pub(crate) fn settled() -> SystemTime {
    let settled = with_periods(|periods, now, moment| now - periods.settled(now, moment));
    let now = SystemTime::now();
    now.checked_sub(Duration::from_millis(settled)).unwrap_or(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3_600_000;

    /// Returns the moment after a time without sleep.
    fn at(begun: Instant, after: Duration) -> Moment {
        Moment { up: after, awake: begun + after }
    }

    fn measured(measured: u64) -> Passed {
        Passed { measured, unmeasured: 0 }
    }

    #[test]
    fn passed_time_does_not_include_corrections() {
        let begun = Instant::now();
        let at = |hours: u64| at(begun, Duration::from_millis(hours * HOUR));
        let mut periods = Periods::new(100 * HOUR, at(0));
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
        let at = |minutes: u64| at(begun, Duration::from_mins(minutes));
        let now = |minutes: u64| minutes * 60_000;
        let mut periods = Periods::new(now(1000), at(0));
        assert_eq!(periods.settled(now(1000), at(0)), now(1000));
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
    fn the_time_during_which_the_machine_sleeps_passes() {
        let begun = at(Instant::now(), Duration::ZERO);
        let mut periods = Periods::new(100 * HOUR, begun);
        let woken =
            Moment { up: Duration::from_hours(9), awake: begun.awake + Duration::from_hours(1) };
        periods.observe(109 * HOUR, woken);
        assert_eq!(periods.since(100 * HOUR, 109 * HOUR), measured(9 * HOUR));
        assert_eq!(periods.settled(109 * HOUR, woken), 109 * HOUR);
        assert_eq!(periods.steady, woken.awake);
    }

    #[test]
    fn the_number_of_known_periods_is_bounded() {
        let begun = at(Instant::now(), Duration::ZERO);
        let mut periods = Periods::new(0, begun);
        for number in 1..100 {
            periods.observe(number * HOUR, begun);
        }
        assert_eq!(periods.earlier.len(), EARLIER);
    }
}
