//! A job: an operation that runs, or has ended.

use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU8, Ordering::Relaxed},
    },
    time::SystemTime,
};

use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    commands::streams::shown as time,
    failure::{Code, Failure},
};

/// The maximum number of notes of a job.
const NOTES: usize = 100;

/// The maximum bytes that a job keeps of its text, and of its result as JSON. A longer text is cut, and a longer result left out.
const TEXT: usize = 64 << 10;
const RESULT: usize = 256 << 10;

/// What a job was asked for: nothing, to end because the service does, or to end because an operator has cancelled it.
const STOP: u8 = 1;
const CANCEL: u8 = 2;

/// A job. Its thread, and the requests about it, share it.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) id: String,
    pub(crate) kind: &'static str,
    pub(crate) arguments: Value,
    pub(crate) by: String,
    /// Whether its work can end early.
    pub(crate) is_cancellable: bool,
    pub(crate) started: SystemTime,
    asked: AtomicU8,
    live: Mutex<Live>,
}

/// What changes while a job runs.
#[derive(Debug, Default)]
struct Live {
    progress: Option<At>,
    notes: Vec<String>,
    result: Option<Value>,
    text: String,
    end: Option<End>,
}

/// The progress of a job.
#[derive(Debug, Clone, Serialize)]
struct At {
    unit: String,
    done: u64,
    total: Option<u64>,
}

/// The end of a job.
#[derive(Debug, Clone)]
struct End {
    at: SystemTime,
    state: State,
    /// The exit code and the message of an error.
    error: Option<(u8, String)>,
}

/// The state of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Running,
    /// It was asked to end, and has not ended yet.
    Cancelling,
    Done,
    Failed,
    /// It has ended early because it was asked to.
    Cancelled,
}

impl State {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Cancelling => "cancelling",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

impl Job {
    pub(super) fn new(
        id: String,
        (kind, is_cancellable): (&'static str, bool),
        arguments: Value,
        by: &str,
    ) -> Self {
        Self {
            id,
            kind,
            arguments,
            by: by.to_owned(),
            is_cancellable,
            started: SystemTime::now(),
            asked: AtomicU8::new(0),
            live: Mutex::default(),
        }
    }

    fn live(&self) -> MutexGuard<'_, Live> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the job to end because the service does.
    pub(super) fn stop(&self) {
        self.asked.fetch_max(STOP, Relaxed);
    }

    /// Asks the job to end because an operator has cancelled it.
    pub(super) fn cancel(&self) {
        self.asked.fetch_max(CANCEL, Relaxed);
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.is_cancellable && self.asked.load(Relaxed) >= STOP
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.is_cancellable && self.asked.load(Relaxed) == CANCEL
    }

    /// Sets the number of finished units, and of all units if it is known.
    pub(crate) fn count(&self, unit: &str, done: u64, total: Option<u64>) {
        self.live().progress = Some(At { unit: unit.to_owned(), done, total });
    }

    pub(crate) fn note(&self, text: &str) {
        let mut live = self.live();
        if live.notes.len() < NOTES {
            live.notes.push(text.to_owned());
        }
    }

    /// Sets the result, as the command writes it.
    pub(crate) fn put(&self, result: Value, text: &str) {
        let mut live = self.live();
        live.text = cut(text, TEXT);
        // The length of JSON is known only when it is written.
        live.result = Some(result).filter(|it| it.to_string().len() <= RESULT);
    }

    pub(super) fn end(&self, outcome: Result<(), Failure>) {
        let mut live = self.live();
        let state = match &outcome {
            Ok(()) => State::Done,
            // Damage that is found meanwhile is no consequence of the cancellation.
            Err(failure) if self.is_stopping() && failure.code != Code::Damage => State::Cancelled,
            Err(_) => State::Failed,
        };
        let error = outcome.err().map(|failure| {
            let code = if state == State::Cancelled { Code::Interrupted } else { failure.code };
            (code as u8, cut(&failure.message, TEXT))
        });
        live.end = Some(End { at: SystemTime::now(), state, error });
    }

    pub(crate) fn state(&self) -> State {
        match &self.live().end {
            Some(end) => end.state,
            None if self.is_stopping() => State::Cancelling,
            None => State::Running,
        }
    }

    /// Returns when the job has ended.
    pub(crate) fn ended(&self) -> Option<SystemTime> {
        self.live().end.as_ref().map(|end| end.at)
    }

    /// Returns the progress in words.
    pub(crate) fn progress(&self) -> Option<String> {
        let At { unit, done, total } = self.live().progress.clone()?;
        Some(match total {
            Some(total) => format!("{done} of {total} {unit}"),
            None => format!("{done} {unit}"),
        })
    }

    /// Returns the first line of the error or of the result.
    pub(crate) fn outcome(&self) -> String {
        let live = self.live();
        let error = live.end.as_ref().and_then(|end| end.error.as_ref());
        let text = error.map_or(&live.text, |(_, message)| message);
        text.lines().next().unwrap_or_default().to_owned()
    }

    /// Returns the error of an ended job.
    pub(super) fn error(&self) -> Option<String> {
        let live = self.live();
        live.end.as_ref().and_then(|end| end.error.as_ref()).map(|(_, message)| message.clone())
    }

    /// Returns the job as JSON, in a list without its result.
    pub(super) fn json(&self, is_whole: bool) -> Value {
        let state = self.state();
        let live = self.live();
        let outcome = live.end.as_ref().map(|end| {
            let (code, error) = match &end.error {
                Some((code, message)) => (*code, Some(message)),
                None => (0, None),
            };
            let mut outcome = json!({ "code": code, "error": error });
            if let Some(fields) = outcome.as_object_mut().filter(|_| is_whole) {
                fields.insert("result".to_owned(), json!(live.result));
                fields.insert("text".to_owned(), json!(live.text));
            }
            outcome
        });
        json!({
            "id": self.id,
            "kind": self.kind,
            "arguments": self.arguments,
            "by": self.by,
            "state": state.name(),
            "cancellable": self.is_cancellable,
            "started": time(self.started),
            "ended": live.end.as_ref().map(|end| time(end.at)),
            "progress": live.progress,
            "notes": live.notes,
            "outcome": outcome,
        })
    }
}

/// Cuts a text at a character.
fn cut(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let end = (0..=most).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    text.get(..end).unwrap_or_default().to_owned() + "…"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_job_keeps_is_bounded() {
        let job = Job::new("1".to_owned(), ("verify", true), json!({}), "alice");
        for _ in 0..2 * NOTES {
            job.note("a note");
        }
        job.put(json!("é".repeat(RESULT)), &"é".repeat(TEXT));
        job.end(Err(Failure::other("ä".repeat(TEXT))));
        let shown = job.json(true);
        assert_eq!(shown["notes"].as_array().map(Vec::len), Some(NOTES));
        assert_eq!(shown["outcome"]["result"], Value::Null);
        for text in ["text", "error"] {
            let length = shown["outcome"][text].as_str().map(str::len).expect("a text");
            assert!((TEXT / 2..=TEXT + 3).contains(&length), "{text}: {length}");
        }
    }

    #[test]
    fn only_work_that_can_end_early_is_asked_to() {
        let [one, other] = [("verify", true), ("backup", false)]
            .map(|kind| Job::new("1".to_owned(), kind, json!({}), "alice"));
        for job in [&one, &other] {
            job.cancel();
            job.stop();
        }
        assert!(one.is_cancelled() && one.state() == State::Cancelling);
        assert!(!other.is_stopping() && other.state() == State::Running);
    }
}
