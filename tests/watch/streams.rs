//! A watcher as a stream.

use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    thread,
};

use futures_core::Stream;
use index_table::{Event, Watcher};

use crate::{Person, TestResult, on_each, person, stores, summary};

/// Does the same as `StreamExt::next`.
async fn next<S: Stream + Unpin>(stream: &mut S) -> Option<S::Item> {
    poll_fn(|context| Pin::new(&mut *stream).poll_next(context)).await
}

async fn ids(mut watcher: Watcher<Person>) -> Vec<u32> {
    let mut ids = Vec::new();
    while let Some(event) = next(&mut watcher).await {
        ids.extend(summary(&event).2);
    }
    ids
}

struct Unpark(thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

#[test]
fn events_are_received_by_a_minimal_executor() -> TestResult {
    on_each(|store, people| {
        let watcher = people.watch(&store).start()?;
        let task = thread::spawn(move || block_on(ids(watcher)));
        for id in 0..200 {
            store.transaction(|txn| people.insert(txn, &person(id)))?;
        }
        drop(store);
        assert_eq!(task.join().map_err(|_| "it panicked")?, (0..200).collect::<Vec<_>>());
        Ok(())
    })
}

#[test]
fn events_are_received_by_tokio() -> TestResult {
    on_each(|store, people| {
        let runtime = tokio::runtime::Builder::new_current_thread().build()?;
        let watcher = people.watch(&store).start()?;
        let writing = thread::spawn(move || {
            (0..200).try_for_each(|id| store.transaction(|txn| people.insert(txn, &person(id))))
        });
        let received = runtime.block_on(async { tokio::spawn(ids(watcher)).await })?;
        writing.join().map_err(|_| "it panicked")??;
        assert_eq!(received, (0..200).collect::<Vec<_>>());
        Ok(())
    })
}

/// A waker that runs a closure and counts its calls.
struct Rude {
    calls: AtomicU32,
    body: Box<dyn Fn() + Send + Sync>,
}

impl Wake for Rude {
    fn wake(self: Arc<Self>) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        (self.body)();
    }
}

#[test]
fn a_waker_may_panic_and_may_write() -> TestResult {
    for (store, _dir) in stores()? {
        let people = crate::PersonRepository::open(&store)?;
        let mut watchers = [people.watch(&store).start()?, people.watch(&store).start()?];
        let weak = (store.clone(), people.clone());
        let writing = move || {
            let (store, people) = &weak;
            // The commit has released the lock for writers, so a waker may write.
            store.transaction(|txn| people.put(txn, &person(100))).expect("a commit");
        };
        let bodies: [Box<dyn Fn() + Send + Sync>; 2] =
            [Box::new(|| panic!("on purpose")), Box::new(writing)];
        let wakers = bodies.map(|body| Arc::new(Rude { calls: AtomicU32::new(0), body }));
        for (watcher, waker) in watchers.iter_mut().zip(&wakers) {
            let waker = Waker::from(Arc::clone(waker));
            let polled = watcher.poll_recv(&mut Context::from_waker(&waker));
            assert!(polled.is_pending());
        }
        store.transaction(|txn| people.insert(txn, &person(1)))?;
        assert!(wakers.iter().all(|waker| waker.calls.load(Ordering::Relaxed) == 1));
        for watcher in &watchers {
            let rows = [watcher.try_recv(), watcher.try_recv()].map(|event| match event {
                Ok(Event::Change(change)) => change.after().and_then(|row| row.key().ok()),
                _ => None,
            });
            assert_eq!(rows, [Some(1), Some(100)]);
        }
    }
    Ok(())
}
