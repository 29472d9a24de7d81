//! Requests to the page that a service mounts.

use std::{
    io::{
        self,
        ErrorKind::{TimedOut, WouldBlock},
        Read as _, Write as _,
    },
    net::{TcpStream, ToSocketAddrs as _},
    path::Path,
    time::{Duration, Instant},
};

use crate::{
    failure::{Code, Failure},
    server::shown,
};

/// The time limit for connecting, and for each read.
const PATIENCE: Duration = Duration::from_secs(10);

/// The time limit for a whole response.
const WHOLE: Duration = Duration::from_mins(1);

/// The maximum length of a response.
const LONGEST: usize = 16 << 20;

const NO_ANSWER: &str = "it has not answered in time";

/// The page of a service.
pub(crate) struct Page<'p> {
    /// The address without passwords.
    pub(crate) shown: String,
    /// The host with its port.
    host: &'p str,
    /// The path of the page, without slashes at its ends.
    path: &'p str,
    token: Option<&'p str>,
}

/// A response.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: String,
}

impl<'p> Page<'p> {
    /// Reads an address such as `http://127.0.0.1:3000/admin/`. `what` can't be done if it is wrong.
    pub(crate) fn of(url: &'p str, token: Option<&'p str>, what: &str) -> Result<Self, Failure> {
        let place = shown(Path::new(url));
        let Some(address) = url.strip_prefix("http://") else {
            let reason = if url.starts_with("https://") {
                "encrypted connections are not offered; connect on the machine of the service, or read the page with another \
                 program"
            } else {
                "it is not the address of a page, which the service that has the store open mounts, such as \
                 `http://127.0.0.1:3000/admin/`"
            };
            return Err(Failure::arguments(format!("{what} `{place}`: {reason}")));
        };
        let forbidden = |text: &str| text.chars().any(|it| it.is_control() || it == ' ');
        if forbidden(address) || token.is_some_and(forbidden) {
            return Err(Failure::arguments(
                "the address or the token has spaces or control characters",
            ));
        }
        let (host, path) = address.split_once('/').unwrap_or((address, ""));
        let path = path.trim_end_matches('/');
        let path = path.strip_suffix("metrics").unwrap_or(path).trim_matches('/');
        Ok(Self { shown: place, host, path, token })
    }

    pub(crate) fn get(&self, name: &str) -> Result<Answer, Failure> {
        self.send("GET", name, None)
    }

    /// Sends JSON.
    pub(crate) fn post(&self, name: &str, json: &str) -> Result<Answer, Failure> {
        self.send("POST", name, Some(json))
    }

    pub(crate) fn unavailable(&self, reason: &str) -> Failure {
        let Self { shown, .. } = self;
        Failure::new(Code::Unavailable, format!("`{shown}` can't be reached: {reason}"))
    }

    fn send(&self, method: &str, name: &str, json: Option<&str>) -> Result<Answer, Failure> {
        let answer = self.exchange(method, name, json);
        let answer = answer.map_err(|error| self.unavailable(&error.to_string()))?;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        let status = head.split(' ').nth(1).unwrap_or_default();
        let status = status.parse();
        let status = status.map_err(|_| self.unavailable("the answer is not HTTP"))?;
        Ok(Answer { status, body: body.to_owned() })
    }

    fn exchange(&self, method: &str, name: &str, json: Option<&str>) -> io::Result<String> {
        let Self { host, path, .. } = self;
        let slash = if path.is_empty() { "" } else { "/" };
        let has_port = host.rsplit(':').next().is_some_and(|port| port.parse::<u16>().is_ok());
        let with_port = if has_port { (*host).to_owned() } else { format!("{host}:80") };
        let mut stream = Err(io::Error::other("it has no address"));
        for address in with_port.to_socket_addrs()? {
            stream = TcpStream::connect_timeout(&address, PATIENCE);
            if stream.is_ok() {
                break;
            }
        }
        let mut stream = stream?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let token = self.token.map(|token| format!("Authorization: Bearer {token}\r\n"));
        let token = token.unwrap_or_default();
        let content = json.map(|json| {
            let length = json.len();
            format!("Content-Type: application/json\r\nContent-Length: {length}\r\n")
        });
        let (content, json) = (content.unwrap_or_default(), json.unwrap_or_default());
        // With this version of HTTP, the response ends with the connection.
        let request = format!(
            "{method} /{path}{slash}{name} HTTP/1.0\r\nHost: {host}\r\n{token}{content}\r\n{json}"
        );
        stream.write_all(request.as_bytes())?;
        let (begun, mut answer, mut piece) = (Instant::now(), Vec::new(), [0; 8192]);
        loop {
            let read = match stream.read(&mut piece) {
                // Unix has the first kind for a time limit, and Windows the second.
                Err(error) if matches!(error.kind(), WouldBlock | TimedOut) => {
                    return Err(io::Error::other(NO_ANSWER));
                }
                read => read?,
            };
            answer.extend(piece.get(..read).unwrap_or_default());
            if read == 0 {
                return String::from_utf8(answer).map_err(io::Error::other);
            }
            if answer.len() > LONGEST {
                return Err(io::Error::other("the answer is too long"));
            }
            if begun.elapsed() > WHOLE {
                return Err(io::Error::other(NO_ANSWER));
            }
        }
    }
}
