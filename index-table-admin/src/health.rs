//! The health of a store: the reasons why it needs an operator, the most urgent first.

use std::{
    mem,
    time::{Duration, SystemTime},
};

use index_table::{
    __private::admin::{RecordedArchive, RecordedTables},
    Error, IndexState, Store,
    report::FollowerLag,
};
use serde::Serialize;

use crate::{output::bytes, server::shown};

/// The bytes below which a large disk is nearly full.
const LEFT: u64 = 16 << 20;

/// The age from which commits that an archive lacks are a reason in another process than the writer, which copies them within a second.
const LATE: Duration = Duration::from_mins(1);

/// The age from which a copy, a consumer or a reader is a reason.
const OLD: Duration = Duration::from_hours(1);

/// The health of a store. From [`health`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Health {
    /// The reasons why the store needs attention, the most urgent first; empty if it is healthy.
    pub reasons: Vec<Reason>,
}

impl Health {
    /// Whether there is no reason.
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        self.reasons.is_empty()
    }

    /// Adds the tables that could not be opened, whose queues and consumers are not known.
    pub(crate) fn note_unopened(&mut self, opened: &Result<RecordedTables, Error>) {
        let mut found = Found(mem::take(&mut self.reasons));
        match opened {
            Ok(opened) => {
                for (table, reason) in &opened.skipped {
                    found.add("unreadable", format!("table `{table}` can't be opened: {reason}"));
                }
            }
            Err(error) => found.add_error(error),
        }
        *self = found.sorted();
    }
}

/// A reason of [`Health`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Reason {
    /// A short name, which stays the same between releases: `damage`, `check` (a check, verification or scrub of this process has found
    /// something), `backup` (the last one has failed), `unreadable` (a table that this release can't read), `error`
    /// (another error of reading the store), `busy` (the page had no answer in time), `files` (a data file was removed, renamed or
    /// replaced), `journal`, `commits` (the last commit has failed), `disk` (nearly full), `map` (nearly full), `shard`, `archive`,
    /// `archive_base`, `follower`, `behind`, `index`, `dead_letters`, `missed_changes`, `queue`, `consumer`, `move` or `reader`.
    pub kind: &'static str,
    /// The reason in words, with the way out.
    pub message: String,
}

/// Returns the health of an open store, as the command `status`, the page's path `/healthz` and a service see it.
///
/// Only the process that writes a store knows its journal and commits, the error of its archive, how far its map can grow, and whether its
/// files were replaced. So a service finds more than the command `status` beside it, which looks at the files of the archive. The age of
/// another process's reader counts from the first call that saw it with later commits. Tables without a repository in use are left out.
/// Pages are checked before they are read, and are not searched for damage: use [`Store::check`].
///
/// A disk is nearly full with less than 1 % or 16 MiB left, but not with more than 10 %. A map is nearly full with 90 % of its limit in
/// use. Copies, consumers, queues and readers are reasons after an hour.
///
/// Cost: that of [`Store::data_files`]. The catalog, each root, the queues and the consumers are read too. A process
/// that does not write a store with an archive reads the descriptions of its bases, and the records of one segment; a file system that does
/// not answer, such as one on a network, delays it.
///
/// # Examples
///
/// ```
/// # fn main() -> index_table::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// let store = index_table::Store::open(dir.path())?;
/// assert!(index_table_admin::health(&store).is_healthy());
/// # Ok(())
/// # }
/// ```
#[must_use]
pub fn health(store: &Store) -> Health {
    let follower = store.follower_lag();
    let follower = follower.map_err(|error| (kind_of(&error), error.to_string()));
    of_store(store, follower)
}

/// The lag of a follower, or the kind and the message of the reason why it is not known.
pub(crate) type Lag = Result<Option<FollowerLag>, (&'static str, String)>;

/// Returns the health, with a lag of the follower that is known already.
pub(crate) fn of_store(store: &Store, follower: Lag) -> Health {
    let mut found = Found(Vec::new());
    index_table::__private::admin::checked(|| {
        for damage in store.damaged_roots() {
            found.add_error(&damage);
        }
        found.add_files(store);
        found.add_commits(store);
        found.add_inspections(store);
        found.add_shards(store);
        found.add_copies(store, follower);
        found.add_tables(store);
    });
    if let Some(oldest) = store.readers().oldest.filter(|oldest| *oldest >= OLD) {
        let message = format!(
            "a read transaction of this process is open for {} minutes, so the file grows with each commit; end it",
            oldest.as_secs() / 60
        );
        found.add("reader", message);
    }
    found.sorted()
}

/// Returns the kind of the reason for an error.
pub(crate) const fn kind_of(error: &Error) -> &'static str {
    match error {
        Error::Corrupt { .. } | Error::DamagedFile { .. } => "damage",
        Error::ShardUnavailable { .. } => "shard",
        _ => "error",
    }
}

