//! The process that performs the steps. It reads a step a line, and prints what happened.

use std::{
    io::{BufRead, stdin},
    panic,
    path::Path,
    process::exit,
    sync::Arc,
    thread,
};

use index_table::Error;

use crate::{
    app::{App, say},
    copies,
    failure::Failure,
    perform::perform,
    script::Step,
};

/// Performs the steps from the parent until its end.
pub(crate) fn run(dir: &Path, config: &str) -> Result<(), String> {
    panic::set_hook(Box::new(|panic| {
        say(&format!("fault a panic: {panic}"));
        exit(1);
    }));
    let app = App::new(dir.to_owned(), config.parse()?);
    if let Err(failure) = copies::resume_promotion(&app) {
        say(&format!("fault {failure}"));
    }
    for line in stdin().lock().lines() {
        let line = line.map_err(|error| error.to_string())?;
        let (number, text) = line.split_once(' ').unwrap_or((&line, ""));
        let (number, step) = (number.to_owned(), Step::new(text));
        if step.name() == "ack" {
            app.remember(step.number(1) as u32, step.number(2));
        } else if step.beside {
            let app = Arc::clone(&app);
            thread::spawn(move || one(&app, &number, &step));
        } else {
            one(&app, &number, &step);
        }
    }
    app.close();
    Ok(())
}

/// Returns whether a step may fail in this way, and nothing has changed. Openings and checks may not, unless a shard is
/// missing or was restored. The keys of an unfinished offline move are read-only.
fn can_refuse(app: &App, step: &Step, failure: &Failure) -> bool {
    match step.name() {
        "open" | "close" | "check" | "compare-follower" | "promote" | "restore-archive"
        | "follow" => {
            let is_read_only = matches!(failure, Failure::Store(Error::ShardReadOnly { .. }));
            let is_missing = app.has("detached") || app.has("restored");
            let is_unreadable = failure.is_unreadable() && app.can_be_unreadable();
            is_read_only || is_unreadable || failure.is_expected() && is_missing
        }
        _ if failure.is_unreadable() => app.can_be_unbuilt(),
        _ => failure.is_refusal(),
    }
}

fn one(app: &Arc<App>, number: &str, step: &Step) {
    match perform(app, step) {
        Ok(()) => say(&format!("done {number}")),
        Err(failure) if can_refuse(app, step, &failure) => {
            say(&format!("done {number} refused: {failure}"));
        }
        Err(failure) => {
            say(&format!("fault {step}: {failure}"));
            say(&format!("done {number}"));
        }
    }
}
