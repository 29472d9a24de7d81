//! Opening a connection to one of the hosts of a URL.

use std::{
    borrow::Cow,
    error::Error,
    hash::{BuildHasher as _, RandomState},
    io,
    net::{SocketAddr, ToSocketAddrs as _},
    pin::pin,
    time::{Duration, Instant},
};

use socket2::{SockRef, TcpKeepalive};
#[cfg(unix)]
use tokio_postgres::config::SslMode;
use tokio_postgres::{
    Client, Config,
    config::{Host, LoadBalanceHosts},
    tls::MakeTlsConnect,
};

use super::{
    connection::Connection,
    driver::{Cancel, Driver},
    error::Standby,
    options::Limits,
    socket::{Reactor, ServerAddress, Socket, Stream},
    sql,
    target::Target,
    tls::Tls,
};

/// The longest time after which the peer of an idle connection is probed; and, if the URL has no others, the time between two probes,
/// and the number of probes.
const IDLE: Duration = Duration::from_secs(10);
const INTERVAL: Duration = Duration::from_secs(5);
const RETRIES: u32 = 3;

type Failure = Box<dyn Error + Send + Sync>;

/// Opens a connection to the first host that accepts one and is fit. The hosts share the time limit, and so do the addresses of a host.
#[cfg_attr(
    not(feature = "postgres-tls"),
    expect(clippy::trivially_copy_pass_by_ref, reason = "of one feature")
)]
pub(super) fn connect(
    config: &Config,
    tls: &Tls,
    limits: Limits,
    (target, needs_primary): (Target, bool),
) -> Result<Connection, Failure> {
    let (hosts, addresses, ports) =
        (config.get_hosts(), config.get_hostaddrs(), config.get_ports());
    let count = hosts.len().max(addresses.len());
    if !hosts.is_empty() && !addresses.is_empty() && hosts.len() != addresses.len() {
        return Err("the URL has another number of hosts than of addresses".into());
    }
    if ports.len() > 1 && ports.len() != count {
        return Err("the URL has another number of ports than of hosts".into());
    }
    let mut failure = "the URL has no host".into();
    let targets: &[Target] = match target {
        // After a failover, another host is the primary.
        Target::Any | Target::PreferStandby if needs_primary && count > 1 => &[Target::ReadWrite],
        // One host is a primary, or refused later.
        Target::PreferStandby if needs_primary => &[Target::Any],
        Target::PreferStandby => &[Target::Standby, Target::Any],
        _ => &[target],
    };
    // One host that does not respond must not take the time of the others.
    let share = limits.connect / u32::try_from(count.max(1) * targets.len())?;
    let limits = Limits { connect: share, ..limits };
    let first = if config.get_load_balance_hosts() == LoadBalanceHosts::Random {
        usize::try_from(RandomState::new().hash_one(0) >> 33)?
    } else {
        0
    };
    let hosts_in_order = || (0..count).map(|at| first.wrapping_add(at) % count);
    for (target, at) in targets.iter().flat_map(|it| hosts_in_order().map(move |at| (*it, at))) {
        let port = ports.get(at).or_else(|| ports.first()).copied().unwrap_or(5432);
        let host = Place { host: hosts.get(at), port, config, tls, limits, target };
        let connected = match (addresses.get(at), hosts.get(at)) {
            (Some(address), _) => {
                host.connect(&[ServerAddress::Tcp(SocketAddr::new(*address, port))])
            }
            (None, Some(Host::Tcp(name))) => match (name.as_str(), port).to_socket_addrs() {
                Ok(found) => host.connect(&found.map(ServerAddress::Tcp).collect::<Vec<_>>()),
                Err(error) => Err(format!("the host {name:?} was not found: {error}").into()),
            },
            #[cfg(unix)]
            (None, Some(Host::Unix(path))) => {
                host.connect(&[ServerAddress::Unix(path.join(format!(".s.PGSQL.{port}")))])
            }
            (None, None) => continue,
        };
        match connected {
            Ok(connection) => return Ok(connection),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

/// A host of a URL.
struct Place<'a> {
    host: Option<&'a Host>,
    port: u16,
    config: &'a Config,
    tls: &'a Tls,
    limits: Limits,
    target: Target,
}

impl Place<'_> {
    /// Opens a connection to the first of these addresses that accepts one.
    fn connect(&self, addresses: &[ServerAddress]) -> Result<Connection, Failure> {
        let mut failure = "the host has no address".into();
        let share = self.limits.connect / u32::try_from(addresses.len().max(1))?;
        let timeout = self.config.get_connect_timeout().map_or(share, |own| share.min(*own));
        for address in addresses {
            let until = Instant::now() + timeout;
            let connected = match self.socket(address, timeout) {
                Ok(socket) => self.session(address, socket, until),
                Err(error) => {
                    let reason = format!("error connecting to {address}: {error}");
                    Err(io::Error::new(error.kind(), reason).into())
                }
            };
            match connected {
                Ok(connection) => return Ok(connection),
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    fn socket(&self, address: &ServerAddress, timeout: Duration) -> io::Result<Socket> {
        let socket = address.connect(timeout)?;
        let options = match &socket {
            Socket::Tcp(stream) => SockRef::from(stream),
            #[cfg(unix)]
            Socket::Unix(_) => return Ok(socket),
        };
        #[cfg(target_os = "linux")]
        {
            let timeout = self.config.get_tcp_user_timeout().copied();
            options.set_tcp_user_timeout(Some(timeout.unwrap_or(self.limits.response)))?;
        }
        if self.config.get_keepalives() {
            // The client library's default is two hours.
            let keepalive =
                TcpKeepalive::new().with_time(IDLE.min(self.config.get_keepalives_idle()));
            #[cfg(any(target_os = "linux", target_vendor = "apple", windows))]
            let keepalive = {
                let interval = self.config.get_keepalives_interval();
                keepalive.with_interval(interval.unwrap_or(INTERVAL))
            };
            #[cfg(any(target_os = "linux", target_vendor = "apple"))]
            let keepalive =
                keepalive.with_retries(self.config.get_keepalives_retries().unwrap_or(RETRIES));
            options.set_tcp_keepalive(&keepalive)?;
        }
        Ok(socket)
    }

    /// Returns the configuration for an address. As in libpq, `sslmode` has no meaning for a socket of the system, which no server encrypts.
    fn config_for(&self, address: &ServerAddress) -> Cow<'_, Config> {
        match address {
            ServerAddress::Tcp(_) => Cow::Borrowed(self.config),
            #[cfg(unix)]
            ServerAddress::Unix(_) => {
                let mut config = self.config.clone();
                config.ssl_mode(SslMode::Disable);
                Cow::Owned(config)
            }
        }
    }

    /// Opens a session on a connected socket.
    fn session(
        &self,
        address: &ServerAddress,
        socket: Socket,
        until: Instant,
    ) -> Result<Connection, Failure> {
        let (stream, mut reactor) = Reactor::new(socket)?;
        let name = match self.host {
            Some(Host::Tcp(name)) => name.as_str(),
            _ => "",
        };
        let mut tls = Clone::clone(self.tls);
        let of_stream = MakeTlsConnect::<Stream>::make_tls_connect(&mut tls, name)?;
        let config = self.config_for(address);
        let opened = reactor.run(pin!(config.connect_raw(stream, of_stream)), until)?;
        let (client, connection): (Client, _) = opened?;
        let left = until.saturating_duration_since(Instant::now());
        let (token, address, name) = (client.cancel_token(), address.clone(), name.to_owned());
        let cancel = Cancel { token, address, name, tls };
        let connection = Connection::raw(client, Driver::new(connection, reactor, left, cancel));
        if self.target == Target::Any {
            return Ok(connection);
        }
        let found = connection.simple(&sql::before_settings(
            "SELECT (current_setting('default_transaction_read_only')::bool OR pg_is_in_recovery())::text \
             || ' ' || pg_is_in_recovery()::text",
        ))?;
        let (read_only, recovers) = match found.as_deref().and_then(|it| it.split_once(' ')) {
            Some((read_only, recovers)) => (read_only == "true", recovers == "true"),
            None => (false, false),
        };
        let Some(reason) = self.target.refuses(read_only, recovers) else { return Ok(connection) };
        let reason = format!("the database on port {} {reason}", self.port);
        if self.target.is_for_writing() { Err(Standby(reason).into()) } else { Err(reason.into()) }
    }
}
