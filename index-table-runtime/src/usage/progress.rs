//! Progress of long work.

use std::{
    fmt,
    time::{Duration, Instant},
};

/// The progress of long work: a copy of a store, a bulk load, a build of indexes, a verification or an upgrade.
///
/// Each of these operations is a builder with a method `progress`, whose closure receives this value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// The unit, such as `"rows"`. Work in two phases has a unit for each phase.
    pub unit: &'static str,
    /// The number of finished units.
    pub done: u64,
    /// The bytes of the finished units; `None` if they are not counted.
    pub bytes: Option<u64>,
    /// The total number of units; `None` if it is unknown.
    pub total: Option<u64>,
    /// The remaining time at the speed so far; `None` if it is unknown.
    pub left: Option<Duration>,
}

impl Progress {
    /// Creates the progress of work that began with the first unit at `started`.
    pub(crate) fn new(unit: &'static str, done: u64, total: Option<u64>, started: Instant) -> Self {
        // Concurrent writes may make `done` greater than the total.
        let total = total.map(|total| total.max(done));
        let left = total.and_then(|total| left(done, total, started));
        Self { unit, done, bytes: None, total, left }
    }

    /// Sets the bytes of the finished units.
    pub(crate) const fn with_bytes(self, bytes: u64) -> Self {
        Self { bytes: Some(bytes), ..self }
    }

    /// Corrects the remaining time of continued work, whose first `earlier` units were finished earlier.
    pub(crate) fn since(self, earlier: u64, started: Instant) -> Self {
        let rest = |count: u64| count.saturating_sub(earlier);
        Self {
            left: self.total.and_then(|total| left(rest(self.done), rest(total), started)),
            ..self
        }
    }
}

fn left(done: u64, total: u64, started: Instant) -> Option<Duration> {
    let rest = started.elapsed().as_nanos().checked_mul(u128::from(total.checked_sub(done)?))?;
    let left = rest.checked_div(u128::from(done))?;
    u64::try_from(left).ok().map(Duration::from_nanos)
}

/// Writes text such as `4096 rows read` or `300 of 4000 rows, 2.1s left`.
impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { unit, done, bytes, total, left } = self;
        match total {
            Some(total) => write!(f, "{done} of {total} {unit}"),
            None => write!(f, "{done} {unit}"),
        }?;
        if let Some(bytes) = bytes {
            write!(f, " ({bytes} bytes)")?;
        }
        left.map_or(Ok(()), |left| write!(f, ", {left:.1?} left"))
    }
}

/// Calls a closure with the progress of counted work, after each [`INTERVAL`].
pub(crate) struct ProgressReporter<'a> {
    /// The closure, if there is one.
    report: Option<Box<dyn FnMut(Progress) + 'a>>,
    started: Instant,
    unit: &'static str,
    done: u64,
    total: Option<u64>,
}

/// The number of units between two calls.
const INTERVAL: u64 = 4096;

impl<'a> ProgressReporter<'a> {
    pub(crate) fn new(
        report: Option<Box<dyn FnMut(Progress) + 'a>>,
        unit: &'static str,
        total: Option<u64>,
    ) -> Self {
        Self { report, started: Instant::now(), unit, done: 0, total }
    }

    /// Begins another phase, and reports its start.
    pub(crate) fn begin(&mut self, unit: &'static str, total: u64) {
        let report = self.report.take();
        *self = Self::new(report, unit, Some(total));
        self.report();
    }

    /// Adds finished units.
    #[inline]
    pub(crate) fn add(&mut self, count: u64) {
        let earlier = self.done / INTERVAL;
        self.done += count;
        if self.done / INTERVAL > earlier {
            self.report();
        }
    }

    /// Sets the finished units and the total, and reports them.
    pub(crate) fn set(&mut self, unit: &'static str, done: u64, total: u64) {
        (self.unit, self.done, self.total) = (unit, done, Some(total));
        self.report();
    }

    /// Reports immediately.
    #[cold]
    pub(crate) fn report(&mut self) {
        if let Some(report) = &mut self.report {
            report(Progress::new(self.unit, self.done, self.total, self.started));
        }
    }
}
