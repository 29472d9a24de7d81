//! Look-ups of single rows for asynchronous callers, of which many are in flight on one connection.
//!
//! `docs/internals/postgres.md` has the design. A look-up is a statement of its own, so it needs no connection of the pool. Its
//! future only waits for the result: the thread of a [line](super::line) sends it and receives the response. So any executor can
//! poll it, and no executor's thread does I/O.

use std::{
    mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    thread,
    time::Duration,
};

use super::{
    Engine, Tables, line,
    look_ups::{FoundBytes, LineBounds, LookUp, LookUps},
    pool::Pool,
    select,
};
use crate::{engine::Later, model::error::Error};

#[cfg(test)]
mod tests;

/// The name of the threads.
const NAME: &str = "index-table-look-ups";

/// 1,024 look-ups are the work of some milliseconds. A line for a few look-ups would add nothing.
const BOUNDS: LineBounds =
    LineBounds { in_flight: 1024, enough: 32, idle: Duration::from_secs(30) };

/// The look-ups of a store, which end with it.
pub(super) struct Pipeline(Arc<LookUps>);

impl Pipeline {
    pub(super) fn new(pool: &Arc<Pool>) -> Self {
        Self::with(pool, BOUNDS)
    }

    fn with(pool: &Arc<Pool>, bounds: LineBounds) -> Self {
        Self(Arc::new(LookUps::new(pool, bounds)))
    }

    /// Returns the first column of the row that a statement returns for a key.
    fn get(&self, sql: String, key: &[u8]) -> Later<Option<Vec<u8>>> {
        let step = LookUpStep::New(sql.into(), key.into());
        Box::pin(LaterLookUp { look_ups: Arc::clone(&self.0), step })
    }
}

impl Drop for Pipeline {
    fn drop(&mut self) {
        if !self.0.is_inherited() {
            self.0.close();
        }
    }
}

/// The future of a look-up.
struct LaterLookUp {
    look_ups: Arc<LookUps>,
    step: LookUpStep,
}

enum LookUpStep {
    /// The statement and the key. Nothing happens before the first poll.
    New(Arc<str>, Arc<[u8]>),
    /// A look-up with this number.
    Added(u64, Arc<LookUp>),
    Ended,
}

impl Future for LaterLookUp {
    type Output = FoundBytes;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<FoundBytes> {
        let Self { look_ups, step } = &mut *self;
        if look_ups.is_inherited() {
            *step = LookUpStep::Ended;
            return Poll::Ready(Err(Error::Forked { path: look_ups.server.as_str().into() }));
        }
        match mem::replace(step, LookUpStep::Ended) {
            LookUpStep::New(sql, key) => {
                let look_up = Arc::new(LookUp::new(sql, key, context.waker()));
                *step = LookUpStep::Added(add(look_ups, &look_up), look_up);
                Poll::Pending
            }
            LookUpStep::Added(number, look_up) => {
                let polled = look_up.poll(context.waker());
                if polled.is_pending() {
                    *step = LookUpStep::Added(number, look_up);
                }
                polled
            }
            LookUpStep::Ended => {
                Poll::Ready(Err(Error::internal("a look-up that has ended before")))
            }
        }
    }
}

impl Drop for LaterLookUp {
    fn drop(&mut self) {
        if let LookUpStep::Added(number, look_up) = &self.step
            && !self.look_ups.is_inherited()
        {
            look_up.leave();
            self.look_ups.remove(*number);
        }
    }
}

/// Adds a look-up, and starts the thread of a further line if one is needed. Returns the number of the look-up.
fn add(look_ups: &Arc<LookUps>, look_up: &Arc<LookUp>) -> u64 {
    let (number, start) = look_ups.add(look_up);
    if let Some((line, pool)) = start {
        let of_thread = Arc::clone(look_ups);
        let thread = thread::Builder::new().name(NAME.to_owned());
        if let Err(source) = thread.spawn(move || line::run(&of_thread, &pool, line)) {
            look_ups.refuse(line, &Error::Thread { name: NAME, source });
        }
    }
    number
}

impl Engine {
    /// Looks up a row without a transaction. The snapshot is taken between the first poll of the future and its result, so it has all
    /// commits that were acknowledged before.
    ///
    /// The errors are those of a look-up in a read transaction.
    pub(crate) fn get_later(&self, tables: &Tables, primary_key: &[u8]) -> Later<Option<Vec<u8>>> {
        self.pipeline.get(select::fact(&tables.facts), primary_key)
    }
}
