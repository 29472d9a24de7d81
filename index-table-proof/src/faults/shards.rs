//! System calls that fail in a sharded store: in its shard map manager, in its shards and in their journal.
//!
//! Each tenant has a shard. A transaction of the child inserts two rows of a tenant, or two rows of each tenant. The rows
//! of a tenant are numbered from 0, so the number of its transactions determines all of its rows. A transaction of all
//! tenants also inserts a label for each tenant. The labels' entries in a global index are in other shards.
//!
//! Another child also moves the rows of a tenant, and entries of the global index, to other shards. A third one adds,
//! removes, detaches, attaches and relocates shards, and rebuilds the shard map manager ([`list`]). The store of a fourth one
//! begins with one data file ([`growth`]).

pub(super) mod growth;
pub(super) mod list;

use std::{
    fs,
    ops::Range,
    path::{Path, PathBuf},
};

use index_table::{Error, IndexTable, ReadTxn, Result, Store, report::MoveState};
use serde::{Deserialize, Serialize};

use super::Failure;
use crate::sharded::{
    Part, PartRepository, SHARDS as TENANTS, copy_files, open as open_shards, require_all,
};

/// The lengths of texts are multiples of this number. Some rows need pages of their own, and a larger map.
const UNIT: u32 = 2000;

/// Stands for all tenants, in one transaction across all shards.
const ALL: u8 = TENANTS;

/// The number of committed transactions of each tenant.
type Commits = [u32; TENANTS as usize];

type Open = fn(&Path) -> Result<Opened>;

/// A label of a row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "labels", shard_by = tenant, shard_map = "parts")]
#[index(code, unique, scope = "global")]
struct Label {
    #[primary_key]
    tenant: u8,
    #[primary_key]
    number: u32,
    code: u64,
}

/// Returns the code of a label.
fn code(tenant: u8, number: u32) -> u64 {
    u64::from(number) << 8 | u64::from(tenant)
}

struct Opened {
    store: Store,
    parts: PartRepository,
    labels: LabelRepository,
}

impl Opened {
    fn open(path: &Path) -> Result<Self> {
        Self::with(open_shards(path, crate::journal().map_size(1 << 17), "parts")?)
    }

    fn read(path: &Path) -> Result<Self> {
        Self::with(Store::options().read_only(true).open(path)?)
    }

    fn with(store: Store) -> Result<Self> {
        let parts = PartRepository::open(&store)?;
        let labels = LabelRepository::open(&store)?;
        Ok(Self { store, parts, labels })
    }

    /// Commits a transaction of a tenant, or of all tenants.
    fn commit(&self, tenant: u8, commits: &mut Commits) -> Result<()> {
        let chosen = if tenant == ALL { 0..TENANTS } else { tenant..tenant + 1 };
        self.store.transaction(|txn| {
            chosen.clone().try_for_each(|tenant| {
                let first = commits[usize::from(tenant)] * 2;
                self.parts.insert(txn, &Part::new(tenant, first, UNIT))?;
                self.parts.insert(txn, &Part::new(tenant, first + 1, UNIT))
            })?;
            if chosen.len() == 1 {
                return Ok(());
            }
            chosen.clone().try_for_each(|tenant| {
                let number = commits[usize::from(tenant)] * 2;
                self.labels.insert(txn, &Label { tenant, number, code: code(tenant, number) })
            })
        })?;
        chosen.for_each(|tenant| commits[usize::from(tenant)] += 1);
        Ok(())
    }

    /// Returns the number of transactions of a tenant; a failure if its rows match no number of transactions.
    fn commits(&self, txn: &ReadTxn<'_>, tenant: u8) -> Result<Result<u32, Failure>> {
        let count = self.parts.count(txn, tenant, UNIT)?;
        let is_whole = |count: &u32| count.is_multiple_of(2);
        let count = count.filter(is_whole).map(|count| count / 2);
        Ok(count.ok_or_else(|| format!("tenant {tenant} has other rows, or half a transaction")))
    }

