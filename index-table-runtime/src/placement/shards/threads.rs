//! Threads for work on several shards at the same time.

use crate::locks::{Mutex, OfProcess};
use std::{
    num::NonZero,
    panic::resume_unwind,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    thread,
};

/// The name of the threads.
const NAME: &str = "shard counts";

/// A limit on the threads that all callers use in addition to their own threads.
pub(super) struct Threads {
    most: usize,
    running: AtomicUsize,
}

/// One of the threads, until it is dropped.
struct Place<'a>(&'a Threads);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Relaxed);
    }
}

impl Threads {
    const fn new(most: usize) -> Self {
        Self { most, running: AtomicUsize::new(0) }
    }

    /// Returns the limit of the process: the number of cores, minus one for the thread of the caller.
    pub(super) fn of_process() -> &'static Self {
        // Reading the number of cores takes longer than a short count, so it is read once.
        static THREADS: OfProcess<Threads> = OfProcess::new(|| {
            Threads::new(thread::available_parallelism().map_or(1, NonZero::get) - 1)
        });
        &THREADS
    }

    pub(super) const fn are_none(&self) -> bool {
        self.most == 0
    }

    fn place(&self) -> Option<Place<'_>> {
        let more = |running| (running < self.most).then_some(running + 1);
        self.running.fetch_update(Relaxed, Relaxed, more).ok().map(|_| Place(self))
    }

    /// Calls `work` for each item, in the calling thread and in all threads that are free. Returns the results in the
    /// order of the items.
    pub(super) fn each<T: Send, R: Send>(
        &self,
        items: Vec<T>,
        work: impl Fn(T) -> R + Sync,
    ) -> Vec<R> {
        let others = items.len().saturating_sub(1);
        let queue = Mutex::<_>::new(items.into_iter().enumerate());
        let run = || {
            let mut results = Vec::new();
            loop {
                let next = queue.lock().next();
                let Some((position, item)) = next else { return results };
                results.push((position, work(item)));
            }
        };
        let mut results = thread::scope(|scope| {
            let start = |_| {
                let (place, run) = (self.place()?, &run);
                let run = move || {
                    let _place = place;
                    run()
                };
                // If the thread can't be started, the other threads do its work.
                thread::Builder::new().name(NAME.to_owned()).spawn_scoped(scope, run).ok()
            };
            let started: Vec<_> = (0..others).map_while(start).collect();
            let mut results = run();
            for thread in started {
                results.extend(thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
            }
            results
        });
        results.sort_unstable_by_key(|(position, _)| *position);
        results.into_iter().map(|(_, result)| result).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::{Relaxed, Threads};

    #[test]
    fn items_are_worked_on_at_the_same_time() {
        let (threads, all) = (Threads::new(3), Barrier::new(4));
        // Each item waits for all others.
        let results = threads.each((0..4).collect(), |item| {
            all.wait();
            item * 2
        });
        assert_eq!(results, [0, 2, 4, 6]);
        assert_eq!(threads.running.load(Relaxed), 0);
    }

    #[test]
    fn results_are_in_the_order_of_the_items() {
        for most in [0, 1, 2, 100] {
            let results = Threads::new(most).each((0..50).collect(), |item| item + 1);
            assert_eq!(results, (1..51).collect::<Vec<_>>());
        }
        assert!(Threads::new(2).each(Vec::<u8>::new(), |item| item).is_empty());
    }

    #[test]
    fn all_callers_together_have_a_limited_number_of_threads() {
        let threads = Threads::new(2);
        let (first, second) = (threads.place(), threads.place());
        assert!(first.is_some() && second.is_some() && threads.place().is_none());
        // The caller does the work alone.
        assert_eq!(threads.each(vec![1, 2, 3], |item| item), [1, 2, 3]);
        drop(first);
        assert!(threads.place().is_some());
    }

    #[test]
    #[should_panic(expected = "item 3")]
    fn a_panic_is_passed_on() {
        Threads::new(2).each((0..10).collect(), |item| assert!(item != 3, "item {item}"));
    }
}
