//! A service with operations, and requests to it.
#![allow(dead_code, reason = "each suite uses a part of it")]

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    thread,
    time::{Duration, Instant},
};

use axum::Router;
use index_table::Store;
use index_table_admin::Operations;
use serde_json::Value;
use tokio::{net::TcpListener, runtime, sync::oneshot};

use crate::process;

pub(crate) const SECRET: &str = "the-secret-of-operations";
pub(crate) const PATH: &str = "/admin/operations";

/// A service with operations in a thread of this process.
pub(crate) struct Service {
    pub(crate) operations: Option<Operations>,
    pub(crate) address: SocketAddr,
    /// The server ends when it is dropped.
    end: Option<oneshot::Sender<()>>,
    server: Option<thread::JoinHandle<()>>,
}

impl Service {
    pub(crate) fn of(store: &Store, configure: impl FnOnce(Operations) -> Operations) -> Self {
        let operations = Operations::new(store).token("alice", SECRET).token("bob", "another-one");
        let operations = configure(operations);
        let router = Router::new().nest_service("/admin/", operations.router());
        Self::serving(router, Some(operations))
    }

    pub(crate) fn serving(router: Router, operations: Option<Operations>) -> Self {
        let (end, ended) = oneshot::channel::<()>();
        let (send, address) = std::sync::mpsc::channel();
        let serve = move || {
            let mut runtime = runtime::Builder::new_multi_thread();
            let runtime = runtime.worker_threads(2).enable_all().build();
            runtime.expect("a runtime").block_on(async move {
                let listener = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
                send.send(listener.local_addr().expect("an address")).expect("sent");
                let ended = async { drop(ended.await) };
                axum::serve(listener, router).with_graceful_shutdown(ended).await.expect("served");
            });
        };
        let server = Some(thread::spawn(serve));
        let address = address.recv().expect("an address");
        Self { operations, address, end: Some(end), server }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/admin/", self.address)
    }

    /// Sends a request, and returns the status and the body.
    pub(crate) fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> (u16, String) {
        send(self.address, method, path, headers, body)
    }

    pub(crate) fn get(&self, path: &str) -> Value {
        let (status, body) = self.send("GET", &format!("{PATH}{path}"), &[bearer(SECRET)], "");
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).expect("JSON")
    }

    pub(crate) fn post(&self, path: &str, arguments: &Value) -> (u16, Value) {
        let headers = [bearer(SECRET), ("Content-Type", "application/json")];
        let (status, body) =
            self.send("POST", &format!("{PATH}{path}"), &headers, &arguments.to_string());
        (status, serde_json::from_str(&body).expect("JSON"))
    }

    /// Starts a job, and returns its id.
    pub(crate) fn start(&self, kind: &str, arguments: &Value) -> String {
        let (status, job) = self.post(&format!("/{kind}"), arguments);
        assert_eq!(status, 202, "{job}");
        job["id"].as_str().expect("exact in all programs").to_owned()
    }

    /// Waits for the end of a job.
    pub(crate) fn ended(&self, id: &str) -> Value {
        wait(|| Some(self.get(&format!("/{id}"))).filter(|job| !job["outcome"].is_null()))
    }

    /// Runs a job to its end.
    pub(crate) fn run(&self, kind: &str, arguments: &Value) -> Value {
        self.ended(&self.start(kind, arguments))
    }

    /// Runs the command against the service.
    pub(crate) fn command(&self, arguments: &[&str]) -> std::process::Output {
        let mut command = process::admin();
        command.env("INDEX_TABLE_OPERATIONS_TOKEN", SECRET);
        command.args(["--url", &self.url()]).args(arguments).output().expect("a process")
    }

    pub(crate) fn command_text(&self, arguments: &[&str]) -> String {
        let output = self.command(arguments);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("text")
    }

    pub(crate) fn command_fails(&self, code: i32, arguments: &[&str]) -> String {
        let output = self.command(arguments);
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        String::from_utf8(output.stderr).expect("text")
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        drop(self.end.take());
        drop(self.operations.take());
        if let Some(server) = self.server.take() {
            drop(server.join());
        }
    }
}

pub(crate) fn bearer(secret: &str) -> (&'static str, &str) {
    let value: &'static str = Box::leak(format!("Bearer {secret}").into_boxed_str());
    ("Authorization", value)
}

pub(crate) fn request(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("a connection");
    stream.set_read_timeout(Some(Duration::from_mins(1))).expect("a time limit");
    let headers: Vec<_> =
        headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let headers = headers.concat();
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.0\r\nHost: {address}\r\n{headers}Content-Length: {length}\r\n\r\n"
    );
    // A refused body may not be read to its end.
    drop(stream.write_all(format!("{head}{body}").as_bytes()));
    stream
}

pub(crate) fn send(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> (u16, String) {
    let mut answer = Vec::new();
    drop(request(address, method, path, headers, body).read_to_end(&mut answer));
    let answer = String::from_utf8(answer).expect("text");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a response");
    let status = head.split(' ').nth(1).expect("a status").parse().expect("a number");
    (status, body.to_owned())
}

/// Waits until there is a value, at most a minute.
pub(crate) fn wait<T>(mut found: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(begun.elapsed() < Duration::from_mins(1), "nothing after a minute");
        thread::sleep(Duration::from_millis(5));
    }
}
