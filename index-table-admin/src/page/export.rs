//! The rows of a filter as a file, which is sent while it is read.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    thread::sleep,
    time::{Duration, Instant},
};

use axum::{
    body::{Body, Bytes},
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use futures_core::Stream;
use index_table::__private::admin::{UntypedEntry, checked};
use tokio::sync::{
    mpsc::{self, error::TrySendError},
    oneshot,
};

use super::{Page, failed, parameters::Parameters, refusal, rows::List};
use crate::{
    cli::unless_closed,
    commands::keys,
    failure::Failure,
    forms::{Format, Writer},
};

/// The bytes of a chunk, and the maximum number of chunks that wait for the client.
const CHUNK: usize = 1 << 16;
const CHUNKS: usize = 4;

/// The time for which an export waits for its turn.
const TURN: Duration = Duration::from_secs(1);

/// The time between looks whether a slow client has received a chunk.
const PAUSE: Duration = Duration::from_millis(5);

/// The rows to export.
pub(super) struct Export {
    pub(super) table: String,
    pub(super) index: Option<String>,
    pub(super) query: Parameters,
}

impl Export {
    /// Sends the rows. They are read by a thread of the blocking pool, which ends when the client does not read on, or when the time for
    /// an export is over. After an error, the response ends without its last chunk, so that no client takes it for complete.
    pub(super) async fn send(self, page: Arc<Page>) -> Response {
        let up = if self.index.is_some() { "../../" } else { "../" };
        let turn = Arc::clone(&page.exports).acquire_owned();
        let Ok(Ok(turn)) = tokio::time::timeout(TURN, turn).await else {
            let message = "other exports are running; try again later";
            return refusal(StatusCode::SERVICE_UNAVAILABLE, message, up);
        };
        let (chunks, body) = mpsc::channel(CHUNKS);
        let (begin, head) = oneshot::channel();
        let export = move || {
            let _turn = turn;
            checked(|| self.run(&page, begin, &chunks));
        };
        drop(tokio::task::spawn_blocking(export));
        match head.await {
            Ok(Ok((content_type, name))) => {
                let headers = [
                    (header::CONTENT_TYPE, HeaderValue::from_static(content_type)),
                    (header::CONTENT_DISPOSITION, name),
                ];
                (headers, Body::from_stream(Chunks(body))).into_response()
            }
            Ok(Err(failure)) => failed(&failure, up),
            Err(_) => refusal(StatusCode::INTERNAL_SERVER_ERROR, "the export has failed", up),
        }
    }

    fn run(
        self,
        page: &Page,
        begin: oneshot::Sender<Result<(&'static str, HeaderValue), Failure>>,
        chunks: &mpsc::Sender<Part>,
    ) {
        let mut begin = Some(begin);
        if let Err(failure) = self.write(page, &mut begin, chunks) {
            // A response that has begun fails, because its end is missing.
            let _ = begin.map(|begin| begin.send(Err(failure)));
        }
    }

    fn write(
        &self,
        page: &Page,
        begin: &mut Option<oneshot::Sender<Result<(&'static str, HeaderValue), Failure>>>,
        chunks: &mpsc::Sender<Part>,
    ) -> Result<(), Failure> {
        let table = page.table(&self.table)?;
        if !page.shows_rows(&table) {
            return Err(Failure::not_found(
                "this page shows the keys of the table, and not its rows",
            ));
        }
        let (form, content_type, end) = match self.query.get("form") {
            Some("jsonl") => (Format::Jsonl, "application/jsonl", "jsonl"),
            Some("csv") => (Format::Csv, "text/csv; charset=utf-8; header=present", "csv"),
            _ => return Err(Failure::arguments("`form` is `jsonl` or `csv`")),
        };
        let list = List::of(page, &table, self.index.as_deref(), &self.query)?;
        let range = list.range(None)?;
        let mut columns = self.query.columns().to_vec();
        if columns.is_empty() && form == Format::Csv {
            columns = list.known()?;
        }
        let txn = page.store.read()?;
        let name = self.table.chars().map(|it| if it.is_ascii_alphanumeric() { it } else { '_' });
        let name: String = name.take(100).collect();
        let name = HeaderValue::from_str(&format!("attachment; filename=\"{name}.{end}\""))
            .map_err(|error| Failure::other(error.to_string()))?;
        let deadline = Instant::now() + page.limits.export;
        let to = Sender { chunks, chunk: Vec::with_capacity(CHUNK), deadline };
        let mut rows = Writer::new(to, form, columns);
        if let Some(begin) = begin.take() {
            let _ = begin.send(Ok((content_type, name)));
        }
        let (primary, mut json) = (table.primary_key(), String::new());
        table.each_entry(&txn, &range, |entry| {
            if Instant::now() > deadline {
                return Err(late());
            }
            if chunks.is_closed() {
                return Ok(false);
            }
            json.clear();
            let appended = match list.data(&txn, &entry)? {
                None if self.index.as_ref().is_some_and(|it| table.is_eventual(it)) => {
                    return Ok(true);
                }
                None => Err(Failure::damage("the entry has no row")),
                Some(data) => page.append(&table, &UntypedEntry { data, ..entry }, &mut json),
            };
            match appended {
                Ok(true) => rows.row(&json),
                Ok(false) => Err(Failure::not_found("the rows have another type")),
                Err(failure) => {
                    let key = keys::json_of(&primary, entry.primary_key);
                    let key = key.map_or_else(|failure| failure.message, |key| key.to_string());
                    rows.damaged(&key, &failure.message)
                }
            }
        })?;
        rows.end()?;
        let mut to = rows.into_inner();
        unless_closed(to.send(Part::End)).map(drop)
    }
}

fn late() -> Failure {
    Failure::other("the time for an export is over; use the command `rows` or `dump`")
}

/// Sends what is written in chunks.
struct Sender<'c> {
    chunks: &'c mpsc::Sender<Part>,
    chunk: Vec<u8>,
    deadline: Instant,
}

impl Sender<'_> {
    /// Waits until the client has room for a part.
    fn send(&mut self, mut part: Part) -> io::Result<()> {
        // Not by the timer of the runtime, which may have ended.
        loop {
            match self.chunks.try_send(part) {
                Ok(()) => return Ok(()),
                Err(TrySendError::Closed(_)) => return Err(io::ErrorKind::BrokenPipe.into()),
                Err(TrySendError::Full(full)) if Instant::now() < self.deadline => part = full,
                Err(TrySendError::Full(_)) => return Err(io::Error::other(late().message)),
            }
            sleep(PAUSE);
        }
    }
}

impl io::Write for Sender<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.chunk.extend_from_slice(bytes);
        if self.chunk.len() >= CHUNK {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.chunk.is_empty() {
            return Ok(());
        }
        let chunk = std::mem::replace(&mut self.chunk, Vec::with_capacity(CHUNK));
        self.send(Part::Chunk(chunk.into()))
    }
}

/// A part of the body of a response.
enum Part {
    Chunk(Bytes),
    End,
}

/// The body of a response. It fails if its end is missing.
struct Chunks(mpsc::Receiver<Part>);

impl Stream for Chunks {
    type Item = io::Result<Bytes>;

    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Bytes>>> {
        self.0.poll_recv(context).map(|part| match part {
            Some(Part::Chunk(chunk)) => Some(Ok(chunk)),
            Some(Part::End) => None,
            None => Some(Err(io::Error::other("the export has failed"))),
        })
    }
}
