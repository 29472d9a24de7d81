//! Commands to a running service, which does their work.

use std::{
    fs,
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use clap::{Parser, Subcommand};
use serde_json::{Value, json};

use crate::{
    cli::{EXIT_CODES, Form},
    client::{Answer, Page},
    failure::{Code, Failure},
    interrupt::on_ctrl_c,
    operations::Work,
    output::{Align, Grid, Output},
    progress::Bar,
    value::printable,
};

/// The variable with the token of operations.
const VARIABLE: &str = "INDEX_TABLE_OPERATIONS_TOKEN";

/// The longest pause between two requests for the progress, and the time for which a service may be unreachable.
const PAUSE: Duration = Duration::from_millis(500);
const PATIENCE: Duration = Duration::from_secs(30);

/// The maximum bytes of a file with a token.
const LONGEST: u64 = 4096;

/// Operates a running service, which has its store open.
///
/// The service has to offer operations. The arguments are those of the command without `--url`, without STORE. A command starts a job, shows
/// its progress, and ends with it. Ctrl-C ends the command only: the job goes on, and `cancel-job` cancels it.
#[derive(Debug, Parser)]
#[command(version, after_help = EXIT_CODES)]
pub(crate) struct RemoteCli {
    #[command(flatten)]
    pub(crate) form: Form,
    #[command(flatten)]
    service: ServiceOptions,
    #[command(subcommand)]
    command: RemoteCommand,
}

#[derive(Debug, clap::Args)]
struct ServiceOptions {
    /// The address of the page that the service mounts, such as `http://127.0.0.1:3000/admin/`.
    #[arg(long, global = true, default_value = "", hide_default_value = true)]
    url: String,
    /// A file with the token of operations. Default: the variable `INDEX_TABLE_OPERATIONS_TOKEN`.
    #[arg(long, global = true, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum RemoteCommand {
    #[command(flatten)]
    Start(Work),
    /// List the running jobs, and the last ended ones.
    Jobs,
    /// Show a job.
    Job {
        /// The id of the job.
        id: String,
    },
    /// Ask a job to end.
    CancelJob {
        /// The id of the job.
        id: String,
    },
    /// Show the health of the store, and the jobs.
    Status,
}

impl RemoteCli {
    pub(crate) fn run(self, out: &Output) -> Result<(), Failure> {
        let Self { service, command, .. } = self;
        let token = service.token()?;
        let page = Page::of(&service.url, Some(&token), "there is no service at")?;
        match command {
            RemoteCommand::Start(work) => start(out, &page, &work),
            RemoteCommand::Jobs => jobs(out, &page),
            RemoteCommand::Job { id } => show(out, &job(&page, &id)?),
            RemoteCommand::CancelJob { id } => {
                check_id(&id)?;
                let name = format!("operations/{id}/cancel");
                let job = accepted(&page, &page.post(&name, "{}")?)?;
                Ok(out.put(&job, |text| writeln!(text, "job `{id}` was asked to end"))?)
            }
            RemoteCommand::Status => status(out, &page),
        }
    }
}

impl ServiceOptions {
    fn token(&self) -> Result<String, Failure> {
        let token = match &self.token_file {
            None => std::env::var(VARIABLE).unwrap_or_default(),
            Some(path) => {
                let unreadable = |reason: String| {
                    Failure::arguments(format!("`{}` has no token: {reason}", path.display()))
                };
                let file = fs::metadata(path).map_err(|error| unreadable(error.to_string()))?;
                if file.len() > LONGEST {
                    return Err(unreadable(format!("it is longer than {LONGEST} bytes")));
                }
                fs::read_to_string(path).map_err(|error| unreadable(error.to_string()))?
            }
        };
        let token = token.trim();
        if token.is_empty() {
            return Err(Failure::arguments(format!(
                "operations need a token; give `--token-file FILE`, or set the variable `{VARIABLE}`"
            )));
        }
        Ok(token.to_owned())
    }
}

/// Returns the JSON of an answer that is no refusal.
fn accepted(page: &Page<'_>, answer: &Answer) -> Result<Value, Failure> {
    let value: Value = serde_json::from_str(&answer.body).unwrap_or_default();
    if (200..300).contains(&answer.status) && value.is_object() {
        return Ok(value);
    }
    // The page of a service without operations, or of another server, has no JSON.
    if let (Some(error), Some(code)) = (at(&value, "/error").as_str(), at(&value, "/code").as_u64())
    {
        return Err(Failure::new(Code::of(code), error));
    }
    let (place, status) = (&page.shown, answer.status);
    Err(match status {
        404 | 405 => Failure::not_found(format!(
            "the service at `{place}` offers no operations; check the path of its page, or mount `Operations::router`"
        )),
        401 | 403 => Failure::new(
            Code::Unavailable,
            format!(
                "`{place}` refuses the request before it reaches the operations: the status is {status}"
            ),
        ),
        _ => page.unavailable(&format!("the status is {status}")),
    })
}

/// Checks that an id can be a part of a path.
fn check_id(id: &str) -> Result<(), Failure> {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '-';
    if !id.is_empty() && id.chars().all(is_part) {
        return Ok(());
    }
    Err(Failure::arguments(format!(
        "`{}` is not the id of a job; `jobs` lists them",
        printable(id)
    )))
}

/// Returns a part of a value, or null.
fn at<'v>(value: &'v Value, path: &str) -> &'v Value {
    value.pointer(path).unwrap_or(&Value::Null)
}

