use std::{
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
    thread,
    time::{Duration, Instant},
};

use super::*;

/// Counts its runs.
struct Counting {
    runs: AtomicUsize,
    panics: AtomicUsize,
    again: Option<Duration>,
    body: Box<dyn Fn() + Send + Sync>,
}

impl Work for Counting {
    fn run(&self) -> Option<Duration> {
        (self.body)();
        self.runs.fetch_add(1, SeqCst);
        self.again
    }

    fn panicked(&self) {
        self.panics.fetch_add(1, SeqCst);
    }
}

/// Threads of a test.
struct Own(&'static Background);

impl Own {
    fn new() -> Self {
        Self(Box::leak(Box::new(Background::new())))
    }

    fn start(
        &self,
        lane: Lane,
        after: Option<Duration>,
        again: Option<Duration>,
        body: impl Fn() + Send + Sync + 'static,
    ) -> (Job, Arc<Counting>) {
        let (runs, panics) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let work = Arc::new(Counting { runs, panics, again, body: Box::new(body) });
        let own = Arc::clone(&work) as Arc<dyn Work>;
        (self.0.start(own, lane, after).unwrap(), work)
    }

    /// Returns the number of threads of both kinds.
    fn threads(&self) -> usize {
        let state = self.0.lock();
        state.threads + usize::from(state.has_clock)
    }
}

fn wait_until(condition: impl Fn() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < Duration::from_mins(1));
        thread::sleep(Duration::from_millis(1));
    }
}

/// A gate at which jobs hang until it is opened.
#[derive(Default)]
struct Gate {
    is_open: Mutex<bool>,
    opened: Condvar,
    hanging: AtomicUsize,
}

impl Gate {
    fn hang(&self) {
        self.hanging.fetch_add(1, SeqCst);
        drop(self.opened.wait_while(self.is_open.lock(), |is_open| !*is_open));
    }

    fn open(&self) {
        *self.is_open.lock() = true;
        self.opened.notify_all();
    }
}

#[test]
fn many_jobs_have_two_threads() {
    let own = Own::new();
    assert_eq!(own.threads(), 0);
    let jobs: Vec<_> = (0..1000).map(|_| own.start(Lane::Disk(1), None, None, || {})).collect();
    assert_eq!(own.threads(), 1, "there is no work");
    for (job, work) in jobs.iter().step_by(100) {
        job.wake();
        wait_until(|| work.runs.load(SeqCst) == 1);
    }
    // A slow machine may have started another thread, which ends.
    wait_until(|| own.threads() <= 2);
    for (job, work) in &jobs {
        job.stop();
        assert!(work.runs.load(SeqCst) <= 1);
    }
    // Nothing waits for the end of the threads.
    wait_until(|| own.threads() == 0);
    let (job, work) = own.start(Lane::Disk(1), Some(Duration::ZERO), None, || {});
    wait_until(|| work.runs.load(SeqCst) == 1);
    job.stop();
}

#[test]
fn a_disk_that_hangs_does_not_delay_other_disks() {
    let (own, gate) = (Own::new(), Arc::new(Gate::default()));
    let hang = || {
        let gate = Arc::clone(&gate);
        move || gate.hang()
    };
    // More than the number of threads of a disk.
    let hanging: Vec<_> =
        (0..2 * MOST).map(|_| own.start(Lane::Disk(1), None, None, hang())).collect();
    for (job, _) in &hanging {
        job.wake();
    }
    wait_until(|| gate.hanging.load(SeqCst) == MOST);
    let (job, work) = own.start(Lane::Disk(2), None, None, || {});
    for count in 1..10 {
        job.wake();
        wait_until(|| work.runs.load(SeqCst) == count);
    }
    assert_eq!(gate.hanging.load(SeqCst), MOST);
    // A slow machine may have started another thread, which ends.
    wait_until(|| own.threads() <= MOST + 2);
    job.stop();
    gate.open();
    for (job, work) in &hanging {
        wait_until(|| work.runs.load(SeqCst) == 1);
        job.stop();
    }
    wait_until(|| own.threads() == 0);
}

