//! Whether index-table keeps what it promises when processes are killed, when the operating system
//! refuses, and when files are damaged. `docs/RELIABILITY.md` says what that proves, with the figures.
//!
//! ```text
//! index-table-proof crash [ROUNDS [SEED]]
//! index-table-proof faults [ONE IN SO MANY]
//! ```

mod crash;
mod faults;
mod random;
mod shop;

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let number = |at: usize, default| match arguments.get(at) {
        Some(text) => text.parse().map_err(|_| format!("`{text}` is no number")),
        None => Ok(default),
    };
    let outcome = match arguments.as_slice() {
        ["crash-child", scenario, path] => crash::child(scenario, path),
        ["crash", ..] => number(1, 200).and_then(|rounds| crash::run(rounds, number(2, 1)?)),
        ["faults-child", path] => faults::child(path),
        ["faults", ..] => number(1, 1).and_then(faults::run),
        _ => Err("crash [ROUNDS [SEED]]".to_owned()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
