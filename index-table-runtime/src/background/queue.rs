//! The jobs of this process: which of them wait, run, or have a time.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Instant,
};

use super::{Lane, MOST, Work};

/// All jobs.
#[derive(Default)]
pub(super) struct Queue {
    jobs: BTreeMap<u64, Known>,
    /// The jobs that wait for a thread, and since when.
    waiting: VecDeque<(Instant, u64)>,
    times: BTreeSet<(Instant, u64)>,
    /// The number of jobs of each lane that run.
    running: BTreeMap<Lane, usize>,
    last: u64,
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
        Self {
            jobs: BTreeMap::new(),
            waiting: VecDeque::new(),
            times: BTreeSet::new(),
            running: BTreeMap::new(),
            last: 0,
        }
    }

    /// Whether there are no jobs.
    pub(super) fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// The number of jobs that wait for a thread.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Adds a job, and returns its number.
    pub(super) fn add(&mut self, work: Arc<dyn Work>, lane: Lane) -> u64 {
        self.last += 1;
        let known = Known { work, lane, phase: Phase::Idle, time: None, is_ended: false };
        self.jobs.insert(self.last, known);
        self.last
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
                self.waiting.push_back((Instant::now(), number));
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

    /// Returns since when a job has waited that could run.
    pub(super) fn waits_since(&self) -> Option<Instant> {
        self.first().and_then(|at| self.waiting.get(at)).map(|(since, _)| *since)
    }

    /// The position of the first job whose lane is not full.
    fn first(&self) -> Option<usize> {
        self.waiting.iter().position(|(_, number)| {
            let lane = self.jobs.get(number).map(|known| known.lane);
            lane.is_some_and(|lane| self.running.get(&lane).is_none_or(|count| *count < MOST))
        })
    }

    /// Takes the next job, which then runs.
    pub(super) fn take(&mut self) -> Option<Taken> {
        let (_, number) = self.waiting.remove(self.first()?)?;
        let known = self.jobs.get_mut(&number)?;
        known.phase = Phase::Running { again: false };
        *self.running.entry(known.lane).or_default() += 1;
        Some(Taken { number, work: Arc::clone(&known.work) })
    }

    /// Records that a job has run, and when it runs again. Returns whether it has been queued.
    pub(super) fn ran(&mut self, number: u64, next: Option<Instant>) -> bool {
        let Some(known) = self.jobs.get_mut(&number) else { return false };
        let again = known.phase == Phase::Running { again: true };
        known.phase = Phase::Idle;
        if let Some(count) = self.running.get_mut(&known.lane) {
            *count -= 1;
            if *count == 0 {
                self.running.remove(&known.lane);
            }
        }
        if known.is_ended {
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
        self.waiting.retain(|(_, waiting)| *waiting != number);
        if let Some(known) = self.jobs.get_mut(&number) {
            known.is_ended = true;
            if known.phase == Phase::Waiting {
                known.phase = Phase::Idle;
            }
        }
    }

    /// Removes a job. Its work is dropped by the caller, without the lock.
    pub(super) fn remove(&mut self, number: u64) -> Option<Arc<dyn Work>> {
        let known = self.jobs.remove(&number)?;
        if matches!(known.phase, Phase::Running { .. })
            && let Some(count) = self.running.get_mut(&known.lane)
        {
            *count -= 1;
        }
        Some(known.work)
    }
}
