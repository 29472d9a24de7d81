//! The I/O of a connection, by the thread that waits for a response.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio_postgres::tls::MakeTlsConnect;

use super::{
    socket::{Reactor, Stream},
    tls::Tls,
};
use crate::locks::Origin;

/// The client library's half of a connection that does the I/O.
type Half = tokio_postgres::Connection<Stream, <Tls as MakeTlsConnect<Stream>>::Stream>;

/// Sends the requests of a connection, and receives the responses. One thread at a time does this, for itself and for
/// all other threads that use the connection.
pub(super) struct Driver {
    /// `None` after its end.
    half: Option<Half>,
    reactor: Reactor,
    /// The process that has opened the connection. A forked process must not use it.
    origin: Origin,
}

impl Driver {
    pub(super) fn new(half: Half, reactor: Reactor) -> Self {
        Self { half: Some(half), reactor, origin: Origin::here() }
    }

    /// Ends the use of an inherited connection, without a message to the server: it would end the session of the parent.
    fn leave_inherited(&mut self) {
        if self.origin.is_inherited() {
            self.half = None;
        }
    }

    /// Sends and receives as much as possible without blocking.
    pub(super) fn turn(&mut self) {
        self.leave_inherited();
        let Some(half) = &mut self.half else { return };
        let mut context = Context::from_waker(&self.reactor.waker);
        // After its end, or an error, all requests fail, since they have no response.
        if Pin::new(half).poll(&mut context).is_ready() {
            self.half = None;
        }
    }

    /// Reads the received messages, without blocking. Returns false if the connection has ended.
    pub(super) fn check(&mut self) -> bool {
        self.leave_inherited();
        // A forked process would take the events of its parent.
        if self.half.is_none() {
            return false;
        }
        if self.reactor.block(Some(Duration::ZERO)).is_err() {
            self.half = None;
        }
        if self.reactor.can_read() {
            self.turn();
        }
        self.half.is_some()
    }

    /// Sends and receives until a future of this connection is ready.
    pub(super) fn wait<F: Future>(&mut self, mut future: Pin<&mut F>) -> F::Output {
        let waker = self.reactor.waker.clone();
        loop {
            self.reactor.was_woken();
            if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                return output;
            }
            self.turn();
            // A response has arrived, or the future can send more. After the end, all futures are ready.
            if self.reactor.was_woken() || self.half.is_none() {
                continue;
            }
            if self.reactor.block(None).is_err() {
                self.half = None;
            }
        }
    }
}

impl Drop for Driver {
    /// Ends the session. The client has been dropped before.
    fn drop(&mut self) {
        self.turn();
    }
}
