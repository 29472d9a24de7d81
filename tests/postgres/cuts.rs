//! A proxy that cuts connections at random moments of the protocol.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
};

use super::serial::Random;

/// A proxy in front of the server.
pub(crate) struct Proxy {
    url: String,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// Whether connections are cut.
    cuts: AtomicBool,
    /// The number of cuts.
    count: AtomicU64,
    connections: AtomicU64,
}

/// The moment of a cut.
#[derive(Clone, Copy)]
enum Moment {
    /// The server does not get the message.
    Before,
    /// The server gets a part of the message.
    Within,
    /// The server gets the message, and the client does not get the response.
    After,
}

impl Proxy {
    pub(crate) fn start(url: &str) -> io::Result<Self> {
        let server = url.split('@').nth(1).and_then(|rest| rest.split('/').next());
        let server = server.ok_or(io::ErrorKind::InvalidInput)?.to_owned();
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let through = url.replace(&server, &listener.local_addr()?.to_string());
        let shared = Arc::new(Shared::default());
        let of_thread = Arc::clone(&shared);
        thread::spawn(move || {
            for client in listener.incoming() {
                let (Ok(client), Ok(server)) = (client, TcpStream::connect(&server)) else {
                    return;
                };
                if connect(&of_thread, client, server).is_err() {
                    return;
                }
            }
        });
        Ok(Self { url: through, shared })
    }

    /// Returns the URL of the server through the proxy.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Starts or stops cutting connections.
    pub(crate) fn cut(&self, cuts: bool) {
        self.shared.cuts.store(cuts, Ordering::Relaxed);
    }

    /// Returns the number of cuts so far.
    pub(crate) fn cuts(&self) -> u64 {
        self.shared.count.load(Ordering::Relaxed)
    }
}

fn connect(shared: &Arc<Shared>, client: TcpStream, server: TcpStream) -> io::Result<()> {
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let number = shared.connections.fetch_add(1, Ordering::Relaxed);
    let streams = [(client.try_clone()?, server.try_clone()?), (server, client)];
    for (direction, (from, to)) in streams.into_iter().enumerate() {
        let (shared, random) = (Arc::clone(shared), Random(number << 1 | direction as u64));
        thread::spawn(move || {
            let (Ok(one), Ok(other)) = (from.try_clone(), to.try_clone()) else { return };
            // An error is the end of the connection.
            let _ = if direction == 0 {
                requests(&shared, random, from, to)
            } else {
                responses(&shared, random, from, to)
            };
            let _ = (one.shutdown(Shutdown::Both), other.shutdown(Shutdown::Both));
        });
    }
    Ok(())
}

/// Copies the messages of the client to the server until a cut.
fn requests(
    shared: &Shared,
    mut random: Random,
    mut from: TcpStream,
    mut to: TcpStream,
) -> io::Result<()> {
    // The first message has no kind.
    let mut kind = None;
    loop {
        let mut head = [0; 4];
        from.read_exact(&mut head)?;
        let mut body = vec![0; u32::from_be_bytes(head) as usize - 4];
        from.read_exact(&mut body)?;
        let message = [kind.as_slice(), &head, &body].concat();
        let is_commit = body.windows(6).any(|word| word == b"COMMIT");
        let moment = match random.below(if is_commit { 16 } else { 600 }) {
            0 => Some(Moment::Before),
            1 => Some(Moment::Within),
            2 => Some(Moment::After),
            _ => None,
        };
        let moment = moment.filter(|_| shared.cuts.load(Ordering::Relaxed));
        let sent = match moment {
            Some(Moment::Before) => 0,
            Some(Moment::Within) => random.below(message.len() as u64) as usize,
            Some(Moment::After) | None => message.len(),
        };
        to.write_all(&message[..sent])?;
        if moment.is_some() {
            shared.count.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        }
        let mut next = [0];
        from.read_exact(&mut next)?;
        kind = Some(next[0]);
    }
}

/// Copies the responses of the server to the client until a cut, which can be within a message.
fn responses(
    shared: &Shared,
    mut random: Random,
    mut from: TcpStream,
    mut to: TcpStream,
) -> io::Result<()> {
    let mut buffer = [0; 8192];
    loop {
        let len = from.read(&mut buffer)?;
        if len == 0 {
            return Ok(());
        }
        let is_cut = random.below(400) == 0 && shared.cuts.load(Ordering::Relaxed);
        let sent = if is_cut { random.below(len as u64) as usize } else { len };
        to.write_all(&buffer[..sent])?;
        if is_cut {
            shared.count.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        }
    }
}