    /// Compares the labels with the rows and with their global index.
    fn compare_labels(&self) -> Result<Result<(), Failure>> {
        let txn = self.store.read()?;
        let labels = self.labels.all(&txn).rows().collect::<Result<Vec<_>>>()?;
        for label in &labels {
            let Label { tenant, number, code } = *label;
            if self.parts.get(&txn, tenant, number)?.is_none() {
                return Ok(Err(format!("{label:?} has no row")));
            }
            if self.labels.get_by_code(&txn, code)?.as_ref() != Some(label) {
                return Ok(Err(format!("{label:?} is not in its global index")));
            }
        }
        let entries = self.labels.by_code(&txn).count()?;
        let tenants = usize::from(TENANTS) - usize::from(self.is_detached());
        if entries != labels.len() as u64 || !labels.len().is_multiple_of(tenants) {
            return Ok(Err(format!("{} labels, {entries} in their index", labels.len())));
        }
        let report = self.labels.verify(&txn).run()?;
        Ok(if report.is_clean() { Ok(()) } else { Err(report.to_string()) })
    }

    /// Compares the rows of all available tenants. If the outcome of a transaction is unknown, the rows determine it. It
    /// must be the same in all shards.
    fn compare(
        &self,
        commits: &mut Commits,
        unknown: &mut Option<u8>,
    ) -> Result<Result<(), Failure>> {
        let txn = self.store.read()?;
        let mut outcome = None;
        for (tenant, known) in (0..).zip(&*commits) {
            let found = match self.commits(&txn, tenant) {
                Err(Error::ShardUnavailable { .. }) => continue,
                Err(Error::NoShard { .. }) if tenant == list::TENANT && self.is_detached() => {
                    continue;
                }
                found => found?,
            };
            let found = match found {
                Ok(found) => found,
                Err(wrong) => return Ok(Err(wrong)),
            };
            let is_unknown = *unknown == Some(tenant) || *unknown == Some(ALL);
            match found.checked_sub(*known) {
                Some(0) if !is_unknown => {}
                Some(more @ 0..=1) if is_unknown && outcome.is_none_or(|own| own == more) => {
                    outcome = Some(more);
                }
                _ => {
                    return Ok(Err(format!(
                        "tenant {tenant} has {found} transactions, and {known} were acknowledged"
                    )));
                }
            }
        }
        if let Some(more) = outcome
            && let Some(tenant) = unknown.take()
        {
            let is_chosen = |own: u8| tenant == ALL || tenant == own;
            let chosen = (0..).zip(commits).filter(|(own, _)| is_chosen(*own));
            chosen.for_each(|(_, commits)| *commits += more);
        }
        Ok(Ok(()))
    }
}

/// A store of the child, and its expected contents.
struct Run {
    name: &'static str,
    path: PathBuf,
    /// Opens the store.
    open: Open,
    opened: Option<Opened>,
    commits: Commits,
    /// The tenant of the last transaction, if its outcome is unknown.
    unknown: Option<u8>,
}

/// The work of the child: creates a store, writes, opens it again, and recovers a copy that was not closed.
pub(super) fn child(path: &Path) -> Result<(), Failure> {
    let mut run = Run::new("store", path);
    run.steps(8)?;
    run.opened = None;
    run.steps(4)?;
    let mut copy = Run { commits: run.commits, ..Run::new("left", path) };
    let is_sound = run.opened.is_some() && run.unknown.is_none();
    if is_sound && copy_files(&run.path, &copy.path).is_ok() {
        copy.say_commits();
        copy.steps(4)?;
    } else {
        // The copy may be incomplete.
        let _ = fs::remove_dir_all(&copy.path);
    }
    run.steps(4)
}

