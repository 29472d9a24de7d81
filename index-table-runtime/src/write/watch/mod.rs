//! Committed changes for subscribers.
//!
//! A write transaction records its changes ([`Watched`]) for the subscribers that exist at its first write to the
//! table. After its commit, and before the next commit of the process, the changes are added to the buffer of each
//! [`Subscriber`]. A subscriber that has missed a change is marked as lagged.

mod subscriber;
mod watched;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    task::Waker,
};

pub use subscriber::Lagged;
pub(crate) use subscriber::{Buffer, Filter, Limits, Stored, Subscriber, WatchedChange, Watchers};
pub(crate) use watched::Watched;

/// Wakes tasks. The panic of a waker does not affect the writer.
pub(crate) fn wake(wakers: Vec<Waker>) {
    for waker in wakers {
        let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
    }
}
