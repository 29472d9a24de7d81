//! Full queues: back-pressure for threads and for tasks.

use std::{
    future::Future,
    pin::pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    thread,
    time::Duration,
};

use index_table::{Error, GroupWriter, QueueFull, Result, Store, Submitted, WriteTxn};

use crate::{
    ItemRepository, TestResult, block_on, check, hold, insert, item, stores,
    support::{Threads, await_true},
};

const QUEUE: u64 = 4;

fn limited(store: &Store) -> Result<GroupWriter> {
    Ok(store.writer()?.queue(QUEUE as usize).most(2))
}

#[test]
fn a_full_queue_gives_the_closure_back() -> TestResult {
    for (store, _dir) in stores()? {
        let items = ItemRepository::open(&store)?;
        let writer = limited(&store)?;
        let txn = hold(&store)?;
        let (mut accepted, mut rejected) = (Vec::new(), Vec::new());
        for id in 0..20 {
            let items = items.clone();
            let body = move |txn: &mut WriteTxn<'_>| items.insert(txn, &item(id));
            match writer.try_submit(body) {
                Ok(submitted) => accepted.push(submitted),
                Err(full) => {
                    assert!(full.to_string().contains("try again"), "{full}");
                    rejected.push(full);
                }
            }
        }
        // The writer's thread may have taken up to two closures out of the queue.
        assert!((QUEUE..=QUEUE + 2).contains(&(accepted.len() as u64)), "{}", accepted.len());
        drop(txn);
        for submitted in accepted {
            submitted.wait()?;
        }
        for QueueFull(body) in rejected {
            block_on(writer.submit_async(body))?;
        }
        check(&store, &items, 0..20)?;
    }
    Ok(())
}

#[test]
fn threads_wait_for_room() -> TestResult {
    for (store, _dir) in stores()? {
        let items = ItemRepository::open(&store)?;
        let writer = limited(&store)?;
        let (submitted, waiting) = (AtomicU64::new(0), Threads::default());
        let txn = hold(&store)?;
        thread::scope(|scope| {
            let threads: Vec<_> = (0..10)
                .map(|thread| {
                    let (writer, items) = (&writer, &items);
                    let (submitted, waiting) = (&submitted, &waiting);
                    scope.spawn(move || {
                        waiting.enter();
                        let mut results = Vec::new();
                        for id in 0..10 {
                            results.push(insert(writer, items, item(thread * 10 + id)));
                            submitted.fetch_add(1, Ordering::SeqCst);
                        }
                        results.into_iter().try_for_each(Submitted::wait)
                    })
                })
                .collect();
            waiting.await_blocked(10);
            let before = submitted.load(Ordering::SeqCst);
            assert!((QUEUE..=QUEUE + 2).contains(&before), "no thread waits: {before}");
            drop(txn);
            threads
                .into_iter()
                .try_for_each(|thread| thread.join().unwrap_or_else(|_| panic!("a thread")))
        })?;
        check(&store, &items, 0..100)?;
    }
    Ok(())
}

#[derive(Default)]
struct Count(AtomicU64);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn tasks_wait_for_room_and_can_be_dropped() -> TestResult {
    for (store, _dir) in stores()? {
        let items = ItemRepository::open(&store)?;
        let writer = limited(&store)?;
        let submit = |id| {
            let items = items.clone();
            writer.submit_async(move |txn| items.insert(txn, &item(id)))
        };
        let count = Arc::new(Count::default());
        let waker = Waker::from(Arc::clone(&count));
        let mut context = Context::from_waker(&waker);

        let txn = hold(&store)?;
        drop(submit(100)); // never polled, never run
        // These closures fill the queue and the batch of the writer's thread.
        let mut accepted = 0;
        for _ in 0..2 {
            thread::sleep(Duration::from_millis(50));
            while let Ok(submitted) = writer.try_submit({
                let items = items.clone();
                move |txn| items.insert(txn, &item(accepted))
            }) {
                // The result is dropped, but the closure is accepted.
                drop(submitted);
                accepted += 1;
            }
        }
        let mut waits = Box::pin(submit(101));
        let mut given_up = Box::pin(submit(102));
        for _ in 0..3 {
            assert!(waits.as_mut().poll(&mut context).is_pending());
            assert!(given_up.as_mut().poll(&mut context).is_pending());
        }
        drop(given_up);
        drop(txn);
        // The waiting task is woken when there is room.
        await_true(|| count.0.load(Ordering::SeqCst) > 0);
        block_on(waits)?;
        writer.close()?;
        check(&store, &items, (0..accepted).chain([101]))?;
    }
    Ok(())
}

