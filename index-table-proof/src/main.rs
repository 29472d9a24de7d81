//! Tests of index-table's guarantees: processes are killed, power failures are simulated, system calls fail, and files are
//! damaged. `docs/RELIABILITY.md` has the guarantees and the results.
//!
//! ```text
//! index-table-proof crash [ROUNDS [SEED [SCENARIO]]]
//! index-table-proof faults [ONE IN N [plain | journal | shards | moves | shard-list | growth | over-time | promotion | promotion-of-shards]]
//! index-table-proof damage [BITS OF EACH PAGE [SEED]]
//! index-table-proof snapshots [SECONDS]
//! index-table-proof pairs [ROUNDS [SEED]]
//! index-table-proof pairs-weakened ROUNDS SEED
//! index-table-proof power [IMAGES [SEED [SCENARIO]]]
//! index-table-proof power-weakened IMAGES SEED SCENARIO FILE WITHOUT SYNCS
//! ```
//!
//! `PROOF_DURABILITY` is the durability of `crash` and `power`: `full` (the default), `relaxed`, `none` or `journal`.
//! A scenario is chosen by its name or a part of it.

mod crash;
mod damage;
mod faults;
mod pairs;
mod power;
mod sharded;
mod shop;
mod snapshots;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    time::Duration,
};

use index_table::{Durability, Options, Store};
use index_table_proof::{random, scratch};

const USAGE: &str = "crash [ROUNDS [SEED [SCENARIO]]], faults [ONE IN N [KIND]], damage [BITS OF EACH \
                     PAGE [SEED]], snapshots [SECONDS], pairs [ROUNDS [SEED]], pairs-weakened ROUNDS SEED, power [IMAGES [SEED [SCENARIO]]] or power-weakened \
                     IMAGES SEED SCENARIO FILE";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let number = |at: usize, default| match arguments.get(at) {
        Some(text) => text.parse().map_err(|_| format!("`{text}` is not a number")),
        None => Ok(default),
    };
    let outcome = match arguments.as_slice() {
        ["crash-child", scenario, path] => crash::child(scenario, path),
        ["crash", ..] => {
            let only = arguments.get(3).copied().unwrap_or_default();
            number(1, 200).and_then(|rounds| crash::run(rounds, number(2, 1)?, only))
        }
        ["faults-child", path, reserve, kind] => faults::child(path, reserve, kind),
        ["faults", ..] => {
            let only = arguments.get(2).copied().unwrap_or_default();
            number(1, 1).and_then(|every| faults::run(every, only))
        }
        ["damage-child", path, check] => damage::child(path, *check == "check"),
        ["damage", ..] => number(1, 8).and_then(|flips| damage::run(flips, number(2, 1)?)),
        ["snapshots-child", path, seconds] => snapshots::child(path, seconds),
        ["snapshots", ..] => number(1, 10).and_then(snapshots::run),
        ["pairs-child", access, path] => pairs::child(access, path),
        ["pairs", ..] => number(1, 4).and_then(|rounds| pairs::run(rounds, number(2, 1)?, false)),
        ["pairs-weakened", ..] => {
            number(1, 4).and_then(|rounds| pairs::run(rounds, number(2, 1)?, true))
        }
        ["power-judge", scenario, path, numbers @ ..] => power::judge(scenario, path, numbers),
        ["power", ..] => {
            let only = arguments.get(3).copied().unwrap_or_default();
            number(1, 1000).and_then(|images| power::run(images, number(2, 1)?, only))
        }
        ["power-weakened", _, _, only, ignored] => number(1, 1)
            .and_then(|images| power::run_weakened(images, number(2, 1)?, only, ignored)),
        _ => Err(USAGE.to_owned()),
    };
    index_table_proof::end(outcome)
}

/// Returns the options of the stores of `crash` and `power`.
fn options() -> Options {
    match durability_name().as_str() {
        "relaxed" => Store::options().durability(Durability::Relaxed),
        "none" => Store::options().durability(Durability::None),
        "full" => Store::options().durability(Durability::Full),
        _ => journal(),
    }
}

/// Returns options with a journal, and a checkpoint every few commits.
fn journal() -> Options {
    let options = Store::options().durability(Durability::Journal);
    options.checkpoint(1 << 18, 1 << 16, Duration::from_mins(1))
}

fn durability_name() -> String {
    std::env::var("PROOF_DURABILITY").unwrap_or_else(|_| "journal".to_owned())
}

/// Compiles a library that children preload.
fn compile(dir: &Path, name: &str, code: &str) -> Result<PathBuf, String> {
    let (source, shim) = (dir.join(format!("{name}.c")), dir.join(format!("{name}.so")));
    fs::write(&source, code).map_err(|error| error.to_string())?;
    let cc = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .arg(&shim)
        .arg(&source)
        .arg("-ldl")
        .output();
    let cc = cc.map_err(|error| format!("cc: {error}"))?;
    if cc.status.success() {
        Ok(shim)
    } else {
        Err(String::from_utf8_lossy(&cc.stderr).into_owned())
    }
}
