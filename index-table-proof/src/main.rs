//! Whether index-table keeps what it promises when processes are killed, when the operating system
//! refuses, and when files are damaged. `docs/RELIABILITY.md` says what that proves, with the figures.
//!
//! ```text
//! index-table-proof crash [ROUNDS [SEED [SCENARIO]]]
//! index-table-proof faults [ONE IN SO MANY]
//! index-table-proof damage [BITS OF EACH PAGE [SEED]]
//! index-table-proof snapshots [SECONDS]
//! ```

mod crash;
mod damage;
mod faults;
mod random;
mod shop;
mod snapshots;

use std::{path::Path, process::ExitCode};

const USAGE: &str = "crash [ROUNDS [SEED [SCENARIO]]], faults [ONE IN SO MANY], damage [BITS OF EACH \
                     PAGE [SEED]] or snapshots [SECONDS]";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let number = |at: usize, default| match arguments.get(at) {
        Some(text) => text.parse().map_err(|_| format!("`{text}` is no number")),
        None => Ok(default),
    };
    let outcome = match arguments.as_slice() {
        ["crash-child", scenario, path] => crash::child(scenario, path),
        ["crash", ..] => {
            let only = arguments.get(3).copied().unwrap_or_default();
            number(1, 200).and_then(|rounds| crash::run(rounds, number(2, 1)?, only))
        }
        ["faults-child", path, reserve] => faults::child(path, reserve),
        ["faults", ..] => number(1, 1).and_then(faults::run),
        ["damage-child", path, check] => damage::child(path, *check == "check"),
        ["damage", ..] => number(1, 8).and_then(|flips| damage::run(flips, number(2, 1)?)),
        ["snapshots-child", path, seconds] => snapshots::child(path, seconds),
        ["snapshots", ..] => number(1, 10).and_then(snapshots::run),
        _ => Err(USAGE.to_owned()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// A directory in memory where that is possible, for what doesn't depend on how long a disk takes.
fn scratch() -> std::io::Result<tempfile::TempDir> {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }
}
