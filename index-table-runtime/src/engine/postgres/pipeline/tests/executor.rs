//! An executor of one thread, without a library.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
    time::{Duration, Instant},
};

use crate::locks::Mutex;

/// The tasks that can make progress, and the thread that polls them.
struct Queue {
    woken: Mutex<Vec<usize>>,
    thread: Thread,
}

struct Task {
    number: usize,
    queue: Arc<Queue>,
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.queue.woken.lock().push(self.number);
        self.queue.thread.unpark();
    }
}

type Boxed<'f, T> = Pin<Box<dyn Future<Output = T> + Send + 'f>>;

/// Polls futures in this thread.
pub(crate) struct Tasks<'f, T> {
    queue: Arc<Queue>,
    futures: Vec<Option<(Boxed<'f, T>, Waker)>>,
    pub(crate) results: Vec<Option<T>>,
    left: usize,
}

impl<'f, T> Tasks<'f, T> {
    pub(crate) fn new(futures: impl IntoIterator<Item = Boxed<'f, T>>) -> Self {
        let woken = Mutex::default();
        let queue = Arc::new(Queue { woken, thread: thread::current() });
        let waker = |number| Waker::from(Arc::new(Task { number, queue: Arc::clone(&queue) }));
        let futures = futures.into_iter().enumerate();
        let futures: Vec<_> =
            futures.map(|(number, future)| Some((future, waker(number)))).collect();
        let left = futures.len();
        queue.woken.lock().extend(0..left);
        Self { queue, results: (0..left).map(|_| None).collect(), futures, left }
    }

    /// Polls the futures that were woken, each once. Returns the number of unfinished futures.
    pub(crate) fn turn(&mut self) -> usize {
        let woken = std::mem::take(&mut *self.queue.woken.lock());
        for number in woken {
            let Some((future, waker)) = &mut self.futures[number] else { continue };
            if let Poll::Ready(result) = future.as_mut().poll(&mut Context::from_waker(waker)) {
                self.futures[number] = None;
                self.results[number] = Some(result);
                self.left -= 1;
            }
        }
        self.left
    }

    /// Returns the futures that are not finished.
    pub(crate) fn into_futures(self) -> Vec<Boxed<'f, T>> {
        self.futures.into_iter().flatten().map(|(future, _)| future).collect()
    }

    /// Drops a future. Returns false if it was finished.
    pub(crate) fn drop_one(&mut self, number: usize) -> bool {
        let dropped = self.futures[number].take();
        self.left -= usize::from(dropped.is_some());
        dropped.is_some()
    }

    /// Waits until all are finished, and returns their results.
    pub(crate) fn finish(mut self, limit: Duration) -> Vec<T> {
        let until = Instant::now() + limit;
        while self.turn() > 0 {
            let left = until.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "{} futures are not finished", self.left);
            if self.queue.woken.lock().is_empty() {
                thread::park_timeout(left);
            }
        }
        self.results.into_iter().flatten().collect()
    }
}

/// Waits for all futures, and returns their results.
pub(crate) fn finish<'f, T>(
    futures: impl IntoIterator<Item = Boxed<'f, T>>,
    limit: Duration,
) -> Vec<T> {
    Tasks::new(futures).finish(limit)
}
