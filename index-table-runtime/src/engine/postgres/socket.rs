//! The socket of a connection, and waiting for it.
//!
//! The thread that waits for a response does the I/O of its connection: it sends the queued bytes, and blocks until the
//! socket is ready. So no other thread has to be woken, and no runtime is needed. Unlike `block_on` of a runtime, this
//! works inside of asynchronous code, where it blocks the thread like any other call.

#[cfg(unix)]
use std::path::PathBuf;
use std::{
    fmt,
    io::{self, ErrorKind, Read as _, Write as _},
    net::{self, Shutdown, SocketAddr},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    time::{Duration, Instant},
};

#[cfg(unix)]
use mio::net::UnixStream;
use mio::{Events, Interest, Poll as Selector, Token, net::TcpStream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A socket that does not block.
pub(super) enum Socket {
    Tcp(TcpStream),
    #[cfg(unix)]
    Unix(UnixStream),
}

/// The address of a server.
#[derive(Debug, Clone)]
pub(super) enum ServerAddress {
    Tcp(SocketAddr),
    #[cfg(unix)]
    Unix(PathBuf),
}

impl ServerAddress {
    /// Connects to the server within a time limit.
    pub(super) fn connect(&self, limit: Duration) -> io::Result<Socket> {
        match self {
            Self::Tcp(address) => {
                let socket = net::TcpStream::connect_timeout(address, limit)?;
                socket.set_nodelay(true)?;
                socket.set_nonblocking(true)?;
                Ok(Socket::Tcp(TcpStream::from_std(socket)))
            }
            // Does not wait: if the queue of the server is full, the error is `WouldBlock`.
            #[cfg(unix)]
            Self::Unix(path) => UnixStream::connect(path).map(Socket::Unix),
        }
    }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            #[cfg(unix)]
            Self::Unix(path) => path.display().fmt(f),
        }
    }
}

impl Socket {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => socket.read(to),
            #[cfg(unix)]
            Self::Unix(socket) => socket.read(to),
        }
    }

    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => socket.write(from),
            #[cfg(unix)]
            Self::Unix(socket) => socket.write(from),
        }
    }

    fn shutdown(&self) -> io::Result<()> {
        match self {
            Self::Tcp(socket) => socket.shutdown(Shutdown::Write),
            #[cfg(unix)]
            Self::Unix(socket) => socket.shutdown(Shutdown::Write),
        }
    }
}

/// The state of a socket. A flag is set by an event, and reset by a call that would have blocked.
struct Ready {
    can_read: AtomicBool,
    can_write: AtomicBool,
    /// Whether the other side has closed the socket. There may be no further event.
    is_closed: AtomicBool,
}

impl Ready {
    /// Records that a call has received or sent as much as possible.
    fn used(&self, flag: &AtomicBool) {
        if !self.is_closed.load(Ordering::Relaxed) {
            flag.store(false, Ordering::Relaxed);
        }
    }
}

/// A socket as a stream. If a call would block, the thread has to wait with the [`Reactor`] of the socket.
pub(super) struct Stream {
    socket: Socket,
    ready: Arc<Ready>,
}

/// Returns the result of a call, which is repeated if a signal interrupts it.
fn attempt(mut call: impl FnMut() -> io::Result<usize>) -> Poll<io::Result<usize>> {
    loop {
        return match call() {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) if error.kind() == ErrorKind::WouldBlock => Poll::Pending,
            result => Poll::Ready(result),
        };
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { socket, ready } = self.get_mut();
        if !ready.can_read.load(Ordering::Relaxed) {
            return Poll::Pending;
        }
        let to = buffer.initialize_unfilled();
        let room = to.len();
        let read = attempt(|| socket.read(to));
        match read {
            Poll::Pending => {
                // Even a closed socket has an event for its next data.
                ready.can_read.store(false, Ordering::Relaxed);
                Poll::Pending
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Ready(Ok(len)) => {
                // With less data than room, the next data has an event.
                if 0 < len && len < room {
                    ready.used(&ready.can_read);
                }
                buffer.advance(len);
                Poll::Ready(Ok(()))
            }
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        from: &[u8],
    ) -> Poll<io::Result<usize>> {
        let Self { socket, ready } = self.get_mut();
        if !ready.can_write.load(Ordering::Relaxed) {
            return Poll::Pending;
        }
        let written = attempt(|| socket.write(from));
        if written.is_pending() {
            ready.can_write.store(false, Ordering::Relaxed);
        }
        written
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.socket.shutdown())
    }
}

/// Whether a future can make progress without its socket.
#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The token of the events of a [`Notifier`].
#[cfg(feature = "async")]
const NOTIFIER: Token = Token(1);

/// Ends the wait of another thread for a socket.
#[cfg(feature = "async")]
pub(super) struct Notifier(mio::Waker);

#[cfg(feature = "async")]
impl Notifier {
    /// Ends the current wait, or the next one.
    pub(super) fn notify(&self) {
        // Without it, the wait ends with a response or at its time limit.
        let _ = self.0.wake();
    }
}

/// Waits for a socket.
pub(super) struct Reactor {
    selector: Selector,
    events: Events,
    ready: Arc<Ready>,
    woken: Arc<Woken>,
    pub(super) waker: Waker,
}