/// The work of a child that moves keys: the rows of a tenant, and the entries of the labels' global index.
pub(super) fn child_with_moves(path: &Path) -> Result<(), Failure> {
    let mut run = Run::new("store", path);
    run.steps(4)?;
    for (slots, to) in [(None, "s1"), (Some(0..2048), "s2"), (None, "s0")] {
        run.move_keys(slots.clone(), to)?;
        run.steps(2)?;
        // A failed move is unfinished, and may continue.
        run.end_moves(slots.is_none())?;
    }
    run.opened = None;
    run.steps(2)?;
    run.end_moves(true)
}

impl Opened {
    /// Continues the unfinished moves, or cancels those that have not switched.
    fn end_moves(&self, resumes: bool) -> Result<()> {
        for begun in self.store.moves()? {
            if resumes || begun.state == MoveState::CleaningUp {
                self.store.resume_move(begun.id).run()?;
            } else {
                self.store.cancel_move(begun.id)?;
            }
        }
        Ok(())
    }
}

impl Run {
    /// Moves the rows of tenant 1, or slots of the global index.
    fn move_keys(&mut self, slots: Option<Range<u16>>, to: &str) -> Result<(), Failure> {
        self.attempt(|opened| {
            let moved = match slots {
                None => opened.store.move_keys("parts", [1_u8], to),
                Some(slots) => opened.store.move_slots("labels.code", slots, to),
            };
            match moved.run() {
                // An earlier failed move has these keys.
                Err(Error::ShardRefused { .. }) if !opened.store.moves()?.is_empty() => Ok(()),
                moved => moved.map(drop),
            }
        })
    }

    fn end_moves(&mut self, resumes: bool) -> Result<(), Failure> {
        self.attempt(|opened| opened.end_moves(resumes))
    }

    /// Runs work that changes no row.
    fn attempt(&mut self, work: impl FnOnce(&Opened) -> Result<()>) -> Result<(), Failure> {
        let Some(opened) = self.open()? else { return Ok(()) };
        match work(&opened) {
            Ok(()) => self.opened = Some(opened),
            Err(Error::CommitUnknown { .. }) => {
                // Whether the move has made its step is seen after the store has been opened again.
                println!("error: the step of a move is unknown");
                println!("reopened");
            }
            Err(error) => self.met(opened, &error, ALL)?,
        }
        Ok(())
    }

    /// Returns a run with a store of this name in a directory.
    fn new(name: &'static str, directory: &Path) -> Self {
        let path = directory.join(name);
        let (open, commits): (Open, _) = (Opened::open, Commits::default());
        Self { name, path, open, opened: None, commits, unknown: None }
    }

    fn say_commits(&self) {
        let [a, b, c] = self.commits;
        println!("{} done {a} {b} {c}", self.name);
    }

    fn steps(&mut self, steps: u8) -> Result<(), Failure> {
        for step in 0..steps {
            let Some(opened) = self.open()? else { continue };
            let tenant = step % (ALL + 1);
            println!("{} begins {tenant}", self.name);
            match opened.commit(tenant, &mut self.commits) {
                Ok(()) => {
                    self.say_commits();
                    self.opened = Some(opened);
                }
                Err(error) => self.met(opened, &error, tenant)?,
            }
        }
        Ok(())
    }

    /// Opens the store, or takes the open one; `None` if it can't be opened.
    fn open(&mut self) -> Result<Option<Opened>, Failure> {
        if let Some(opened) = self.opened.take() {
            return Ok(Some(opened));
        }
        let opened = match (self.open)(&self.path) {
            Ok(opened) => opened,
            Err(error) => {
                refuse_damage(&error)?;
                println!("error: {error}");
                return Ok(None);
            }
        };
        for (shard, reason) in opened.store.unavailable_shards() {
            println!("error: shard {shard}: {reason}");
        }
        // The outcome stays unknown until the shard is available.
        match opened.compare(&mut self.commits, &mut self.unknown) {
            Ok(compared) => compared?,
            Err(error) => {
                println!("error: {error}");
                return Ok(None);
            }
        }
        if self.unknown.is_none() {
            println!("{} known", self.name);
        }
        self.say_commits();
        Ok(Some(opened))
    }

