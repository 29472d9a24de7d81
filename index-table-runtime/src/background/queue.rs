//! The jobs of this process: which of them wait, run, or have a time.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Instant,
};

use super::{Lane, MOST, Work};

/// The number of the last job. A forked process continues after the numbers of its parent.
static LAST: AtomicU64 = AtomicU64::new(0);

/// All jobs.
#[derive(Default)]
pub(super) struct Queue {
    jobs: BTreeMap<u64, Known>,
    lanes: BTreeMap<Lane, Line>,
    times: BTreeSet<(Instant, u64)>,
}

/// The jobs of a lane that wait or run.
#[derive(Default)]
struct Line {
    /// The jobs that wait for a thread, and since when.
    waiting: VecDeque<(Instant, u64)>,
    /// The number of jobs that run.
    running: usize,
}

struct Known {
    work: Arc<dyn Work>,
    lane: Lane,
    phase: Phase,
    time: Option<Instant>,
    is_ended: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Idle,
    Waiting,
    Running { again: bool },
}

/// A job that runs.
pub(super) struct Taken {
    pub(super) number: u64,
    pub(super) work: Arc<dyn Work>,
}

impl Queue {
    pub(super) const fn new() -> Self {
        Self { jobs: BTreeMap::new(), lanes: BTreeMap::new(), times: BTreeSet::new() }
    }

    /// Whether there are no jobs.
    pub(super) fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// The number of jobs that wait for a thread.
    pub(super) fn waiting(&self) -> usize {
        self.lanes.values().map(|line| line.waiting.len()).sum()
    }

    /// Adds a job, and returns its number.
    pub(super) fn add(&mut self, work: Arc<dyn Work>, lane: Lane) -> u64 {
        let number = LAST.fetch_add(1, Relaxed) + 1;
        let known = Known { work, lane, phase: Phase::Idle, time: None, is_ended: false };
        self.jobs.insert(number, known);
        number
    }

    /// Sets the time at which an idle job is queued.
    pub(super) fn set_time(&mut self, number: u64, time: Option<Instant>) {
        let Some(known) = self.jobs.get_mut(&number) else { return };
        if let Some(before) = std::mem::replace(&mut known.time, time) {
            self.times.remove(&(before, number));
        }
        self.times.extend(time.map(|time| (time, number)));
    }

    /// Queues a job, unless it waits already. Returns whether the job has been queued now.
    pub(super) fn wake(&mut self, number: u64) -> bool {
        let Some(known) = self.jobs.get_mut(&number).filter(|known| !known.is_ended) else {
            return false;
        };
        match known.phase {
            Phase::Idle => {
                known.phase = Phase::Waiting;
                let line = self.lanes.entry(known.lane).or_default();
                line.waiting.push_back((Instant::now(), number));
                self.set_time(number, None);
                true
            }
            Phase::Waiting => false,
            Phase::Running { .. } => {
                known.phase = Phase::Running { again: true };
                false
            }
        }
    }

    /// Queues the next job whose time has come. Returns whether there was one.
    pub(super) fn queue_due(&mut self, now: Instant) -> bool {
        let Some((_, number)) = self.times.first().filter(|(time, _)| *time <= now).copied() else {
            return false;
        };
        self.wake(number);
        // A job that does not become queued has no time.
        self.set_time(number, None);
        true
    }

    /// Returns the next time of a job.
    pub(super) fn next_time(&self) -> Option<Instant> {
        self.times.first().map(|(time, _)| *time)
    }

    /// The lanes with a job that waits and could run.
    fn open_lanes(&mut self) -> impl Iterator<Item = &mut Line> {
        self.lanes.values_mut().filter(|line| line.running < MOST && !line.waiting.is_empty())
    }

    /// Returns since when a job has waited that could run.
    pub(super) fn waits_since(&mut self) -> Option<Instant> {
        self.open_lanes().filter_map(|line| line.waiting.front()).map(|(since, _)| *since).min()
    }

    /// Takes the next job, which then runs: of the lanes with the fewest running jobs, the job that waits longest. So a lane
    /// that hangs gets no further thread before the others.
    pub(super) fn take(&mut self) -> Option<Taken> {
        let first = |line: &&mut Line| (line.running, line.waiting.front().copied());
        let line = self.open_lanes().min_by_key(first)?;
        let (_, number) = line.waiting.pop_front()?;
        line.running += 1;
        let known = self.jobs.get_mut(&number)?;
        known.phase = Phase::Running { again: false };
        Some(Taken { number, work: Arc::clone(&known.work) })
    }

    /// Records that a job of a lane does not run any more.
    fn leave(&mut self, lane: Lane) {
        if let Some(line) = self.lanes.get_mut(&lane) {
            line.running = line.running.saturating_sub(1);
            if line.running == 0 && line.waiting.is_empty() {
                self.lanes.remove(&lane);
            }
        }
    }

    /// Records that a job has run, and when it runs again. Returns whether it has been queued.
    pub(super) fn ran(&mut self, number: u64, next: Option<Instant>) -> bool {
        let Some(known) = self.jobs.get_mut(&number) else { return false };
        let again = known.phase == Phase::Running { again: true };
        known.phase = Phase::Idle;
        let (lane, is_ended) = (known.lane, known.is_ended);
        self.leave(lane);
        if is_ended {
            return false;
        }
        if !again {
            self.set_time(number, next);
        }
        again && self.wake(number)
    }

    pub(super) fn is_running(&self, number: u64) -> bool {
        let known = self.jobs.get(&number);
        known.is_some_and(|known| matches!(known.phase, Phase::Running { .. }))
    }

    pub(super) fn has_ended(&self, number: u64) -> bool {
        self.jobs.get(&number).is_none_or(|known| known.is_ended)
    }

    /// Ends a job: it never starts to run again.
    pub(super) fn end(&mut self, number: u64) {
        self.set_time(number, None);
        let Some(known) = self.jobs.get_mut(&number) else { return };
        known.is_ended = true;
        if known.phase == Phase::Waiting
            && let Some(line) = self.lanes.get_mut(&known.lane)
        {
            known.phase = Phase::Idle;
            line.waiting.retain(|(_, waiting)| *waiting != number);
        }
    }

    /// Removes a job. Its work is dropped by the caller, without the lock.
    pub(super) fn remove(&mut self, number: u64) -> Option<Arc<dyn Work>> {
        let known = self.jobs.remove(&number)?;
        if matches!(known.phase, Phase::Running { .. }) {
            self.leave(known.lane);
        }
        Some(known.work)
    }
}
