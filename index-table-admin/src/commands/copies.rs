//! Checking, copying and cleaning a whole store.

use std::{
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use clap::Args;
use index_table::{CommitNumber, Store};
use serde_json::json;

use crate::{
    calendar,
    failure::{Code, Failure},
    open::Opened,
    output::Output,
    progress::Bar,
};

pub(crate) fn check(out: &Output, dir: &Path) -> Result<(), Failure> {
    let opened = Opened::to_read(dir)?;
    let bar = Bar::new();
    opened.store.check_with(&mut |at| bar.show(at))?;
    drop(bar);
    let missing = opened.missing_shards();
    if !missing.is_empty() {
        let message = format!("the available shards are intact; {}", missing.join("; "));
        return Err(Failure { code: Code::Unavailable, message });
    }
    let path = dir.display().to_string();
    Ok(out.put(&json!({ "store": path, "intact": true }), |text| {
        writeln!(text, "the pages of `{path}` are intact")
    })?)
}

pub(crate) fn copy(out: &Output, dir: &Path, to: &Path, compact: bool) -> Result<(), Failure> {
    let opened = Opened::to_read(dir)?;
    let bar = Bar::new();
    let backup = opened.store.backup(to).progress(|at| bar.show(at));
    if compact {
        backup.compact().run()?;
    } else {
        backup.run()?;
    }
    drop(bar);
    let (from, to) = (dir.display().to_string(), to.display().to_string());
    Ok(out.put(&json!({ "store": from, "copy": to }), |text| {
        writeln!(text, "copied `{from}` to `{to}`")
    })?)
}

/// The restore of an archive.
#[derive(Debug, Args)]
pub(crate) struct RestoreArchive {
    /// The directory of the archive.
    archive: PathBuf,
    /// The directory of the restored store.
    to: PathBuf,
    /// Restore the last commit at or before this time in UTC, such as 2026-11-24T09:30:00Z.
    #[arg(long, value_name = "TIME", value_parser = time)]
    until: Option<SystemTime>,
    /// Restore this commit, such as 1200, or 25.22.23 in a sharded store.
    #[arg(long, value_name = "COMMIT", value_parser = commit, conflicts_with = "until")]
    until_commit: Option<CommitNumber>,
}

impl RestoreArchive {
    pub(crate) fn run(self, out: &Output) -> Result<(), Failure> {
        let Self { archive, to, until, until_commit } = self;
        let bar = Bar::new();
        let mut restore = Store::restore_archive(&archive).progress(|at| bar.show(at));
        if let Some(time) = until {
            restore = restore.until(time);
        }
        if let Some(commit) = until_commit {
            restore = restore.until_commit(commit);
        }
        let last = restore.run(&to)?.to_string();
        drop(bar);
        let (from, to) = (archive.display().to_string(), to.display().to_string());
        Ok(out.put(&json!({ "archive": from, "copy": to, "commit": last }), |text| {
            writeln!(text, "restored `{from}` to `{to}`, up to commit {last}")
        })?)
    }
}

fn time(text: &str) -> Result<SystemTime, String> {
    let wrong = || "expected a time in UTC, such as 2026-11-24T09:30:00Z".to_owned();
    let (seconds, nanos) = calendar::instant(text).ok_or_else(wrong)?;
    let since = Duration::new(u64::try_from(seconds).map_err(|_| wrong())?, nanos);
    SystemTime::UNIX_EPOCH.checked_add(since).ok_or_else(wrong)
}

fn commit(text: &str) -> Result<CommitNumber, String> {
    let numbers = text.split('.').map(str::parse::<u64>).collect::<Result<Vec<_>, _>>();
    let numbers = numbers.map_err(|error| error.to_string())?;
    serde_json::from_value(json!(numbers)).map_err(|error| error.to_string())
}

pub(crate) fn drop_retired(out: &Output, dir: &Path) -> Result<(), Failure> {
    let opened = Opened::to_write(dir)?;
    let dropped = opened.store.drop_retired()?;
    Ok(out.put(&json!({ "dropped": dropped }), |text| match dropped.as_slice() {
        [] => writeln!(text, "no index is retired"),
        names => names.iter().try_for_each(|name| writeln!(text, "dropped `{name}`")),
    })?)
}
