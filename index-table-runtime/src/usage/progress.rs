//! Progress of long work.

use std::{
    fmt,
    time::{Duration, Instant},
};

/// The progress of long work: a copy of a store, a bulk load, a build of indexes, a verification or an upgrade.
///
/// Each of these is a builder with a method `progress`, whose closure gets this value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// The unit, such as `"rows"`. Work in two phases has a unit for each phase.
    pub unit: &'static str,
    /// The number of finished units.
    pub done: u64,
    /// The total number of units; `None` if it is unknown.
    pub total: Option<u64>,
    /// The time for the rest at the speed so far; `None` if it is unknown.
    pub left: Option<Duration>,
}

impl Progress {
    /// The work began with the first of them at `begun`.
    pub(crate) fn new(unit: &'static str, done: u64, total: Option<u64>, begun: Instant) -> Self {
        // Rows that were written meanwhile may be counted as done, or no longer in the total.
        let total = total.map(|total| total.max(done));
        Self { unit, done, total, left: total.and_then(|total| left(done, total, begun)) }
    }

    /// For work that continues: the first `before` units were finished earlier.
    pub(crate) fn since(self, before: u64, begun: Instant) -> Self {
        let rest = |count: u64| count.saturating_sub(before);
        Self {
            left: self.total.and_then(|total| left(rest(self.done), rest(total), begun)),
            ..self
        }
    }
}

fn left(done: u64, total: u64, begun: Instant) -> Option<Duration> {
    let rest = begun.elapsed().as_nanos().checked_mul(u128::from(total.checked_sub(done)?))?;
    let left = rest.checked_div(u128::from(done))?;
    u64::try_from(left).ok().map(Duration::from_nanos)
}

/// `4096 rows read`, `300 of 4000 rows, 2.1s left`.
impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { unit, done, total, left } = self;
        match total {
            Some(total) => write!(f, "{done} of {total} {unit}"),
            None => write!(f, "{done} {unit}"),
        }?;
        left.map_or(Ok(()), |left| write!(f, ", {left:.1?} left"))
    }
}

/// Calls a closure with the progress of counted work, after a number of steps.
pub(crate) struct ProgressReporter<'a> {
    /// `None` without a closure.
    report: Option<Box<dyn FnMut(Progress) + 'a>>,
    begun: Instant,
    unit: &'static str,
    done: u64,
    total: Option<u64>,
}

/// The steps between two calls.
const INTERVAL: u64 = 4096;

impl<'a> ProgressReporter<'a> {
    pub(crate) fn new(
        report: Option<Box<dyn FnMut(Progress) + 'a>>,
        unit: &'static str,
        total: Option<u64>,
    ) -> Self {
        Self { report, begun: Instant::now(), unit, done: 0, total }
    }

    /// Begins another phase, and reports its beginning.
    pub(crate) fn begin(&mut self, unit: &'static str, total: u64) {
        let report = self.report.take();
        *self = Self::new(report, unit, Some(total));
        self.report();
    }

    /// Adds finished units.
    #[inline]
    pub(crate) fn add(&mut self, count: u64) {
        let before = self.done / INTERVAL;
        self.done += count;
        if self.done / INTERVAL > before {
            self.report();
        }
    }

    /// Reports immediately.
    #[cold]
    pub(crate) fn report(&mut self) {
        if let Some(report) = &mut self.report {
            report(Progress::new(self.unit, self.done, self.total, self.begun));
        }
    }
}
