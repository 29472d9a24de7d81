//! Work on several shards at the same time.

use std::{num::NonZero, panic::resume_unwind, sync::mpsc, thread};

use crate::{locks::Mutex, usage::Progress};

/// The name of the threads.
const NAME: &str = "shards";

/// Calls `work` for each item, in at most one thread for each core, and returns the results in the order of the items.
/// During the work, the calling thread passes the progress of each item to `progress`, with the position of the item.
///
/// The calling thread must not have a write transaction, because the other threads would wait for it.
pub(super) fn each<T: Send, R: Send>(
    items: Vec<T>,
    work: impl Fn(T, &dyn Fn(Progress)) -> R + Sync,
    mut progress: impl FnMut(usize, Progress),
) -> Vec<R> {
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    let threads = cores.min(items.len());
    if threads < 2 {
        let items = items.into_iter().enumerate();
        let progress = std::cell::RefCell::new(progress);
        return items
            .map(|(position, item)| {
                work(item, &|at| {
                    if let Ok(mut progress) = progress.try_borrow_mut() {
                        progress(position, at);
                    }
                })
            })
            .collect();
    }
    let queue = Mutex::<_>::new(items.into_iter().enumerate());
    let results = Mutex::<_>::new(Vec::new());
    let (sender, received) = mpsc::channel();
    let run = |sender: mpsc::Sender<(usize, Progress)>| {
        loop {
            let next = queue.lock().next();
            let Some((position, item)) = next else { return };
            let result = work(item, &|at| {
                let _ = sender.send((position, at));
            });
            results.lock().push((position, result));
        }
    };
    thread::scope(|scope| {
        let spawn = || {
            let (run, sender) = (&run, sender.clone());
            thread::Builder::new().name(NAME.to_owned()).spawn_scoped(scope, move || run(sender))
        };
        let started: Vec<_> = (0..threads).map_while(|_| spawn().ok()).collect();
        if started.is_empty() {
            run(sender);
        } else {
            drop(sender);
        }
        // It ends with the last thread.
        for (position, at) in received {
            progress(position, at);
        }
        for thread in started {
            if let Err(panic) = thread.join() {
                resume_unwind(panic);
            }
        }
    });
    let mut results = results.into_inner();
    results.sort_by_key(|(position, _)| *position);
    results.into_iter().map(|(_, result)| result).collect()
}

/// The sum of the progress of several items.
#[derive(Default)]
pub(super) struct Sum(Vec<Option<Progress>>);

impl Sum {
    /// Records the progress of an item. Returns the sum of the finished units, and the sum of the totals of all started
    /// items.
    pub(super) fn add(&mut self, position: usize, at: Progress) -> (u64, u64) {
        if self.0.len() <= position {
            self.0.resize(position + 1, None);
        }
        if let Some(own) = self.0.get_mut(position) {
            *own = Some(at);
        }
        let all = self.0.iter().flatten();
        all.fold((0, 0), |(done, total), at| (done + at.done, total + at.total.unwrap_or(at.done)))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::{Sum, each};
    use crate::usage::Progress;

    #[test]
    fn results_are_in_the_order_of_the_items() {
        let mut sum = (Sum::default(), (0, 0));
        let work = |item: u64, progress: &dyn Fn(Progress)| {
            progress(Progress::new("items", item, Some(10), Instant::now()));
            item * 2
        };
        let results = each((0..10).collect(), work, |position, at| {
            sum.1 = sum.0.add(position, at);
        });
        assert_eq!(results, (0..10).map(|item| item * 2).collect::<Vec<_>>());
        assert_eq!(sum.1, (45, 100));
        assert!(each(Vec::new(), work, |_, _| ()).is_empty());
    }

    #[test]
    #[should_panic(expected = "item 3")]
    fn a_panic_is_passed_on() {
        let work = |item: u64, _: &dyn Fn(Progress)| assert!(item != 3, "item {item}");
        each((0..10).collect(), work, |_, _| ());
    }
}
