//! The connections of a server. Their number is bounded, and idle connections are closed, so that clients without the
//! token can't use all file descriptors.

use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::serve::Listener;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, Sleep, sleep},
};

/// The maximum number of connections. Further connections wait.
const MOST: usize = 256;

/// The time after which a connection is closed if nothing is received or sent. It is longer than any request.
const IDLE: Duration = Duration::from_secs(30);

/// A listener for connections with limits.
pub(crate) struct Connections {
    listener: TcpListener,
    turns: Arc<Semaphore>,
    idle: Duration,
}

impl Connections {
    pub(crate) fn of(listener: TcpListener) -> Self {
        Self::with(listener, MOST, IDLE)
    }

    fn with(listener: TcpListener, most: usize, idle: Duration) -> Self {
        Self { listener, turns: Arc::new(Semaphore::new(most)), idle }
    }
}

impl Listener for Connections {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        // The semaphore is never closed.
        let turn = Arc::clone(&self.turns).acquire_owned().await.ok();
        // This listener waits after an error.
        let (stream, address) = Listener::accept(&mut self.listener).await;
        let end = Box::pin(sleep(self.idle));
        (Connection { stream, idle: self.idle, end, _turn: turn }, address)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection that ends when it has been idle for a time.
pub(crate) struct Connection {
    stream: TcpStream,
    idle: Duration,
    end: Pin<Box<Sleep>>,
    _turn: Option<OwnedSemaphorePermit>,
}

impl Connection {
    /// Restarts the timer if bytes were received or sent. Otherwise, returns an error when the time is over.
    fn checked<T>(
        &mut self,
        context: &mut Context<'_>,
        done: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if done.is_ready() {
            self.end.as_mut().reset(Instant::now() + self.idle);
            return done;
        }
        ready!(self.end.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let done = Pin::new(&mut self.stream).poll_read(context, buffer);
        self.checked(context, done)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let done = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.checked(context, done)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let done = Pin::new(&mut self.stream).poll_write_vectored(context, buffers);
        self.checked(context, done)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read as _, Write as _},
        net,
    };

    use axum::{Router, routing::get};

    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn connections_without_a_request_are_closed_and_others_get_their_turn() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
        let address = listener.local_addr().expect("an address");
        let connections = Connections::with(listener, 2, Duration::from_millis(100));
        let router = Router::new().route("/", get(async || "well"));
        tokio::spawn(async { axum::serve(connections, router).await });
        let work = move || {
            let begin = || net::TcpStream::connect(address).expect("a connection");
            // More connections than the maximum, each with a part of a request.
            let mut idle: Vec<_> = (0..4).map(|_| begin()).collect();
            idle[0].write_all(b"GET / HT").expect("sent");
            let mut stream = begin();
            stream
                .write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
                .expect("sent");
            stream.set_read_timeout(Some(Duration::from_mins(1))).expect("a time limit");
            let mut response = String::new();
            stream.read_to_string(&mut response).expect("a response");
            assert!(
                response.starts_with("HTTP/1.1 200") && response.ends_with("well"),
                "{response}"
            );
            for mut stream in idle {
                stream.set_read_timeout(Some(Duration::from_mins(1))).expect("a time limit");
                let mut rest = Vec::new();
                // The connection is closed, perhaps with a reset.
                let _ = stream.read_to_end(&mut rest);
                assert!(!String::from_utf8_lossy(&rest).contains("well"));
            }
        };
        tokio::task::spawn_blocking(work).await.expect("no panic");
    }
}
