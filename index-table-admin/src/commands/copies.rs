//! Checking, copying and cleaning a whole store.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process,
    rc::Rc,
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use clap::Args;
use index_table::{
    __private::admin::instant, Backup, CommitNumber, Error, IndexState, Progress, Store,
};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    cli::Written,
    crash,
    failure::{Code, Failure, joined},
    interrupt::on_ctrl_c,
    names,
    open::{DATA, Opened, store_around},
    output::Output,
    progress::Bar,
    server::{Server, shown},
};

/// The end of the name of an incomplete copy that is being removed.
const REMOVED: &str = "removed.partial";

pub(crate) fn check(out: &Output, dir: &Path) -> Result<(), Failure> {
    let opened = Opened::to_read(out, dir)?;
    let bar = Bar::new();
    opened.store.check_with(&mut |at| bar.show(at))?;
    drop(bar);
    let missing = opened.missing_shards();
    if !missing.is_empty() {
        let message = format!("the available shards are intact; {}", joined(&missing));
        return Err(Failure::new(Code::Unavailable, message));
    }
    let path = shown(dir);
    Ok(out.put(&json!({ "store": path, "intact": true }), |text| {
        writeln!(text, "the pages of `{path}` are intact")
    })?)
}

pub(crate) fn copy(out: &Output, dir: &Path, to: &Path, compact: bool) -> Result<(), Failure> {
    copy_of(out, &Opened::to_read(out, dir)?.store, (dir, to), compact)
}

fn copy_of(
    out: &Output,
    store: &Store,
    (dir, to): (&Path, &Path),
    compact: bool,
) -> Result<(), Failure> {
    copy_with(out, store, (dir, to), |backup| if compact { backup.compact() } else { backup })
}

/// Copies a store with these options. A cancelled job leaves no copy.
fn copy_with<'s>(
    out: &Output,
    store: &'s Store,
    (dir, to): (&Path, &Path),
    options: impl FnOnce(Backup<'s>) -> Backup<'s>,
) -> Result<(), Failure> {
    check_place(to, dir)?;
    clean_on_ctrl_c(out, to);
    let bar = Rc::new(Bar::of(out));
    let (shown, job) = (Rc::clone(&bar), out.clone());
    let backup = store.backup(to).progress(move |at| shown.show(at));
    let done = options(backup.stop_when(move || job.is_stopping())).run();
    match done {
        Err(_) if out.is_stopping() => {
            return Err(Failure::other("cancelled; there is no copy, and its files were removed"));
        }
        done => done.map_err(|error| of_copy(error, to))?,
    }
    drop(bar);
    copied(out, dir, to)
}

/// Copies a store, and checks the pages of the copy before it gets its name.
pub(crate) fn backup(
    out: &Output,
    dir: &Path,
    to: &Path,
    (compact, checks): (bool, bool),
) -> Result<(), Failure> {
    backup_of(out, &Opened::to_read(out, dir)?.store, (dir, to), (compact, checks))
}

/// The copy of a store that a service has open.
#[derive(Debug, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Copied {
    /// The directory of the copy, within the service's directory of files.
    pub(crate) to: PathBuf,
    /// Leave out free pages.
    #[arg(long)]
    #[serde(default)]
    compact: bool,
    /// Don't check the pages of the copy.
    #[arg(long)]
    #[serde(default)]
    no_check: bool,
}

impl Copied {
    pub(crate) fn run(&self, out: &Output, store: &Store, to: &Path) -> Result<(), Failure> {
        let Some(dir) = store.directory() else {
            return Err(Failure::other(
                "a store on a server has no files to copy; use the backup of the server",
            ));
        };
        backup_of(out, store, (&dir, to), (self.compact, !self.no_check))
    }
}

fn backup_of(
    out: &Output,
    store: &Store,
    (dir, to): (&Path, &Path),
    (compact, checks): (bool, bool),
) -> Result<(), Failure> {
    // A compact copy is made from pages that are checked.
    if compact || !checks || Server::of(dir)?.is_some() {
        return copy_of(out, store, (dir, to), compact);
    }
    copy_with(out, store, (dir, to), Backup::checked).map_err(|failure| {
        if failure.code != Code::Damage {
            return failure;
        }
        let message = format!("{}; there is no copy, and `--no-check` makes one", failure.message);
        Failure::new(failure.code, message)
    })
}

