//! The process that performs the steps. It reads a step a line, and prints what happened.

use std::{
    io::{BufRead, stdin},
    panic,
    path::Path,
    process::exit,
    sync::Arc,
    thread,
};

use crate::{
    app::{App, say},
    copies,
    perform::perform,
    script::Step,
};

/// Performs the steps from the parent until its end.
pub(crate) fn run(dir: &Path, config: &str) -> Result<(), String> {
    panic::set_hook(Box::new(|panic| {
        say(&format!("fault a panic: {panic}"));
        exit(1);
    }));
    let app = App::new(dir.to_owned(), config.parse()?, false);
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

fn one(app: &Arc<App>, number: &str, step: &Step) {
    match perform(app, step) {
        Ok(()) => say(&format!("done {number}")),
        Err(failure) if failure.is_refusal() => say(&format!("done {number} refused: {failure}")),
        Err(failure) => {
            say(&format!("fault {step}: {failure}"));
            say(&format!("done {number}"));
        }
    }
}
