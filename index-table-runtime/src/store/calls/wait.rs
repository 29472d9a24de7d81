//! Waiting of tasks for commits and for applied messages, without a thread for each.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::Arc,
    task::Poll,
    time::{Duration, Instant},
};

use super::{Call, Calls, call::Target};
use crate::{
    model::error::Result,
    store::{Inner, Store},
    write::queue::Signals,
};

/// The interval for checking whether another process or client has committed. A check is a read transaction in the pool.
const POLL: Duration = Duration::from_millis(100);

/// The time after the timeout for which the last check may take.
const LATE: Duration = Duration::from_secs(1);

/// Waits until `done` returns true, which depends on committed rows or applied messages. Returns false after the timeout. `done` runs in
/// a pool, at once, after each signal and after each interval. With `hurries`, workers apply messages without waiting for more of them.
pub(crate) fn wait_for_signals(
    store: &Store,
    signals: fn(&Inner) -> &Signals,
    hurries: bool,
    timeout: Duration,
    done: impl Fn() -> Result<bool> + Send + Sync + 'static,
) -> Call<bool> {
    let done = Arc::new(done);
    Call::new(store, Target::Nowhere, move |store, orders| async move {
        let begun = Instant::now();
        let end = begun.checked_add(timeout);
        let (calls, signals) = (&store.inner.calls, signals(&store.inner));
        let waiter = signals.waiter();
        loop {
            let events = signals.events();
            let check = Arc::clone(&done);
            let check = calls.run(&calls.checks, &store, Arc::clone(&orders), move || check())?;
            match before(calls, end.and_then(|end| end.checked_add(LATE)), check).await? {
                None => return Ok(false),
                Some(is_done) => {
                    if is_done? {
                        return Ok(true);
                    }
                }
            }
            let left = timeout.saturating_sub(begun.elapsed());
            if left.is_zero() {
                return Ok(false);
            }
            if hurries {
                signals.hurry();
            }
            let signal = poll_fn(|context| {
                if waiter.is_signalled(events, context.waker()) {
                    return Poll::Ready(());
                }
                Poll::Pending
            });
            before(calls, Instant::now().checked_add(left.min(POLL)), signal).await?;
        }
    })
}

/// Returns the result of a future; `None` if it is not ready at this time.
async fn before<T>(
    calls: &Calls,
    end: Option<Instant>,
    future: impl Future<Output = T>,
) -> Result<Option<T>> {
    let Some(end) = end else { return Ok(Some(future.await)) };
    let (mut future, mut sleep) = (pin!(future), pin!(calls.timers.sleep(end)?));
    let polled = poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(result) => Poll::Ready(Some(result)),
        Poll::Pending => sleep.as_mut().poll(context).map(|()| None),
    });
    Ok(polled.await)
}
