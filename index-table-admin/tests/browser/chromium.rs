//! Headless Chromium, driven by the `DevTools` protocol over two pipes.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::{Duration, Instant},
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::{Value, json};
use tempfile::TempDir;

/// The time after which the browser counts as hanging.
const PATIENCE: Duration = Duration::from_mins(1);

/// Whether the tests run. They are skipped without Chromium, unless the variable `INDEX_TABLE_BROWSER_TESTS` is set.
pub(crate) fn is_here() -> bool {
    let is_wanted = std::env::var_os("INDEX_TABLE_BROWSER_TESTS").is_some();
    is_wanted || Command::new("chromium").arg("--version").output().is_ok()
}

/// A tab of a browser of its own.
pub(crate) struct Tab {
    child: Child,
    input: ChildStdin,
    messages: Receiver<Value>,
    events: Vec<Value>,
    session: Option<String>,
    last: u64,
    _profile: TempDir,
}

/// The appearance of the page.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Look {
    pub(crate) name: &'static str,
    pub(crate) is_dark: bool,
    pub(crate) width: u32,
}

impl Tab {
    pub(crate) fn open() -> Self {
        let profile = tempfile::tempdir().expect("a directory");
        // The browser reads messages from descriptor 3 and writes them to descriptor 4.
        let mut child = Command::new("sh")
            .args(["-c", r#"exec chromium "$@" 3<&0 4>&1 </dev/null >/dev/null 2>&1"#, "chromium"])
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-quic",
                "--no-first-run",
            ])
            .args([
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-sync",
            ])
            .args(["--disable-dev-shm-usage", "--hide-scrollbars", "--force-color-profile=srgb"])
            .args(["--remote-debugging-pipe", "--lang=en"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a browser");
        let input = child.stdin.take().expect("the input");
        let mut output = BufReader::new(child.stdout.take().expect("the output"));
        let (sender, messages) = channel();
        thread::spawn(move || {
            let mut message = Vec::new();
            while output.read_until(0, &mut message).is_ok_and(|length| length > 0) {
                message.pop();
                let Ok(value) = serde_json::from_slice(&message) else { break };
                if sender.send(value).is_err() {
                    break;
                }
                message.clear();
            }
        });
        let (events, session) = (Vec::new(), None);
        let mut tab = Self { child, input, messages, events, session, last: 0, _profile: profile };
        let target = tab.call("Target.createTarget", &json!({ "url": "about:blank" }));
        let target = json!({ "targetId": target["targetId"], "flatten": true });
        let session = tab.call("Target.attachToTarget", &target);
        tab.session = session["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Network", "Log"] {
            tab.call(&format!("{domain}.enable"), &json!({}));
        }
        tab
    }

    fn call(&mut self, method: &str, parameters: &Value) -> Value {
        self.last += 1;
        let mut message = json!({ "id": self.last, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            message["sessionId"] = session.as_str().into();
        }
        write!(self.input, "{message}\0").expect("sent");
        self.input.flush().expect("sent");
        loop {
            let message = self.message();
            if message["id"] == self.last {
                assert!(message["error"].is_null(), "{method}: {message}");
                return message["result"].clone();
            }
            self.events.push(message);
        }
    }

    fn message(&mut self) -> Value {
        self.messages.recv_timeout(PATIENCE).expect("the browser responds")
    }

    fn wait_for(&mut self, method: &str) {
        let is_it = |event: &Value| event["method"] == method;
        while !self.events.iter().any(is_it) {
            let message = self.message();
            self.events.push(message);
        }
    }

    pub(crate) fn look(&mut self, look: Look) {
        let scheme = if look.is_dark { "dark" } else { "light" };
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.call("Emulation.setEmulatedMedia", &json!({ "features": features }));
        let size = json!({
            "width": look.width, "height": 900, "deviceScaleFactor": 1, "mobile": look.width < 600,
        });
        self.call("Emulation.setDeviceMetricsOverride", &size);
    }

    /// Opens a page, and waits until it is loaded.
    pub(crate) fn go(&mut self, url: &str) {
        self.events.clear();
        let reply = self.call("Page.navigate", &json!({ "url": url }));
        assert!(reply["errorText"].is_null(), "{url}: {reply}");
        self.wait_for("Page.loadEventFired");
    }

    /// Presses a key, and waits until the next page is loaded.
    pub(crate) fn press_to_go(&mut self, key: &str) {
        self.events.clear();
        self.press(key);
        self.wait_for("Page.loadEventFired");
    }

    /// Returns the value of an expression.
    pub(crate) fn value(&mut self, expression: &str) -> Value {
        let parameters =
            json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let reply = self.call("Runtime.evaluate", &parameters);
        assert!(reply["exceptionDetails"].is_null(), "{expression}: {reply}");
        reply["result"]["value"].clone()
    }

    pub(crate) fn text(&mut self, expression: &str) -> String {
        let value = self.value(expression);
        value.as_str().unwrap_or_else(|| panic!("{expression} is {value}, no text")).to_owned()
    }

    /// Waits until an expression is true.
    #[track_caller]
    pub(crate) fn wait_until(&mut self, expression: &str) {
        let begun = Instant::now();
        while self.value(expression) != true {
            assert!(
                begun.elapsed() < PATIENCE,
                "{expression}: {}",
                self.text("document.body.innerText")
            );
            thread::sleep(Duration::from_millis(100));
        }
    }

    pub(crate) fn press(&mut self, key: &str) {
        let (code, text) = match key {
            "Tab" => (9, None),
            "Enter" => (13, Some("\r")),
            _ => panic!("no such key: {key}"),
        };
        for kind in ["keyDown", "keyUp"] {
            let mut event = json!({
                "type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code,
            });
            if let (Some(text), "keyDown") = (text, kind) {
                event["text"] = text.into();
            }
            self.call("Input.dispatchKeyEvent", &event);
        }
    }

    pub(crate) fn write(&mut self, text: &str) {
        self.call("Input.insertText", &json!({ "text": text }));
    }

    /// Returns the addresses that the last page has requested, and the errors that it has caused.
    pub(crate) fn requests_and_errors(&mut self) -> (Vec<String>, Vec<String>) {
        // After the reply to any call, all earlier events are here.
        self.value("1");
        let of = |method: &'static str| {
            self.events.iter().filter(move |event| event["method"] == method)
        };
        let requests = of("Network.requestWillBeSent")
            .map(|event| event["params"]["request"]["url"].as_str().unwrap_or_default().to_owned());
        let is_error = |event: &&Value| event["params"]["entry"]["level"] == "error";
        let errors = of("Log.entryAdded").filter(is_error).chain(of("Runtime.exceptionThrown"));
        (requests.collect(), errors.map(ToString::to_string).collect())
    }

    /// Writes a picture of the whole page. The directory belongs to the build, not to the repository.
    pub(crate) fn picture(&mut self, name: &str) -> PathBuf {
        let whole = json!({ "format": "png", "captureBeyondViewport": true });
        let reply = self.call("Page.captureScreenshot", &whole);
        let data = reply["data"].as_str().expect("a picture");
        let data = BASE64_STANDARD.decode(data).expect("base64");
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("page");
        std::fs::create_dir_all(&directory).expect("a directory");
        let path = directory.join(format!("{name}.png"));
        std::fs::write(&path, data).expect("written");
        path
    }
}

impl Drop for Tab {
    fn drop(&mut self) {
        // The browser ends when its pipe is closed; the shell has become the browser.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