fn job(page: &Page<'_>, id: &str) -> Result<Value, Failure> {
    check_id(id)?;
    accepted(page, &page.get(&format!("operations/{id}"))?)
}

/// Starts a job, and shows it until it ends.
fn start(out: &Output, page: &Page<'_>, work: &Work) -> Result<(), Failure> {
    let (kind, arguments) = work.arguments()?;
    let name = format!("operations/{kind}");
    let job = accepted(page, &page.post(&name, &arguments.to_string())?)?;
    let id = at(&job, "/id").as_str().unwrap_or_default().to_owned();
    let url = &page.shown;
    let message = format!("job `{id}` goes on; `--url {url} cancel-job {id}` cancels it");
    on_ctrl_c(out, message, || ());
    finish(out, &follow(out, page, job, &id)?, &id)
}

/// Shows the progress and the notes of a job until it ends. Returns the ended job.
fn follow(out: &Output, page: &Page<'_>, begun: Value, id: &str) -> Result<Value, Failure> {
    let (bar, mut shown_notes, mut job) = (Bar::new(), 0, begun);
    let (mut pause, mut reached) = (Duration::from_millis(20), Instant::now());
    loop {
        let notes = at(&job, "/notes").as_array().map_or(&[][..], Vec::as_slice);
        for note in notes.iter().skip(shown_notes).filter_map(Value::as_str) {
            out.note(note);
        }
        shown_notes = notes.len();
        let progress = at(&job, "/progress");
        if let (Some(unit), Some(done)) =
            (at(progress, "/unit").as_str(), at(progress, "/done").as_u64())
        {
            bar.count(unit, done, at(progress, "/total").as_u64());
        }
        if !at(&job, "/outcome").is_null() {
            return Ok(job);
        }
        thread::sleep(pause);
        pause = (pause * 2).min(PAUSE);
        match self::job(page, id) {
            Ok(found) => (job, reached) = (found, Instant::now()),
            Err(failure) if failure.code == Code::NotFound => {
                let message = format!(
                    "the service no longer has job `{id}`, so its process was restarted; a move that it has interrupted is in \
                     `moves`, and `resume-move` continues it"
                );
                return Err(Failure::new(Code::Unavailable, message));
            }
            Err(failure) if reached.elapsed() < PATIENCE => drop(failure),
            Err(Failure { code, message, .. }) => {
                return Err(Failure::new(
                    code,
                    format!("{message}; job `{id}` may still run: `job {id}` shows it"),
                ));
            }
        }
    }
}

/// Shows the result of an ended job as its command does.
fn finish(out: &Output, job: &Value, id: &str) -> Result<(), Failure> {
    let outcome = at(job, "/outcome");
    let text = at(outcome, "/text").as_str().unwrap_or_default();
    let (result, only_text) = (at(outcome, "/result"), json!({ "text": text }));
    let is_left_out = result.is_null() && !text.is_empty();
    if is_left_out {
        out.note("the service left out the whole result, which is too long; this is its beginning");
    }
    if is_left_out || !result.is_null() {
        let result = if is_left_out { &only_text } else { result };
        out.put(result, |lines| lines.write_all(text.as_bytes()))?;
    }
    let Some(error) = at(outcome, "/error").as_str() else { return Ok(()) };
    let code = Code::of(at(outcome, "/code").as_u64().unwrap_or_default());
    if at(job, "/state") == "cancelled" {
        return Err(Failure::new(code, format!("job `{id}` was cancelled: {error}")));
    }
    Err(Failure::new(code, error))
}

