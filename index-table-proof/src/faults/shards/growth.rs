//! System calls that fail while a store with one data file gets a second one. A range of rows and slots of the global index move to
//! the new shard and back, the shard is removed, and another one is added.

use std::path::Path;

use index_table::{Error, Result, Store};

use super::{ALL, Commits, Failure, Opened, Run, TENANTS, list::has, prove};

/// The shard that is added, and its directories: of the growth, and after its removal.
const ADDED: &str = "east";
const DIRECTORIES: [&str; 2] = ["east", "east-again"];

/// The shard in the first data file.
const MAIN: &str = "main";

/// The steps, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Grow,
    Move,
    Return,
    Remove,
    Again,
}

const STEPS: [Step; 5] = [Step::Grow, Step::Move, Step::Return, Step::Remove, Step::Again];

fn open(path: &Path) -> Result<Opened> {
    Opened::with(crate::journal().map_size(1 << 17).open(path)?)
}

/// Makes a step, unless it was made before.
fn change(opened: &Opened, step: Step) -> Result<()> {
    let store = &opened.store;
    match step {
        Step::Grow if !has(store, ADDED) => store.add_shard(ADDED, DIRECTORIES[0]).map(drop),
        Step::Move => move_all(opened, ADDED),
        Step::Return => move_all(opened, MAIN),
        Step::Remove if has(store, ADDED) => store.remove_shard(ADDED),
        Step::Again if !has(store, ADDED) => store.add_shard(ADDED, DIRECTORIES[1]).map(drop),
        _ => Ok(()),
    }
}

/// Moves the rows of the tenants from 1, and half of the global index.
fn move_all(opened: &Opened, to: &str) -> Result<()> {
    opened.end_moves(true)?;
    opened.store.move_range("parts", 1_u8.., to).run()?;
    opened.store.move_slots("labels.code", 0..8192, to).run().map(drop)
}

/// The work of the child.
pub(in crate::faults) fn child(path: &Path) -> Result<(), Failure> {
    let mut run = Run { open, ..Run::new("store", path) };
    run.steps(TENANTS + 1)?;
    for step in STEPS {
        println!("step {step:?}");
        make(&mut run, step)?;
        run.steps(TENANTS + 1)?;
    }
    Ok(())
}

/// Makes a step. After an error, a transaction is committed in the store as it was left, and the step is made again. A fault that
/// has not ended stops the child.
fn make(run: &mut Run, step: Step) -> Result<(), Failure> {
    for _ in 0..3 {
        let Some(opened) = run.open()? else { continue };
        match change(&opened, step) {
            Ok(()) => {
                run.opened = Some(opened);
                return Ok(());
            }
            Err(Error::CommitUnknown { .. }) => {
                println!("error: the step is unknown");
                println!("reopened");
            }
            Err(error) => {
                run.met(opened, &error, ALL)?;
                run.steps(1)?;
            }
        }
    }
    if std::env::var("FAULT_MODE").is_ok_and(|mode| mode != "always") {
        return Err(format!("{step:?} fails again after a single fault"));
    }
    println!("stopped");
    std::process::exit(0)
}

/// Opens the store without faults, and makes the last step of the child and the following ones.
pub(in crate::faults) fn judge(said: &str, files: &Path) -> Result<(), Failure> {
    let shown = |error: Error| error.to_string();
    let mut run = prove(said, "store", files, open)?;
    let begun = |step: &Step| said.contains(&format!("step {step:?}"));
    let first = STEPS.into_iter().rfind(begun).unwrap_or(Step::Grow);
    for step in STEPS.into_iter().filter(|step| *step >= first) {
        let opened = run.opened.take().ok_or("no store")?;
        let made = change(&opened, step);
        made.map_err(|error| format!("{step:?}, without a fault: {error}"))?;
        drop(opened);
        // A reader needs no writer before it.
        let reader = Opened::read(&run.path).map_err(|error| format!("a reader: {error}"))?;
        reader.compare_labels().map_err(shown)??;
        drop(reader);
        let opened = open(&run.path).map_err(shown)?;
        check(&opened, &mut run.commits, &mut run.unknown)
            .map_err(|wrong| format!("after {step:?}: {wrong}"))?;
        run.opened = Some(opened);
    }
    Ok(())
}

/// Checks the store, commits, and checks it again.
fn check(opened: &Opened, commits: &mut Commits, unknown: &mut Option<u8>) -> Result<(), Failure> {
    let shown = |error: Error| error.to_string();
    super::require_all(&opened.store).map_err(shown)?;
    for is_written in [false, true] {
        opened.compare(commits, unknown).map_err(shown)??;
        opened.compare_labels().map_err(shown)??;
        let report = Store::verify(&opened.store).map_err(shown)?;
        if !report.is_clean() {
            return Err(report.to_string());
        }
        if !is_written {
            (0..=ALL).try_for_each(|tenant| opened.commit(tenant, commits)).map_err(shown)?;
        }
    }
    Ok(())
}
