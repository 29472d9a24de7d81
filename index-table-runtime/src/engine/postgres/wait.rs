//! Waiting for a future in a thread without a runtime, or in a thread of any runtime.

use std::{
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
};

/// A thread that waits for a future.
struct Waiting {
    thread: Thread,
    is_woken: AtomicBool,
}

impl Wake for Waiting {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

/// Polls the future once, which sends its request.
pub(super) fn poll_once<F: Future + ?Sized>(future: Pin<&mut F>) -> Option<F::Output> {
    match future.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

/// Polls the future once, and drops it. A request is sent, and its result is discarded.
pub(super) fn start(future: impl Future) {
    let _ = pin!(future).poll(&mut Context::from_waker(Waker::noop()));
}

/// Blocks the thread until the future is ready. The I/O of the future must be done by another thread. Unlike
/// `block_on` of a runtime, it works inside of asynchronous code, where it blocks the thread like any other call.
pub(super) fn wait<F: Future>(future: F) -> F::Output {
    let waiting = Arc::new(Waiting { thread: thread::current(), is_woken: AtomicBool::new(false) });
    let waker = Waker::from(Arc::clone(&waiting));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        while !waiting.is_woken.swap(false, Ordering::Acquire) {
            thread::park();
        }
    }
}