    /// Checks that the last commits are present after an error, if necessary after reopening the store.
    fn met(&mut self, opened: Opened, error: &Error, tenant: u8) -> Result<(), Failure> {
        println!("error: {error}");
        refuse_damage(error)?;
        if let Error::CommitUnknown { .. } = error {
            println!("{} unknown {tenant}", self.name);
            self.unknown = Some(tenant);
        }
        let needs_reopening =
            matches!(error, Error::CommitUnknown { .. } | Error::ReopenNeeded { .. });
        if needs_reopening || matches!(error, Error::ShardUnavailable { .. }) {
            println!("reopened");
            return Ok(());
        }
        match opened.compare(&mut self.commits, &mut self.unknown) {
            Ok(compared) => {
                compared?;
                self.opened = Some(opened);
            }
            Err(error) => println!("error: {error}"),
        }
        Ok(())
    }
}

fn refuse_damage(error: &Error) -> Result<(), Failure> {
    match error {
        Error::DamagedFile { .. } | Error::Corrupt { .. } => {
            Err(format!("nothing is damaged: {error}"))
        }
        _ => Ok(()),
    }
}

/// Opens the stores without faults, and compares them with the output of the child.
pub(super) fn judge(said: &str, files: &Path) -> Result<(), Failure> {
    prove(said, "store", files, Opened::open)?;
    let left = said.lines().any(|line| line.starts_with("left "));
    if left { prove(said, "left", files, Opened::open).map(drop) } else { Ok(()) }
}

/// Opens the store of a child that changes the list of shards, and makes its last step and the following ones.
pub(super) fn judge_list(said: &str, files: &Path) -> Result<(), Failure> {
    list::complete(&files.join("store")).map_err(|error| error.to_string())?;
    prove(said, "store", files, Opened::open)?.finish(said)
}

fn prove(said: &str, name: &'static str, files: &Path, open: Open) -> Result<Run, Failure> {
    let path = &files.join(name);
    let (mut commits, mut unknown) = (Commits::default(), None);
    for line in said.lines() {
        match line.split(' ').collect::<Vec<_>>()[..] {
            [own, "done", a, b, c] if own == name => {
                for (commits, number) in commits.iter_mut().zip([a, b, c]) {
                    *commits = number.parse().map_err(|_| format!("no numbers: {line}"))?;
                }
            }
            [own, "unknown", tenant] if own == name => unknown = tenant.parse().ok(),
            [own, "known"] if own == name => unknown = None,
            _ => {}
        }
    }
    // A killed child was in this transaction.
    if let Some(begun) =
        said.lines().next_back().and_then(|line| line.strip_prefix("store begins "))
        && name == "store"
    {
        unknown = begun.parse().ok();
    }
    let shown = |error: Error| error.to_string();
    let opened = open(path).map_err(shown)?;
    require_all(&opened.store).map_err(shown)?;
    opened.compare(&mut commits, &mut unknown).map_err(shown)??;
    opened.compare_labels().map_err(shown)??;
    opened.end_moves(said.len().is_multiple_of(2)).map_err(shown)?;
    for is_written in [false, true] {
        opened.compare(&mut commits, &mut unknown).map_err(shown)??;
        opened.compare_labels().map_err(shown)??;
        let report = opened.parts.verify(&opened.store.read().map_err(shown)?).run();
        let report = report.map_err(shown)?;
        if !report.is_clean() {
            return Err(report.to_string());
        }
        if !is_written {
            // The store can be written.
            let can = |tenant: &u8| ![list::TENANT, ALL].contains(tenant);
            let mut all = (0..=ALL).filter(|tenant| !opened.is_detached() || can(tenant));
            all.try_for_each(|tenant| opened.commit(tenant, &mut commits)).map_err(shown)?;
        }
    }
    let path = path.clone();
    Ok(Run { name, path, open, opened: Some(opened), commits, unknown })
}
