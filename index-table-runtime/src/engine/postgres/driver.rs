//! The I/O of a connection, by the thread that waits for a response.

use std::{
    error::Error,
    pin::{Pin, pin},
    task::{Context, Poll},
    time::{Duration, Instant},
};
#[cfg(feature = "async")]
use std::{io, task::Waker};

use tokio_postgres::{AsyncMessage, CancelToken, tls::MakeTlsConnect};

#[cfg(feature = "async")]
use super::socket::Notifier;
use super::{
    socket::{Reactor, ServerAddress, Stream},
    tls::Tls,
};
use crate::locks::Origin;

/// The result of a request.
pub(super) type Outcome<T> = Result<T, tokio_postgres::Error>;

/// The function of the server that warns of a commit that has not waited for its standbys. Messages can be translated.
const STANDBY: &str = "SyncRepWaitForLSN";

/// The longest time for the request to cancel a statement.
const CANCEL: Duration = Duration::from_secs(1);

/// The client library's half of a connection that does the I/O.
type Half = tokio_postgres::Connection<Stream, <Tls as MakeTlsConnect<Stream>>::Stream>;

/// How the statement that the server runs for a connection is canceled.
pub(super) struct Cancel {
    pub(super) token: CancelToken,
    pub(super) address: ServerAddress,
    /// The name of the server, for encrypted connections.
    pub(super) name: String,
    pub(super) tls: Tls,
}

impl Cancel {
    /// Requests the end of the statement on another connection.
    fn send(&mut self, limit: Duration) -> Result<(), Box<dyn Error + Send + Sync>> {
        let until = Instant::now() + limit;
        let (stream, mut reactor) = Reactor::new(self.address.connect(limit)?)?;
        let tls = MakeTlsConnect::<Stream>::make_tls_connect(&mut self.tls, &self.name)?;
        reactor.run(pin!(self.token.cancel_query_raw(stream, tls)), until)??;
        Ok(())
    }
}

/// Sends the requests of a connection, and receives the responses. One thread at a time does this, for itself and for
/// all other threads that use the connection.
pub(super) struct Driver {
    /// `None` after its end.
    half: Option<Half>,
    reactor: Reactor,
    /// The maximum time without a byte of a response that a thread waits for.
    pub(super) limit: Duration,
    /// Whether the wait of a commit for a standby was canceled.
    pub(super) is_unreplicated: bool,
    /// Whether the connection has ended because there was no response.
    pub(super) is_late: bool,
    cancel: Cancel,
    /// The process that has opened the connection. A forked process must not use it.
    origin: Origin,
}

impl Driver {
    pub(super) fn new(half: Half, reactor: Reactor, limit: Duration, cancel: Cancel) -> Self {
        let (half, origin) = (Some(half), Origin::here());
        Self { half, reactor, limit, is_unreplicated: false, is_late: false, cancel, origin }
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
        loop {
            match half.poll_message(&mut context) {
                Poll::Pending => return,
                Poll::Ready(Some(Ok(AsyncMessage::Notice(notice)))) => {
                    self.is_unreplicated |= notice.routine() == Some(STANDBY);
                }
                Poll::Ready(Some(Ok(_))) => {}
                // All requests fail, since they have no response.
                Poll::Ready(None | Some(Err(_))) => break,
            }
        }
        self.half = None;
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

    /// Sends and receives until a future of this connection is ready. After the time limit without a byte of a response, the
    /// connection ends with an error, and the server is requested to end the statement, within [`CANCEL`]. Otherwise, it would keep
    /// its locks, or could commit a single statement later.
    pub(super) fn wait<T>(
        &mut self,
        mut future: Pin<&mut impl Future<Output = Outcome<T>>>,
    ) -> Outcome<T> {
        let waker = self.reactor.waker.clone();
        let mut since = Instant::now();
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
            let left = self.limit.saturating_sub(since.elapsed());
            if self.reactor.block(Some(left)).is_err() {
                self.half = None;
            } else if self.reactor.can_read() {
                since = Instant::now();
            } else if left.is_zero() {
                (self.half, self.is_late) = (None, true);
                // If the server does not accept the request, it ends the statement when it finds out that the client has gone.
                let _ = self.cancel.send(self.limit.min(CANCEL));
                return Err(tokio_postgres::Error::__private_api_timeout());
            }
        }
    }
}

#[cfg(feature = "async")]
impl Driver {
    /// Returns how another thread ends [`pause`](Self::pause).
    pub(super) fn notifier(&self) -> io::Result<Notifier> {
        self.reactor.notifier()
    }

    /// Returns the waker of the requests of this connection.
    pub(super) fn waker(&self) -> Waker {
        self.reactor.waker.clone()
    }

    /// Sends and receives as much as possible without blocking. Returns false if the connection has ended.
    pub(super) fn advance(&mut self) -> bool {
        self.reactor.was_woken();
        self.turn();
        self.half.is_some()
    }

    /// Whether there is more to send or to receive since the last call of [`advance`](Self::advance).
    pub(super) fn was_woken(&self) -> bool {
        self.reactor.was_woken()
    }

    /// Blocks until the socket is ready or a notification, at most for this time. Returns whether there is something to read.
    pub(super) fn pause(&mut self, most: Duration) -> bool {
        if self.reactor.block(Some(most)).is_err() {
            self.half = None;
        }
        self.reactor.can_read()
    }

    /// Ends the connection. All requests without a response fail.
    pub(super) fn end(&mut self) {
        self.half = None;
    }
}

impl Drop for Driver {
    /// Ends the session. The client has been dropped before.
    fn drop(&mut self) {
        self.turn();
    }
}