#[test]
fn a_disk_that_begins_to_hang_gets_threads_after_other_disks() {
    let (own, gate) = (Own::new(), Arc::new(Gate::default()));
    let start = |lane, body: Box<dyn Fn() + Send + Sync>| own.start(lane, None, None, body);
    let hanging: Vec<_> = (0..MOST)
        .map(|_| {
            let gate = Arc::clone(&gate);
            start(Lane::Disk(1), Box::new(move || gate.hang()))
        })
        .collect();
    let (known, most) = (Arc::clone(&gate), Arc::new(AtomicUsize::new(0)));
    let hung = Arc::clone(&most);
    let count = move || hung.store(known.hanging.load(SeqCst), SeqCst);
    let (job, work) = start(Lane::Disk(2), Box::new(count));
    for (job, _) in &hanging {
        job.wake();
    }
    job.wake();
    wait_until(|| work.runs.load(SeqCst) == 1);
    // The first of them was queued before.
    assert!(most.load(SeqCst) <= 1);
    gate.open();
    job.stop();
    for (job, _) in &hanging {
        job.stop();
    }
}

#[test]
fn a_job_that_is_woken_while_it_runs_runs_again() {
    let (own, gate) = (Own::new(), Arc::new(Gate::default()));
    let hang = Arc::clone(&gate);
    let (job, work) = own.start(Lane::Disk(1), None, None, move || hang.hang());
    job.wake();
    wait_until(|| gate.hanging.load(SeqCst) == 1);
    job.wake();
    job.wake();
    gate.open();
    wait_until(|| work.runs.load(SeqCst) == 2);
    job.stop();
    job.wake();
    assert!(job.has_ended());
    assert_eq!(Arc::strong_count(&work), 1);
}

#[test]
fn a_job_runs_by_time() {
    let own = Own::new();
    let soon = Some(Duration::from_millis(1));
    let (job, work) = own.start(Lane::Archives, soon, soon, || {});
    let (late, other) = own.start(Lane::Archives, Some(Duration::MAX), None, || {});
    wait_until(|| work.runs.load(SeqCst) > 10);
    job.stop();
    assert_eq!(Arc::strong_count(&work), 1);
    assert_eq!(other.runs.load(SeqCst), 0);
    late.stop();
}

#[test]
fn stopping_a_job_waits_while_it_runs() {
    let (own, gate) = (Own::new(), Arc::new(Gate::default()));
    let hang = Arc::clone(&gate);
    let (job, work) = own.start(Lane::Disk(1), None, None, move || hang.hang());
    job.wake();
    wait_until(|| gate.hanging.load(SeqCst) == 1);
    thread::scope(|scope| {
        let stopping = scope.spawn(|| {
            job.stop();
            work.runs.load(SeqCst)
        });
        wait_until(|| own.0.lock().queue.has_ended(job.number));
        assert!(!stopping.is_finished());
        gate.open();
        assert_eq!(stopping.join().unwrap(), 1);
    });
    // The job is dropped.
    assert_eq!(Arc::strong_count(&work), 1);
}

#[test]
fn a_panic_ends_its_job_only() {
    let own = Own::new();
    let soon = Some(Duration::from_millis(1));
    let panics = || std::panic::resume_unwind(Box::new("in a test"));
    let (job, work) = own.start(Lane::Disk(1), soon, soon, panics);
    let (other, counted) = own.start(Lane::Disk(1), soon, soon, || {});
    wait_until(|| work.panics.load(SeqCst) == 1 && job.has_ended());
    let runs = counted.runs.load(SeqCst);
    wait_until(|| counted.runs.load(SeqCst) > runs + 10);
    job.wake();
    assert_eq!((work.runs.load(SeqCst), work.panics.load(SeqCst)), (0, 1));
    job.stop();
    other.stop();
}

#[test]
fn a_task_has_a_result() {
    let task = Task::start(Lane::Bases, || 5).unwrap();
    wait_until(|| task.is_done());
    assert_eq!(task.join(), Some(5));
    let gate = Arc::new(Gate::default());
    let hang = Arc::clone(&gate);
    let task = Task::start(Lane::Bases, move || hang.hang()).unwrap();
    assert!(!task.is_done());
    gate.open();
    // It is done by this thread, if it has not begun.
    assert_eq!(task.join(), Some(()));
    let panics = || -> u32 { std::panic::resume_unwind(Box::new("in a test")) };
    let task = Task::start(Lane::Bases, panics).unwrap();
    wait_until(|| task.is_done());
    assert_eq!(task.join(), None);
}