fn copied(out: &Output, from: &Path, to: &Path) -> Result<(), Failure> {
    let (from, to) = (shown(from), shown(to));
    Ok(out.put(&json!({ "store": from, "copy": to }), |text| {
        writeln!(text, "copied `{from}` to `{to}`")
    })?)
}

/// Checks the path of a copy: nothing is there, its parent exists, and it is not in a store or in the copied directory.
pub(super) fn check_place(to: &Path, from: &Path) -> Result<(), Failure> {
    if Server::of(to)?.is_some() {
        return Err(Failure::arguments("a copy is a directory, and not on a server"));
    }
    let place = shown(to);
    let parent = match to.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let reason = match (to.symlink_metadata(), parent.try_exists()) {
        (Ok(_), _) => "exists; give a directory that does not exist, or remove it first".to_owned(),
        (Err(error), _) if error.kind() == io::ErrorKind::NotADirectory => {
            "is in a file, and not in a directory; give another path".to_owned()
        }
        // A misspelt path would otherwise create directories.
        (Err(_), Ok(false)) => format!(
            "can't be created: there is no directory `{0}`; check the path, or create the directory with `mkdir -p {0}`",
            shown(parent)
        ),
        (Err(_), _) => match store_around(to, Some(from)) {
            Some(store) => format!("is in {store}"),
            None => return Ok(()),
        },
    };
    Err(Failure::other(format!("`{place}` {reason}")))
}

/// Returns the failure of a copy, with advice if its directory can't be created.
pub(super) fn of_copy(error: Error, to: &Path) -> Failure {
    let parent = to.parent().unwrap_or(to);
    match &error {
        Error::Io { path, source }
            if source.kind() == io::ErrorKind::PermissionDenied && path.starts_with(parent) =>
        {
            Failure::other(format!(
                "`{}` can't be created: {source}; give a directory in which this user can create files",
                to.display()
            ))
        }
        _ => error.into(),
    }
}

/// After Ctrl-C, removes the incomplete copy.
pub(super) fn clean_on_ctrl_c(out: &Output, to: &Path) {
    let to = to.to_owned();
    on_ctrl_c(out, "there is no copy; run the command again", move || {
        remove_partial(&to);
    });
}