/// A future that waits for room keeps its position, polled again or not.
#[test]
fn closures_that_wait_for_room_are_not_overtaken() -> TestResult {
    for (store, _dir) in stores()? {
        let writer = limited(&store)?;
        let order = Arc::new(Mutex::new(Vec::new()));
        let note = |number: u32| {
            let order = Arc::clone(&order);
            move |_: &mut WriteTxn<'_>| {
                order.lock().unwrap_or_else(PoisonError::into_inner).push(number);
                Ok::<_, Error>(())
            }
        };
        let txn = hold(&store)?;
        for _ in 0..2 {
            thread::sleep(Duration::from_millis(50));
            while writer.try_submit(note(0)).is_ok() {}
        }
        let mut first = Box::pin(writer.submit_async(note(1)));
        assert!(first.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        let waiting = Threads::default();
        thread::scope(|scope| {
            let second = scope.spawn(|| {
                waiting.enter();
                writer.submit(note(2)).wait()
            });
            waiting.await_blocked(1);
            let mut given_up = Box::pin(writer.submit_async(note(3)));
            let mut last = Box::pin(writer.submit_async(note(4)));
            for waits in [&mut given_up, &mut last] {
                assert!(waits.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            }
            drop((given_up, txn));
            second.join().unwrap_or_else(|_| panic!("waiting"))?;
            writer.submit(note(5)).wait()?;
            block_on(last)
        })?;
        block_on(first)?;
        let order = order.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(order.ends_with(&[0, 1, 2, 4, 5]), "{order:?}");
    }
    Ok(())
}

/// Many tasks in one thread, each with several closures, through a narrow queue.
#[test]
fn tasks_make_progress_together() -> TestResult {
    for (store, _dir) in stores()? {
        let items = ItemRepository::open(&store)?;
        let writer = limited(&store)?;
        let task = async |task: u64| {
            for id in 0..5 {
                let items = items.clone();
                writer.submit_async(move |txn| items.insert(txn, &item(task * 5 + id))).await?;
            }
            Ok::<_, Error>(())
        };
        let mut tasks: Vec<_> = (0..40).map(|id| Some(Box::pin(task(id)))).collect();
        block_on(std::future::poll_fn(|context| {
            for slot in &mut tasks {
                if let Some(task) = slot
                    && let Poll::Ready(outcome) = task.as_mut().poll(context)
                {
                    *slot = None;
                    if outcome.is_err() {
                        return Poll::Ready(outcome);
                    }
                }
            }
            if tasks.iter().all(Option::is_none) { Poll::Ready(Ok(())) } else { Poll::Pending }
        }))?;
        check(&store, &items, 0..200)?;
    }
    Ok(())
}

#[test]
fn a_result_wakes_the_task_that_polled_last() -> TestResult {
    let (store, _dir) = stores()?.into_iter().next().ok_or("no store")?;
    let items = ItemRepository::open(&store)?;
    let writer = store.writer()?;
    let txn = hold(&store)?;
    let mut submitted = pin!(insert(&writer, &items, item(1)));
    let [first, second] = [(); 2].map(|()| Arc::new(Count::default()));
    for count in [&first, &second] {
        let waker = Waker::from(Arc::clone(count));
        assert!(submitted.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    }
    drop(txn);
    await_true(|| second.0.load(Ordering::SeqCst) == 1);
    assert_eq!(first.0.load(Ordering::SeqCst), 0);
    block_on(submitted)?;
    Ok(())
}

fn sent<T: Send + 'static>() {}

#[test]
fn futures_can_be_sent() {
    fn future<F: Future + Send + 'static>(_: &F) {}
    sent::<index_table::GroupWriter>();
    sent::<index_table::Submitted<String, Error>>();
    if let Ok(writer) = index_table::Store::in_memory().writer() {
        future(&writer.submit_async(|_| Ok::<_, Error>(())));
    }
}
