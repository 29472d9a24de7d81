//! A writer that was killed while another process reads, and is replaced.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use super::{Failure, Known};
use crate::{random::Random, shop::Shop};

/// The number of the scenario in which the first process writes.
const WRITES: &str = "0";

/// Kills a process that writes. This process reads the store from before that on, so nothing may be rewound.
pub(super) fn leave_behind(path: &Path, known: &mut Known) -> Result<Option<Shop>, Failure> {
    let mut random = Random(known.random);
    let told = |error: std::io::Error| error.to_string();
    let mut child = Command::new(std::env::current_exe().map_err(told)?)
        .args(["crash-child".as_ref(), WRITES.as_ref(), path.as_os_str()])
        .stdout(Stdio::piped())
        .spawn()
        .map_err(told)?;
    let mut lines = BufReader::new(child.stdout.take().ok_or("no output")?).lines();
    // It is open after the first line, and each other one acknowledges a commit.
    let first: Vec<_> = lines.by_ref().take(2 + random.below(10) as usize).collect();
    let reader = crate::options()
        .read_only(true)
        .open(path.join("store"))
        .and_then(Shop::new)
        .map_err(|error| error.to_string())?;
    std::thread::sleep(Duration::from_micros(random.below(5_000)));
    child.kill().and_then(|()| child.wait()).map_err(told)?;
    let lines = first.into_iter().chain(lines).map_while(Result::ok);
    known.acknowledged += lines.filter(|line| line == "done").count() as u64;
    // A copy of the files has the last commit, which the process may not have acknowledged.
    let copy = tempfile::tempdir_in(path.parent().ok_or("no directory")?).map_err(told)?;
    for entry in fs::read_dir(path.join("store")).map_err(told)? {
        let entry = entry.map_err(told)?;
        if entry.file_name() != "lock.mdb" {
            fs::copy(entry.path(), copy.path().join(entry.file_name())).map_err(told)?;
        }
    }
    let found = crate::options().open(copy.path()).and_then(Shop::new);
    let found = found.and_then(|shop| shop.steps()).map_err(|error| error.to_string())?;
    let said = known.acknowledged;
    match found.checked_sub(said) {
        Some(more @ (0 | 1)) => known.found += more,
        _ => return Err(format!("{said} transactions are known, and {found} are there")),
    }
    Ok(Some(reader))
}
