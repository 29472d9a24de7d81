//! A proxy in front of the server that delays, holds or cuts.

use std::{
    io::{self, Read as _, Write as _},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

#[derive(Default)]
pub(crate) struct Proxy {
    /// The delay of each direction.
    delay: Duration,
    /// Bytes whose requests cut the connection.
    cuts: &'static [u8],
    /// Nothing passes.
    pub(crate) holds: AtomicBool,
    /// New connections are closed.
    pub(crate) refuses: AtomicBool,
}

impl Proxy {
    /// Starts a proxy. Returns it with the URL of the server through it.
    pub(crate) fn start(
        url: &str,
        delay: Duration,
        cuts: &'static [u8],
    ) -> io::Result<(Arc<Self>, String)> {
        let server = url.split('@').nth(1).and_then(|rest| rest.split('/').next());
        let server = server.ok_or(io::ErrorKind::InvalidInput)?.to_owned();
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let through = url.replace(&server, &listener.local_addr()?.to_string());
        let proxy = Arc::new(Self { delay, cuts, ..Self::default() });
        let shared = Arc::clone(&proxy);
        thread::spawn(move || {
            for client in listener.incoming() {
                if shared.refuses.load(Ordering::Relaxed) {
                    continue;
                }
                let (Ok(client), Ok(server)) = (client, TcpStream::connect(&server)) else {
                    continue;
                };
                let _ = (client.set_nodelay(true), server.set_nodelay(true));
                let (Ok(one), Ok(other)) = (client.try_clone(), server.try_clone()) else { return };
                Self::forward(Arc::clone(&shared), true, client, server);
                Self::forward(Arc::clone(&shared), false, other, one);
            }
        });
        Ok((proxy, through))
    }

    /// Forwards one direction in threads of its own.
    fn forward(proxy: Arc<Self>, is_request: bool, mut from: TcpStream, mut to: TcpStream) {
        let (sender, receiver) = mpsc::channel::<(Instant, Vec<u8>)>();
        let shared = Arc::clone(&proxy);
        thread::spawn(move || {
            let mut buffer = vec![0; 1 << 16];
            while let Ok(len @ 1..) = from.read(&mut buffer) {
                let bytes = &buffer[..len];
                let cuts = shared.cuts;
                let is_cut = is_request
                    && !cuts.is_empty()
                    && bytes.windows(cuts.len()).any(|window| window == cuts);
                if is_cut || sender.send((Instant::now(), bytes.to_vec())).is_err() {
                    break;
                }
            }
        });
        thread::spawn(move || {
            while let Ok((received, bytes)) = receiver.recv() {
                let left = proxy.delay.saturating_sub(received.elapsed());
                if !left.is_zero() {
                    thread::sleep(left);
                }
                while proxy.holds.load(Ordering::Relaxed) {
                    thread::sleep(Duration::from_millis(1));
                }
                if to.write_all(&bytes).is_err() {
                    break;
                }
            }
            let _ = to.shutdown(Shutdown::Both);
        });
    }
}