/// Shows a job, whether it runs or has ended.
fn show(out: &Output, job: &Value) -> Result<(), Failure> {
    Ok(out.put(job, |text| {
        let line =
            |name: &str| job.get(name).unwrap_or(&Value::Null).as_str().unwrap_or("-").to_owned();
        writeln!(text, "job {}: {}, {}", line("id"), line("kind"), line("state"))?;
        writeln!(text, "arguments: {}", at(job, "/arguments"))?;
        writeln!(text, "by: {}", line("by"))?;
        writeln!(text, "started: {}", line("started"))?;
        writeln!(text, "ended: {}", line("ended"))?;
        if let Some(progress) = progress(job) {
            writeln!(text, "progress: {progress}")?;
        }
        for note in at(job, "/notes").as_array().into_iter().flatten().filter_map(Value::as_str) {
            writeln!(text, "note: {note}")?;
        }
        if let Some(error) = at(job, "/outcome/error").as_str() {
            writeln!(text, "error: {error}")?;
        }
        text.write_all(at(job, "/outcome/text").as_str().unwrap_or_default().as_bytes())
    })?)
}

fn progress(job: &Value) -> Option<String> {
    let progress = at(job, "/progress");
    let (unit, done) = (at(progress, "/unit").as_str()?, at(progress, "/done").as_u64()?);
    Some(match at(progress, "/total").as_u64() {
        Some(total) => format!("{done} of {total} {unit}"),
        None => format!("{done} {unit}"),
    })
}

fn jobs(out: &Output, page: &Page<'_>) -> Result<(), Failure> {
    let all = accepted(page, &page.get("operations")?)?;
    let mut grid = grid(&all);
    Ok(out.put(&all, |text| out.grid(text, &mut grid))?)
}

fn grid(all: &Value) -> Grid {
    let columns = ["job", "operation", "state", "by", "started", "ended", "progress or error"];
    let mut grid = Grid::new(columns.map(|name| (name, Align::Left)));
    for job in ["/running", "/ended"].iter().filter_map(|part| at(all, part).as_array()).flatten() {
        let text =
            |name: &str| job.get(name).unwrap_or(&Value::Null).as_str().unwrap_or("-").to_owned();
        let error = at(job, "/outcome/error").as_str().map(str::to_owned);
        let last = error.or_else(|| progress(job)).unwrap_or_default();
        let names = ["id", "kind", "state", "by", "started", "ended"];
        grid.row(names.map(text).into_iter().chain([last]));
    }
    grid
}

/// Shows the health as the service sees it, and its jobs.
fn status(out: &Output, page: &Page<'_>) -> Result<(), Failure> {
    let all = accepted(page, &page.get("operations")?)?;
    let answer = page.get("healthz")?;
    let health: Value = serde_json::from_str(&answer.body).unwrap_or_default();
    let Some(reasons) = at(&health, "/reasons").as_array() else {
        let mut grid = grid(&all);
        let value = json!({
            "healthy": null,
            "reasons": [],
            "running": at(&all, "/running"),
            "ended": at(&all, "/ended"),
        });
        out.put(&value, |text| out.grid(text, &mut grid))?;
        let reason = format!("`healthz` has no JSON, and the status {}", answer.status);
        return Err(page.unavailable(&reason));
    };
    let mut grid = grid(&all);
    let value = json!({
        "healthy": reasons.is_empty(),
        "reasons": reasons,
        "running": at(&all, "/running"),
        "ended": at(&all, "/ended"),
    });
    let message = |reason: &Value| at(reason, "/message").as_str().unwrap_or_default().to_owned();
    out.put(&value, |text| {
        for reason in reasons {
            writeln!(
                text,
                "{}: {}",
                at(reason, "/kind").as_str().unwrap_or_default(),
                printable(&message(reason))
            )?;
        }
        if reasons.is_empty() {
            writeln!(text, "healthy")?;
        }
        out.grid(text, &mut grid)
    })?;
    match reasons.as_slice() {
        [] => Ok(()),
        [first, ..] => Err(Failure::damage(format!(
            "the store needs attention, for {} reasons; the first: {}",
            reasons.len(),
            message(first)
        ))),
    }
}
