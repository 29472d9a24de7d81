//! A proxy in front of the server. A function decides what happens to each message.
#![allow(dead_code, reason = "each suite uses a part of it")]

use std::{
    io::{self, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

/// What happens to a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Forward,
    /// The connection is cut instead.
    Cut,
    /// The message is forwarded, and the connection is cut before a response arrives at the client.
    ForwardAndCut,
    /// Nothing is forwarded any more in this direction.
    Hold,
}

/// A message.
pub(crate) struct Message<'m> {
    pub(crate) connection: u64,
    pub(crate) is_request: bool,
    /// 0 for the first request of a connection.
    pub(crate) kind: u8,
    pub(crate) body: &'m [u8],
}

impl Message<'_> {
    pub(crate) fn is_commit(&self) -> bool {
        self.is_request && self.kind == b'Q' && self.body.starts_with(b"COMMIT\0")
    }
}

type Decide = dyn Fn(&Message<'_>) -> Fate + Send + Sync;

/// Starts a proxy, and returns the URL of the server through it.
pub(crate) fn start(
    url: &str,
    decide: impl Fn(&Message<'_>) -> Fate + Send + Sync + 'static,
) -> io::Result<String> {
    start_between([url, url], &Arc::new(AtomicBool::new(false)), decide)
}

/// Returns the address of the server of a URL.
pub(crate) fn address(url: &str) -> io::Result<String> {
    let server = url.split('@').nth(1).and_then(|rest| rest.split('/').next());
    Ok(server.ok_or(io::ErrorKind::InvalidInput)?.to_owned())
}

/// Starts a proxy in front of two servers, and returns the URL of the first one through it. New connections are those of the second server
/// while `is_second`.
pub(crate) fn start_between(
    urls: [&str; 2],
    is_second: &Arc<AtomicBool>,
    decide: impl Fn(&Message<'_>) -> Fate + Send + Sync + 'static,
) -> io::Result<String> {
    let servers = [address(urls[0])?, address(urls[1])?];
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let through = urls[0].replace(&servers[0], &listener.local_addr()?.to_string());
    let (decide, is_second): (Arc<Decide>, _) = (Arc::new(decide), Arc::clone(is_second));
    thread::spawn(move || {
        for (connection, client) in (0..).zip(listener.incoming()) {
            let server = &servers[usize::from(is_second.load(Ordering::SeqCst))];
            // The server may be restarting.
            let (Ok(client), Ok(server)) = (client, TcpStream::connect(server)) else { continue };
            let _ = (client.set_nodelay(true), server.set_nodelay(true));
            for is_request in [true, false] {
                let (Ok(client), Ok(server)) = (client.try_clone(), server.try_clone()) else {
                    return;
                };
                let (from, to) = if is_request { (client, server) } else { (server, client) };
                let decide = Arc::clone(&decide);
                thread::spawn(move || {
                    // An error is the end of the connection.
                    let _ = copy(&*decide, (connection, is_request), &from, &to);
                    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
                });
            }
        }
    });
    Ok(through)
}

/// Copies messages in one direction until the end of the connection.
fn copy(
    decide: &Decide,
    (connection, is_request): (u64, bool),
    mut from: &TcpStream,
    mut to: &TcpStream,
) -> io::Result<()> {
    let mut is_first = is_request;
    loop {
        let mut kind = [0];
        if !is_first {
            from.read_exact(&mut kind)?;
        }
        let mut head = [0; 4];
        from.read_exact(&mut head)?;
        let mut body = vec![0; u32::from_be_bytes(head) as usize - 4];
        from.read_exact(&mut body)?;
        let message = Message { connection, is_request, kind: kind[0], body: &body };
        let fate = decide(&message);
        let all = [if is_first { &[][..] } else { &kind }, &head, &body].concat();
        is_first = false;
        match fate {
            Fate::Forward => to.write_all(&all)?,
            Fate::Cut => return Ok(()),
            Fate::ForwardAndCut => {
                let _ = from.shutdown(Shutdown::Both);
                to.write_all(&all)?;
                // The server has received the message when it sees the end.
                let _ = to.shutdown(Shutdown::Write);
                thread::sleep(Duration::from_millis(2));
                return Ok(());
            }
            Fate::Hold => {
                // Until the client has closed the connection.
                let mut rest = [0; 1024];
                let to_client = if is_request { from } else { to };
                let _ = to_client.set_read_timeout(Some(Duration::from_mins(2)));
                let mut client = to_client;
                while client.read(&mut rest)? > 0 {}
                return Ok(());
            }
        }
    }
}