impl Reactor {
    /// Returns the stream of a connected socket with its reactor.
    pub(super) fn new(mut socket: Socket) -> io::Result<(Stream, Self)> {
        let selector = Selector::new()?;
        let interest = Interest::READABLE | Interest::WRITABLE;
        match &mut socket {
            Socket::Tcp(socket) => selector.registry().register(socket, Token(0), interest),
            #[cfg(unix)]
            Socket::Unix(socket) => selector.registry().register(socket, Token(0), interest),
        }?;
        let (can_read, can_write, is_closed) = (false.into(), true.into(), false.into());
        let ready = Arc::new(Ready { can_read, can_write, is_closed });
        let woken = Arc::new(Woken::default());
        let (events, waker) = (Events::with_capacity(1), Waker::from(Arc::clone(&woken)));
        let stream = Stream { socket, ready: Arc::clone(&ready) };
        Ok((stream, Self { selector, events, ready, woken, waker }))
    }

    /// Blocks until the socket is ready, at most for this time.
    pub(super) fn block(&mut self, most: Option<Duration>) -> io::Result<()> {
        match self.selector.poll(&mut self.events, most) {
            Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(()),
            polled => polled?,
        }
        for event in &self.events {
            #[cfg(feature = "async")]
            if event.token() == NOTIFIER {
                continue;
            }
            let is_closed = event.is_read_closed() || event.is_write_closed() || event.is_error();
            if is_closed {
                self.ready.is_closed.store(true, Ordering::Relaxed);
            }
            if is_closed || event.is_readable() {
                self.ready.can_read.store(true, Ordering::Relaxed);
            }
            if is_closed || event.is_writable() {
                self.ready.can_write.store(true, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// Returns how another thread ends [`block`](Self::block).
    #[cfg(feature = "async")]
    pub(super) fn notifier(&self) -> io::Result<Notifier> {
        mio::Waker::new(self.selector.registry(), NOTIFIER).map(Notifier)
    }

    /// Whether a waker was called since the last call of this function.
    pub(super) fn was_woken(&self) -> bool {
        self.woken.0.swap(false, Ordering::Relaxed)
    }

    /// Whether there is something to read.
    pub(super) fn can_read(&self) -> bool {
        self.ready.can_read.load(Ordering::Relaxed)
    }

    /// Waits until the future is ready, at most until this time.
    pub(super) fn run<F: Future>(
        &mut self,
        mut future: Pin<&mut F>,
        until: Instant,
    ) -> io::Result<F::Output> {
        let waker = self.waker.clone();
        loop {
            self.was_woken();
            if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                return Ok(output);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::Error::new(ErrorKind::TimedOut, "connection timed out"));
            }
            if !self.was_woken() {
                self.block(Some(left))?;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read as _, Write as _},
        net::{TcpListener, TcpStream as Blocking},
        thread,
    };

    use super::*;

    fn pair() -> io::Result<(Blocking, Stream, Reactor)> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let client = Blocking::connect(listener.local_addr()?)?;
        client.set_nonblocking(true)?;
        let (stream, reactor) = Reactor::new(Socket::Tcp(TcpStream::from_std(client)))?;
        Ok((listener.accept()?.0, stream, reactor))
    }

    /// Reads up to the end of the stream, with a buffer of this size.
    fn read_all(stream: &mut Stream, reactor: &mut Reactor, size: usize) -> io::Result<Vec<u8>> {
        let mut all = Vec::new();
        loop {
            let mut bytes = vec![0; size];
            let mut buffer = ReadBuf::new(&mut bytes);
            let polled = Pin::new(&mut *stream)
                .poll_read(&mut Context::from_waker(Waker::noop()), &mut buffer);
            match polled {
                Poll::Ready(Ok(())) if buffer.filled().is_empty() => return Ok(all),
                Poll::Ready(Ok(())) => all.extend_from_slice(buffer.filled()),
                Poll::Ready(Err(error)) => return Err(error),
                Poll::Pending => {
                    let begun = Instant::now();
                    // The first event may be that the socket can be written.
                    while !reactor.can_read() {
                        reactor.block(Some(Duration::from_secs(10)))?;
                        assert!(begun.elapsed() < Duration::from_secs(10), "no event");
                    }
                }
            }
        }
    }

    #[test]
    fn a_stream_ends_after_all_of_its_data() -> io::Result<()> {
        for size in [1, 3, 7, 4096] {
            // The end comes together with the data, directly after it, or later.
            for pause in [None, Some(0), Some(20)] {
                let (mut server, mut stream, mut reactor) = pair()?;
                let sender = thread::spawn(move || {
                    for part in [&b"abc"[..], b"defghij", &[7; 5000]] {
                        server.write_all(part).expect("a part");
                        if let Some(pause) = pause {
                            thread::sleep(Duration::from_millis(pause));
                        }
                    }
                });
                if pause.is_none() {
                    sender.join().expect("the sender");
                }
                let all = read_all(&mut stream, &mut reactor, size)?;
                assert_eq!(all, [&b"abcdefghij"[..], &[7; 5000]].concat());
            }
        }
        Ok(())
    }

    #[test]
    fn a_full_socket_is_written_when_it_has_room() -> io::Result<()> {
        let (mut server, mut stream, mut reactor) = pair()?;
        let reader = thread::spawn(move || {
            thread::sleep(Duration::from_millis(50));
            let mut all = Vec::new();
            server.read_to_end(&mut all).map(|_| all)
        });
        let data: Vec<u8> = (0..20_000_000_u32).map(|it| it as u8).collect();
        let (mut at, mut waits) = (0, 0);
        while at < data.len() {
            let mut context = Context::from_waker(Waker::noop());
            match Pin::new(&mut stream).poll_write(&mut context, &data[at..]) {
                Poll::Ready(written) => at += written?,
                Poll::Pending => {
                    waits += 1;
                    reactor.block(Some(Duration::from_secs(10)))?;
                }
            }
        }
        drop((stream, reactor));
        assert!(waits > 0);
        assert!(reader.join().expect("the reader")? == data);
        Ok(())
    }
}
