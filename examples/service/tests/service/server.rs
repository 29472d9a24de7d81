//! The built program on a free port of the loopback interface, and a client for it.

use std::{
    error::Error,
    ffi::OsStr,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use serde::Serialize;
use serde_json::Value;
use ureq::{Agent, http};

/// The maximum time that a test waits.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) type Result<T = (), E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

pub(crate) struct Server {
    process: Child,
    pub(crate) client: Client,
}

impl Server {
    /// Starts the program, and waits until it prints its address.
    pub(crate) fn start(directory: &Path) -> Result<Self> {
        Self::start_with(&[directory.as_os_str()])
    }

    /// Starts the program with these arguments before the address.
    pub(crate) fn start_with(arguments: &[&OsStr]) -> Result<Self> {
        Self::run(env!("CARGO_BIN_EXE_index-table-service-example"), arguments)
    }

    /// Starts the second release of the program.
    pub(crate) fn start_release_2(directory: &Path) -> Result<Self> {
        Self::run(env!("CARGO_BIN_EXE_index-table-service-example-2"), &[directory.as_os_str()])
    }

    fn run(program: &str, arguments: &[&OsStr]) -> Result<Self> {
        let mut command = Command::new(program);
        command.args(arguments).arg("127.0.0.1:0");
        Self::run_command(command)
    }

    /// Starts a command that becomes the program, and waits until it prints its address.
    pub(crate) fn run_command(mut command: Command) -> Result<Self> {
        let mut process = command.stdout(Stdio::piped()).spawn()?;
        let output = process.stdout.take().ok_or("no output")?;
        let mut server = Self { process, client: Client::new() };
        let (sender, receiver) = mpsc::channel();
        thread::spawn(move || sender.send(BufReader::new(output).lines().next()));
        let line = receiver.recv_timeout(PATIENCE)?.ok_or("the program printed nothing")??;
        server.client.url =
            line.strip_prefix("listening on ").ok_or("the program printed no address")?.into();
        Ok(server)
    }

    /// Sends SIGKILL.
    pub(crate) fn kill(&mut self) -> Result {
        self.process.kill()?;
        self.process.wait()?;
        Ok(())
    }

    /// Returns the id of the process that was started.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Sends SIGTERM, and waits for the end of the program.
    #[cfg(unix)]
    pub(crate) fn terminate(&mut self) -> Result<ExitStatus> {
        self.terminate_by(self.id())
    }

    /// Sends SIGTERM to the process of the program, and waits for the end of the process that was started.
    #[cfg(unix)]
    pub(crate) fn terminate_by(&mut self, program: u32) -> Result<ExitStatus> {
        let pid = program.to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status()?.success());
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if let Some(status) = self.process.try_wait()? {
                return Ok(status);
            }
            thread::sleep(Duration::from_millis(10));
        }
        Err("it doesn't stop".into())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The program may have ended already, and a failing test has printed the reason.
        let _ = self.kill();
    }
}

/// A client for the program. Clones share their connections.
#[derive(Clone)]
pub(crate) struct Client {
    agent: Agent,
    url: String,
}

/// A response: the status, and the JSON, which is null if there is none.
pub(crate) type StatusAndBody = (u16, Value);

impl Client {
    fn new() -> Self {
        let agent = Agent::config_builder()
            .timeout_global(Some(PATIENCE))
            .http_status_as_error(false)
            .proxy(None)
            .build()
            .into();
        Self { agent, url: String::new() }
    }

    pub(crate) fn get(&self, path: &str) -> Result<StatusAndBody> {
        status_and_body(self.agent.get(self.uri(path)).call()?)
    }

    pub(crate) fn delete(&self, path: &str) -> Result<StatusAndBody> {
        status_and_body(self.agent.delete(self.uri(path)).call()?)
    }

    pub(crate) fn post(&self, path: &str, body: &impl Serialize) -> Result<StatusAndBody> {
        self.send("POST", path, serde_json::to_string(body)?)
    }

    pub(crate) fn put(&self, path: &str, body: &impl Serialize) -> Result<StatusAndBody> {
        self.send("PUT", path, serde_json::to_string(body)?)
    }

    pub(crate) fn patch(&self, path: &str, body: &impl Serialize) -> Result<StatusAndBody> {
        self.send("PATCH", path, serde_json::to_string(body)?)
    }

    pub(crate) fn send(&self, method: &str, path: &str, body: String) -> Result<StatusAndBody> {
        let request = http::Request::builder()
            .method(method)
            .uri(self.uri(path))
            .header("content-type", "application/json")
            .body(body)?;
        status_and_body(self.agent.run(request)?)
    }

    /// Sends a request with the header `If-Match`.
    pub(crate) fn send_if(
        &self,
        path: &str,
        (method, etag): (&str, &str),
        body: String,
    ) -> Result<StatusAndBody> {
        let request = http::Request::builder()
            .method(method)
            .uri(self.uri(path))
            .header("content-type", "application/json")
            .header("if-match", etag)
            .body(body)?;
        status_and_body(self.agent.run(request)?)
    }

    /// Returns the `ETag` of a response.
    pub(crate) fn etag(&self, path: &str) -> Result<String> {
        let response = self.agent.get(self.uri(path)).call()?;
        let etag = response.headers().get("etag").ok_or("no ETag")?;
        Ok(etag.to_str()?.to_owned())
    }

    fn uri(&self, path: &str) -> String {
        format!("{}{path}", self.url)
    }
}

fn status_and_body(mut response: http::Response<ureq::Body>) -> Result<StatusAndBody> {
    let body = response.body_mut().read_to_string()?;
    let json = if body.is_empty() { Value::Null } else { serde_json::from_str(&body)? };
    Ok((response.status().as_u16(), json))
}