/// Removes the incomplete copies of this process.
pub(super) fn remove_partial(to: &Path) {
    // A thread of this process may still create files in them.
    for _ in 0..50 {
        let partial = partial_copies(to);
        if partial.iter().filter(|path| !is_removed(path)).count() == 0 {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// Removes an incomplete copy. Its name changes first, so that a copy that becomes complete in the meantime stays
/// complete.
fn is_removed(path: &Path) -> bool {
    let removed = if path.to_string_lossy().ends_with(REMOVED) {
        path.to_owned()
    } else {
        path.with_extension(REMOVED)
    };
    if removed != path && fs::rename(path, &removed).is_err() {
        // It is complete, or the library has removed it; otherwise it is listed again.
        return !path.exists();
    }
    fs::remove_dir_all(removed).is_ok()
}

/// Returns the directories of incomplete copies of this process.
fn partial_copies(to: &Path) -> Vec<PathBuf> {
    let parent = match to.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => return Vec::new(),
    };
    let name = to.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let start = format!(".{name}.{}-", process::id());
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    let own = entries.filter(|entry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        name.starts_with(&start) && name.ends_with(".partial")
    });
    own.map(|entry| entry.path()).collect()
}

/// A copy of a backup or of an archive.
#[derive(Debug, Args)]
pub(crate) struct Restore {
    /// The directory of the backup, or of the archive.
    backup: PathBuf,
    /// The directory of the restored store.
    to: PathBuf,
    #[command(flatten)]
    moment: Moment,
}

/// A state of an archive.
#[derive(Debug, Args)]
pub(crate) struct Moment {
    /// From an archive: the state at this time in UTC, such as `2024-02-29T12:30:00Z`.
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// From an archive: the state after the commit with this number, of a sharded store `NUMBER.NUMBER`.
    #[arg(long, value_name = "COMMIT", conflicts_with = "until")]
    until_commit: Option<String>,
    /// From an archive: its last state, even if the store has been opened without the archive since.
    #[arg(long, conflicts_with_all = ["until", "until_commit"])]
    until_end: bool,
}

/// Whether a directory is an archive.
pub(super) fn is_archive(place: &Path) -> bool {
    place.join("manifest").is_file()
}

impl Restore {
    pub(crate) fn run(&self, out: &Output) -> Result<(), Failure> {
        let Self { backup, to, moment } = self;
        if !is_archive(backup) {
            if moment.is_given() {
                return Err(if backup.join(DATA).exists() {
                    Failure::arguments(format!(
                        "`{}` is a copy with one state, and not an archive; leave out `--until`, `--until-commit` and `--until-end`",
                        backup.display()
                    ))
                } else {
                    names::no_store(backup)
                });
            }
            return copy(out, backup, to, false);
        }
        check_place(to, backup)?;
        clean_on_ctrl_c(out, to);
        crash::report(out, backup);
        let last = moment.restore(backup, to)?;
        let value = json!({
            "archive": shown(backup),
            "copy": shown(to),
            "last_commit": last.to_string(),
        });
        Ok(out.put(&value, |text| {
            let (backup, to) = (shown(backup), shown(to));
            writeln!(text, "restored `{backup}` to `{to}`, up to commit {last}")
        })?)
    }
}

impl Moment {
    pub(crate) const fn is_given(&self) -> bool {
        self.until.is_some() || self.until_commit.is_some() || self.until_end
    }

    /// Restores this state of an archive to a directory that does not exist. Returns its last commit.
    pub(crate) fn restore(&self, archive: &Path, to: &Path) -> Result<CommitNumber, Failure> {
        let Self { until, until_commit, until_end } = self;
        let mut restore = Store::restore_archive(archive);
        if let Some(text) = until {
            restore = restore.until(time(text)?);
        }
        if let Some(text) = until_commit {
            restore = restore.until_commit(commit(text)?);
        }
        if *until_end {
            restore = restore.until_end();
        }
        let bar = Bar::new();
        let last = restore.progress(|at: Progress| bar.show(at)).run(to);
        last.map_err(|error| of_copy(error, to))
    }
}

fn commit(text: &str) -> Result<CommitNumber, Failure> {
    let numbers: Result<Vec<u64>, _> = text.split('.').map(str::parse).collect();
    let number = numbers.ok().and_then(|it| serde_json::from_value(json!(it)).ok());
    number.ok_or_else(|| {
        Failure::arguments(format!("`{text}` is not the number of a commit, such as `17`"))
    })
}

pub(super) fn time(text: &str) -> Result<SystemTime, Failure> {
    let wrong = || {
        Failure::arguments(format!("`{text}` is not a time in UTC such as `2024-02-29T12:30:00Z`"))
    };
    let (seconds, nanos) = instant(text).ok_or_else(wrong)?;
    let since = u64::try_from(seconds).map_err(|_| wrong())?;
    Ok(UNIX_EPOCH + Duration::new(since, nanos))
}

/// Opens the store for writing, which recovers it.
pub(crate) fn recover(out: &Output, store: &Written) -> Result<(), Failure> {
    let opened = Opened::to_write(out, store)?;
    let missing = opened.missing_shards();
    if !missing.is_empty() {
        return Err(Failure::new(Code::Unavailable, joined(&missing)));
    }
    let path = shown(&store.dir);
    Ok(out.put(&json!({ "store": path }), |text| writeln!(text, "`{path}` can be read"))?)
}

pub(crate) fn drop_retired(out: &Output, store: &Written) -> Result<(), Failure> {
    if store.dry_run {
        let catalog = Opened::to_read(out, &store.dir)?.catalog()?;
        let retired: Vec<_> = catalog
            .tables
            .iter()
            .flat_map(|table| table.indexes.iter().map(move |index| (table, index)))
            .filter(|(_, index)| index.state == IndexState::Retired)
            .map(|(table, index)| format!("`{}.{}`", table.name, index.name))
            .collect();
        let names = if retired.is_empty() { "nothing".to_owned() } else { retired.join(", ") };
        return Ok(out.would(&format!("drop {names}"))?);
    }
    drop_retired_of(out, &Opened::to_write(out, store)?.store)
}

pub(crate) fn drop_retired_of(out: &Output, store: &Store) -> Result<(), Failure> {
    let dropped = store.drop_retired()?;
    Ok(out.put(&json!({ "dropped": dropped }), |text| match dropped.as_slice() {
        [] => writeln!(text, "no index is retired"),
        names => names.iter().try_for_each(|name| writeln!(text, "dropped `{name}`")),
    })?)
}
