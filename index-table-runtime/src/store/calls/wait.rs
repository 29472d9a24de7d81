//! Waiting of tasks for commits and for applied messages, without a thread for each.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::Arc,
    task::Poll,
    time::{Duration, Instant},
};

use super::{Call, call::Kind};
use crate::{
    model::error::Result,
    store::{Inner, Store},
    write::queue::Signals,
};

/// The interval for checking whether another process or client has committed. A check is a read transaction in the pool.
const POLL: Duration = Duration::from_millis(100);

/// Waits until `done` returns true, which depends on committed rows or applied messages. Returns false after the timeout. `done` runs in
/// the pool, at once, after each signal and after each interval. With `hurries`, workers apply messages without waiting for more of them.
pub(crate) fn wait_for_signals(
    store: &Store,
    signals: fn(&Inner) -> &Signals,
    hurries: bool,
    timeout: Duration,
    done: impl Fn() -> Result<bool> + Send + Sync + 'static,
) -> Call<bool> {
    let done = Arc::new(done);
    Call::new(store, Kind::Read, move |store, orders| async move {
        let begun = Instant::now();
        let (calls, signals) = (&store.inner.calls, signals(&store.inner));
        let waiter = signals.waiter();
        loop {
            let events = signals.events();
            let check = Arc::clone(&done);
            if calls.read(&store, Arc::clone(&orders), move || check())?.await? {
                return Ok(true);
            }
            let left = timeout.saturating_sub(begun.elapsed());
            if left.is_zero() {
                return Ok(false);
            }
            if hurries {
                signals.hurry();
            }
            let mut sleep = pin!(calls.timers.sleep(Instant::now() + left.min(POLL))?);
            poll_fn(|context| {
                if waiter.is_signalled(events, context.waker()) {
                    return Poll::Ready(());
                }
                sleep.as_mut().poll(context)
            })
            .await;
        }
    })
}