/// The kinds of reasons, the most urgent first.
const ORDER: [&str; 23] = [
    // What is read from another file is no damage.
    "files",
    "damage",
    "check",
    "unreadable",
    "error",
    "busy",
    "journal",
    "commits",
    "disk",
    "map",
    "shard",
    "archive",
    "archive_base",
    "follower",
    "behind",
    "backup",
    "index",
    "dead_letters",
    "missed_changes",
    "queue",
    "consumer",
    "move",
    "reader",
];

struct Found(Vec<Reason>);

impl Found {
    fn add(&mut self, kind: &'static str, message: String) {
        if !self.0.iter().any(|reason| reason.message == message) {
            self.0.push(Reason { kind, message });
        }
    }

    /// Returns the part, or adds its error. A missing shard is a reason of its own.
    fn unless<T>(&mut self, part: Result<T, Error>) -> Option<T> {
        match part {
            Ok(part) => Some(part),
            Err(Error::ShardUnavailable { .. }) => None,
            Err(error) => {
                self.add_error(&error);
                None
            }
        }
    }

    fn add_error(&mut self, error: &Error) {
        self.add(kind_of(error), error.to_string());
    }

    fn sorted(self) -> Health {
        let Self(mut reasons) = self;
        reasons.sort_by_key(|reason| ORDER.iter().position(|kind| *kind == reason.kind));
        Health { reasons }
    }

    fn add_files(&mut self, store: &Store) {
        for file in self.unless(store.data_files()).unwrap_or_default() {
            let path = shown(&file.path);
            if file.is_replaced {
                let message = format!(
                    "`{path}` was removed, renamed or replaced while this process has it open; put it back, or open the store again"
                );
                self.add("files", message);
            }
            if let (Some(all), Some(left)) = (file.disk, file.disk_free)
                && left < (all / 100).max(LEFT).min(all / 10)
            {
                let message = format!("the disk of `{path}` is nearly full: {} left", bytes(left));
                self.add("disk", message);
            }
            if let (Some(used), Some(limit)) = (file.used, file.map_limit)
                && used / 9 >= limit / 10
            {
                let message = format!(
                    "the map of `{path}` has nearly reached its limit of {}; raise `max_map_size`, or delete rows",
                    bytes(limit)
                );
                self.add("map", message);
            }
            for reader in &file.readers {
                if reader.age >= OLD {
                    let message = format!(
                        "process {} has a read transaction of `{path}` for {} minutes, so the file grows with each commit; end it",
                        reader.process,
                        reader.age.as_secs() / 60
                    );
                    self.add("reader", message);
                }
            }
        }
    }

    fn add_commits(&mut self, store: &Store) {
        if let Some(reason) = store.journal().and_then(|journal| journal.refused) {
            let message = format!("commits are refused: {reason}; open the store again");
            self.add("journal", message);
        }
        if let Some(failed) = store.commits().failed {
            self.add("commits", format!("the last commit has failed: {}", failed.message));
        }
    }

    fn add_inspections(&mut self, store: &Store) {
        for own in store.inspections() {
            let Some(problem) = own.problem else { continue };
            let kind = if own.kind == "backup" { "backup" } else { "check" };
            let minutes = minutes_of(own.ended.elapsed().ok());
            let message = format!("the last {}, {minutes} minutes ago: {problem}", own.kind);
            self.add(kind, message);
        }
    }

    fn add_shards(&mut self, store: &Store) {
        for (shard, reason) in store.unavailable_shards() {
            let message = crate::failure::unavailable(shard.name(), &reason);
            self.add("shard", message);
        }
        if !store.has_shards() {
            return;
        }
        for own in self.unless(store.moves()).unwrap_or_default() {
            let message = format!(
                "move {} of `{}` from `{}` to `{}` is unfinished; `resume-move` continues it, and `cancel-move` ends it",
                own.id, own.map, own.from, own.to
            );
            self.add("move", message);
        }
    }

