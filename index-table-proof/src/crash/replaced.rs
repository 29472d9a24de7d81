//! A writer that is killed while another process reads, and is replaced by a third process.

use std::{
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use index_table::Result;

use super::{Beside, Failure, Known, SCENARIOS, TOGETHER, together};
use crate::{random::Random, sharded::copy_files, shop::Shop};

/// Kills a process that writes a store, while this process reads it. So no process may rewind the data file.
pub(super) fn kill_writer(path: &Path, known: &mut Known) -> Result<Option<Beside>, Failure> {
    let open =
        |path: &Path| crate::options().read_only(true).open(path.join("store")).and_then(Shop::new);
    let count = |copy: &Path| super::open(copy)?.steps().map_err(|error| error.to_string());
    kill(("writes", "store", 1), path, known, &open, &count).map(|shop| Some(Beside::Shop(shop)))
}

/// Does the same with a sharded store.
pub(super) fn kill_writer_of_shards(
    path: &Path,
    known: &mut Known,
) -> Result<Option<Beside>, Failure> {
    let count = |copy: &Path| together::count(copy).map_err(|error| error.to_string());
    let (store, most) = ("together", u64::from(together::THREADS));
    kill((TOGETHER, store, most), path, known, &together::open_read_only, &count)
        .map(|tables| Some(Beside::Shards(tables)))
}

/// Kills a process that writes in a scenario, and returns the store that this process has opened before.
fn kill<R>(
    (scenario, store, most): (&str, &str, u64),
    path: &Path,
    known: &mut Known,
    open: &dyn Fn(&Path) -> Result<R>,
    count: &dyn Fn(&Path) -> Result<u64, Failure>,
) -> Result<R, Failure> {
    let mut random = Random(known.random);
    let shown = |error: std::io::Error| error.to_string();
    let number = SCENARIOS.iter().position(|other| other.name == scenario);
    let number = number.ok_or("no such scenario")?.to_string();
    let mut child = Command::new(std::env::current_exe().map_err(shown)?)
        .args(["crash-child".as_ref(), number.as_ref(), path.as_os_str()])
        .stdout(Stdio::piped())
        .spawn()
        .map_err(shown)?;
    let mut lines = BufReader::new(child.stdout.take().ok_or("no output")?).lines();
    // The store is open after the first line. Each further line acknowledges a commit.
    let first: Vec<_> = lines.by_ref().take(2 + random.below(10) as usize).collect();
    let reader = open(path).map_err(|error| error.to_string())?;
    std::thread::sleep(Duration::from_micros(random.below(5_000)));
    child.kill().and_then(|()| child.wait()).map_err(shown)?;
    let lines = first.into_iter().chain(lines).map_while(Result::ok);
    known.acknowledged += lines.filter(|line| line == "done").count() as u64;
    // Commits that were not acknowledged are counted in a copy of the files.
    let copy = tempfile::tempdir_in(path.parent().ok_or("no directory")?).map_err(shown)?;
    copy_files(&path.join(store), &copy.path().join(store)).map_err(shown)?;
    known.find(count(copy.path())?, most)?;
    Ok(reader)
}
