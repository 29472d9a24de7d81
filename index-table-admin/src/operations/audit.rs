//! The audit log: an event of `tracing` for each line, and a file of JSON lines.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    path::{Path, PathBuf},
    time::SystemTime,
};

use serde_json::json;

use super::job::Job;
use crate::commands::streams::shown as time;

/// The bytes from which the file is renamed, and a new one begins.
const MOST: u64 = 16 << 20;

/// The file of the audit log.
#[derive(Debug)]
pub(super) struct Audit {
    path: Option<PathBuf>,
    most: u64,
}

impl Audit {
    pub(super) const fn new(path: Option<PathBuf>) -> Self {
        Self { path, most: MOST }
    }

    /// Writes a line about a job. The caller has a lock, so that lines don't mix.
    pub(super) fn write(&self, event: &str, by: &str, job: &Job) -> io::Result<()> {
        let (state, error) = (job.state().name(), job.error());
        let (id, kind) = (job.id.as_str(), job.kind);
        let arguments = &job.arguments;
        tracing::info!(target: "index_table_admin::operations", event, by, job = id, kind, %arguments, state, error);
        let Some(path) = &self.path else { return Ok(()) };
        let line = json!({
            "time": time(SystemTime::now()),
            "event": event,
            "by": by,
            "job": id,
            "kind": kind,
            "arguments": arguments,
            "state": state,
            "error": error,
        });
        let mut file = self.file(path)?;
        // A full disk can have cut the last line.
        let is_cut = file.seek(SeekFrom::End(-1)).is_ok() && {
            let mut last = [0];
            file.read_exact(&mut last)?;
            last != *b"\n"
        };
        let start = if is_cut { "\n" } else { "" };
        // One call, so that a line is whole or missing.
        file.write_all(format!("{start}{line}\n").as_bytes())?;
        file.sync_data()
    }

    /// Opens the file, which only its user can read, after it was renamed if it is long.
    fn file(&self, path: &Path) -> io::Result<File> {
        if path.metadata().is_ok_and(|file| file.len() >= self.most) {
            let mut earlier = path.as_os_str().to_owned();
            earlier.push(".1");
            fs::rename(path, earlier)?;
        }
        let mut options = OpenOptions::new();
        options.read(true).create(true).append(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        options.open(path)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tracing::{Event, Metadata, Subscriber, field, span, subscriber::with_default};

    use super::*;

    /// Keeps the fields of events.
    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<String>>>);

    impl field::Visit for Kept {
        fn record_debug(&mut self, field: &field::Field, value: &dyn std::fmt::Debug) {
            self.0.lock().expect("no panic").push(format!("{field}={value:?}"));
        }
    }

    impl Subscriber for Kept {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }

        fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
            span::Id::from_u64(1)
        }

        fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

        fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

        fn event(&self, event: &Event<'_>) {
            event.record(&mut self.clone());
        }

        fn enter(&self, _: &span::Id) {}

        fn exit(&self, _: &span::Id) {}
    }

    #[test]
    fn each_line_is_an_event() {
        let kept = Kept::default();
        let job = Job::new("7".to_owned(), ("verify", true), json!({ "table": "a" }), "alice");
        with_default(kept.clone(), || Audit::new(None).write("start", "alice", &job))
            .expect("written");
        let fields = kept.0.lock().expect("no panic").join(" ");
        for field in ["event=\"start\"", "by=\"alice\"", "job=\"7\"", "{\"table\":\"a\"}"] {
            assert!(fields.contains(field), "{fields}");
        }
    }

    #[test]
    fn a_cut_line_does_not_damage_the_next() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("audit.jsonl");
        fs::write(&path, "{\"event\":\"sta").expect("a file");
        let job = Job::new("7".to_owned(), ("verify", true), json!({}), "alice");
        Audit::new(Some(path.clone())).write("start", "alice", &job).expect("written");
        let text = fs::read_to_string(path).expect("a file");
        let last = text.lines().last().expect("a line");
        assert!(serde_json::from_str::<serde_json::Value>(last).is_ok(), "{text}");
        assert_eq!(text.lines().count(), 2);
    }

    #[test]
    fn the_file_is_bounded_and_lines_are_whole() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("audit.jsonl");
        let audit = Audit { path: Some(path.clone()), most: 1000 };
        let job = Job::new("7".to_owned(), ("verify", true), json!({}), "alice");
        for _ in 0..50 {
            audit.write("start", "alice", &job).expect("written");
        }
        let files = fs::read_dir(dir.path()).expect("a directory").count();
        assert_eq!(files, 2);
        for name in ["audit.jsonl", "audit.jsonl.1"] {
            let text = fs::read_to_string(dir.path().join(name)).expect("a file");
            assert!(text.len() < 2000, "{}", text.len());
            for line in text.lines() {
                let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
                assert_eq!((&line["by"], &line["job"]), (&json!("alice"), &json!("7")));
            }
        }
    }
}