    fn add_copies(&mut self, store: &Store, follower: Lag) {
        let minutes = |time: Duration| time.as_secs() / 60;
        if let Some(lag) = store.archive_lag() {
            if let Some(error) = &lag.error {
                self.add("archive", format!("the archive has stopped: {error}"));
            } else if !lag.has_base {
                let message = "the archive has no base yet, so its commits can't be restored";
                self.add("archive_base", message.to_owned());
            }
            if lag.time >= OLD {
                let message = format!("the archive is {} minutes behind", minutes(lag.time));
                self.add("behind", message);
            }
        } else if let Some(archive) = self.unless(store.recorded_archive()).flatten() {
            self.add_recorded(&archive);
        }
        let follower = follower.unwrap_or_else(|(kind, message)| {
            // A missing shard is a reason of its own.
            if kind != "shard" {
                self.add(kind, message);
            }
            None
        });
        if let Some(lag) = follower {
            if let Some(error) = &lag.error {
                self.add("follower", format!("the follower has stopped: {error}"));
            }
            if lag.time >= OLD {
                let message = format!("the follower is {} minutes behind", minutes(lag.time));
                self.add("behind", message);
            }
        }
    }

    /// Adds what the files of an archive show to a process that does not write it.
    fn add_recorded(&mut self, archive: &RecordedArchive) {
        let path = shown(&archive.path);
        match &archive.lacks_since {
            Ok(None) => {}
            Ok(Some(since)) => {
                let age = since.elapsed().unwrap_or_default();
                let kind = if age >= OLD { "behind" } else { "archive" };
                if age >= LATE {
                    let message = format!(
                        "the archive `{path}` lacks the commits of the last {} minutes: no process writes the store, or its writer can't \
                         write the archive, and its page has the reason",
                        age.as_secs() / 60
                    );
                    self.add(kind, message);
                }
            }
            Err(error @ Error::NotInArchive { .. }) => self.add("archive_base", error.to_string()),
            Err(error) => {
                self.add("archive", format!("the archive `{path}` can't be read: {error}"));
            }
        }
    }

    fn add_tables(&mut self, store: &Store) {
        let catalog = self.unless(store.catalog());
        for table in catalog.iter().flat_map(|catalog| &catalog.tables) {
            if let Some(reason) = &table.unreadable {
                self.add("unreadable", format!("table `{}` can't be read: {reason}", table.name));
            }
            for index in &table.indexes {
                // An announced index waits for clients of an earlier release, which is no fault.
                let waits = matches!(index.state, IndexState::Announced);
                if !waits && !matches!(index.state, IndexState::Readable | IndexState::Retired) {
                    let name = format!("{}.{}", table.name, index.name);
                    self.add("index", format!("index `{name}` is {}; run `build`", index.state));
                }
            }
        }
        let Some(txn) = self.unless(store.read()) else { return };
        for table in store.untyped_tables() {
            let name = table.name();
            if let Some(lag) = self.unless(table.lag(&txn)).flatten() {
                if lag.dead_letters > 0 {
                    let message = format!(
                        "{} messages of `{name}` could not be applied, the first of {} minutes ago; `dead-letters` shows them",
                        lag.dead_letters,
                        lag.oldest_dead_letter.as_secs() / 60
                    );
                    self.add("dead_letters", message);
                }
                if lag.behind >= OLD {
                    let message = format!(
                        "the eventual indexes of `{name}` are {} minutes behind, with {} messages; run an index worker",
                        lag.behind.as_secs() / 60,
                        lag.messages
                    );
                    self.add("queue", message);
                }
            }
            for own in self.unless(table.change_consumers(&txn)).unwrap_or_default() {
                if own.missed > 0 {
                    let message = format!(
                        "consumer `{}` of `{name}` was over its limit, and has missed {} changes",
                        own.name, own.missed
                    );
                    self.add("missed_changes", message);
                }
                let age = own.lag.since.and_then(|at| SystemTime::now().duration_since(at).ok());
                if age.is_some_and(|age| age >= OLD) {
                    let changes = own.lag.changes;
                    let message = format!(
                        "consumer `{}` of `{name}` is {} minutes behind, with {changes} changes",
                        own.name,
                        minutes_of(age)
                    );
                    self.add("consumer", message);
                }
            }
        }
    }
}

fn minutes_of(age: Option<Duration>) -> u64 {
    age.unwrap_or_default().as_secs() / 60
}
