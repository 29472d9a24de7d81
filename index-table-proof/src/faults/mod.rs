//! System calls that fail, each of them once.
//!
//! A child opens a store, writes, enlarges the map, copies, builds indexes and repairs, and compares every result with a
//! model. It runs once to count its calls. Then it runs once for each call, which fails: before it has an effect, after
//! half of its effect, after all of it, or together with all later calls. Each time, there must be an error, and later
//! reads must return the last commit. This process, in which no call fails, must find the files intact. [`shards`] does
//! the same with a sharded store, with moves of its keys, with shards that are added and removed, and with a store with one data file
//! that grows; [`over_time`], with rows that expire and refer to each other; [`promotion`], with followers that are promoted.

mod over_time;
mod promotion;
mod shards;

use std::{
    collections::BTreeMap,
    fs,
    os::unix::process::ExitStatusExt as _,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use index_table::{Durability, Error, Store};

use crate::shop::{Model, Shop, indexed};

type Failure = String;

const SIGKILL: i32 = 9;

const EIO: &str = "5";
const ENOSPC: &str = "28";

/// The failures of a call: the mode of the library, the error number, and a description.
const MODES: [(&str, &str, &str); 6] = [
    ("once", ENOSPC, "ENOSPC"),
    ("once", EIO, "EIO"),
    ("short", EIO, "half done"),
    ("after", EIO, "done, EIO"),
    ("always", EIO, "EIO from then on"),
    (KILL, EIO, "killed"),
];

/// The process is killed before the call.
const KILL: &str = "kill";

/// The calls that can have half of their effect.
const PARTIAL: [&str; 3] = ["pwrite", "writev", "write"];

/// The calls that can fail after their effect: the data is in the system's cache, and never on the disk.
const LATE: [&str; 5] = ["pwrite", "writev", "write", "fdatasync", "fsync"];

#[derive(Default)]
struct Counted {
    runs: u64,
    /// The number of runs with an error in the child.
    errors: u64,
    /// The number of runs in which the store had to be closed and opened again.
    reopened: u64,
    /// The number of runs without an error.
    unnoticed: u64,
}

/// The store of a child.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Plain,
    Journal,
    Shards,
    Moves,
    ShardList,
    Growth,
    OverTime,
    Promotion,
    PromotionOfShards,
}

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Journal => "journal",
            Self::Shards => "shards",
            Self::Moves => "moves",
            Self::ShardList => "shard-list",
            Self::Growth => "growth",
            Self::OverTime => "over-time",
            Self::Promotion => "promotion",
            Self::PromotionOfShards => "promotion-of-shards",
        }
    }

    /// Returns whether the promoted follower has shards.
    const fn promotion(self) -> Option<bool> {
        match self {
            Self::Promotion => Some(false),
            Self::PromotionOfShards => Some(true),
            _ => None,
        }
    }

    /// Returns calls that the child must make. If one is missing, the library does not intercept it.
    const fn calls(self) -> &'static [&'static str] {
        match self {
            Self::Plain => &["open", "pwrite", "writev", "write", "fdatasync", "mmap", "rename"],
            Self::Journal => &[
                "open",
                "pwrite",
                "writev",
                "write",
                "fdatasync",
                "mmap",
                "rename",
                "sync_file_range",
            ],
            Self::OverTime | Self::Promotion | Self::PromotionOfShards => {
                &["open", "pwrite", "fdatasync", "mmap"]
            }
            Self::Shards | Self::Moves | Self::ShardList | Self::Growth => {
                &["open", "pwrite", "fdatasync", "mmap", "mkdir"]
            }
        }
    }
}

/// Makes one in `every` calls fail. With the name of a kind, only a store of this kind is tested.
pub(crate) fn run(every: u64, only: &str) -> Result<(), Failure> {
    let io = |error: std::io::Error| error.to_string();
    let dir = crate::scratch().map_err(io)?;
    let shim = crate::compile(dir.path(), "faults", include_str!("../../shim/faults.c"))?;
    let setup = |kind, reserve| Setup { shim: &shim, dir: dir.path(), reserve, kind };
    // A failure to reserve space is not an error, so with a reserve a fault may have no effect.
    let all = [
        (Kind::Plain, 0),
        (Kind::Plain, 1 << 20),
        (Kind::Journal, 0),
        (Kind::Shards, 0),
        (Kind::Moves, 0),
        (Kind::ShardList, 0),
        (Kind::Growth, 0),
        (Kind::OverTime, 0),
        (Kind::Promotion, 0),
        (Kind::PromotionOfShards, 0),
    ];
    let chosen = all.into_iter().filter(|(kind, _)| only.is_empty() || kind.name() == only);
    let outcomes = chosen.map(|(kind, reserve)| fail_all(&setup(kind, reserve), every));
    match outcomes.collect::<Result<Vec<_>, _>>()?.len() {
        0 => Err(format!("there is no kind `{only}`")),
        _ => Ok(()),
    }
}

/// The store of the children, and its directory.
struct Setup<'s> {
    shim: &'s Path,
    dir: &'s Path,
    reserve: usize,
    kind: Kind,
}

fn fail_all(setup: &Setup<'_>, every: u64) -> Result<(), Failure> {
    let counts = counts(setup)?;
    for call in setup.kind.calls() {
        if !counts.contains_key(*call) {
            return Err(format!("the library sees no `{call}`"));
        }
    }
    let mut errors_met = 0;
    let (calls, reserve) = (counts.values().sum::<u64>(), setup.reserve);
    let kind = setup.kind.name();
    println!(
        "faults: one in {every} of {calls} calls, store: {kind}, with a reserve of {reserve} bytes"
    );
    println!(
        "{:10} {:>6} {:18} {:>6} {:>7} {:>9} {:>10}",
        "call", "calls", "fails with", "runs", "errors", "reopened", "no error"
    );
    for (call, calls) in &counts {
        for (mode, error, shown) in MODES {
            let fits = match mode {
                "short" => PARTIAL.contains(&call.as_str()),
                "after" => LATE.contains(&call.as_str()),
                // `crash` kills the processes of other stores.
                KILL => matches!(
                    setup.kind,
                    Kind::Moves
                        | Kind::ShardList
                        | Kind::Growth
                        | Kind::Promotion
                        | Kind::PromotionOfShards
                ),
                _ => true,
            };
            if !fits {
                continue;
            }
            let mut counted = Counted::default();
            for at in (1..=*calls).step_by(every as usize) {
                let fault = Fault { call, at, mode, error };
                let output = fail(setup, &fault)?;
                counted.runs += 1;
                let is_error = output.contains("error: ") || mode == KILL;
                counted.errors += u64::from(is_error);
                counted.reopened += u64::from(output.contains("reopened"));
                if !is_error {
                    // LMDB writes the rest of a copy, which is correct. Every other fault must be an error.
                    let is_seen = reserve == 0 && setup.kind == Kind::Plain;
                    if is_seen && (call.as_str(), mode) != ("write", "short") {
                        return Err(format!("{call} {at} ({shown}) was no error"));
                    }
                    counted.unnoticed += 1;
                }
            }
            errors_met += counted.errors;
            if counted.runs > 0 {
                let Counted { runs, errors, reopened, unnoticed } = counted;
                println!(
                    "{call:10} {calls:>6} {shown:18} {runs:>6} {errors:>7} {reopened:>9} {unnoticed:>10}"
                );
            }
        }
    }
    if errors_met == 0 {
        return Err("no fault was an error".to_owned());
    }
    Ok(())
}

struct Fault<'c> {
    call: &'c str,
    at: u64,
    mode: &'c str,
    error: &'c str,
}

fn spawn(setup: &Setup<'_>, dir: &Path, set: &[(&str, &str)]) -> Result<Output, Failure> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut child = Command::new(program);
    child.arg("faults-child").arg(dir).arg(setup.reserve.to_string()).arg(setup.kind.name());
    child.env("LD_PRELOAD", setup.shim).env("FAULT_DIR", dir);
    child.envs(set.iter().copied()).output().map_err(|error| error.to_string())
}

/// Returns the number of calls of each kind.
fn counts(setup: &Setup<'_>) -> Result<BTreeMap<String, u64>, Failure> {
    let (files, counts) = (fresh(setup)?, setup.dir.join("counts"));
    let output = spawn(setup, &files, &[("FAULT_COUNTS", &counts.to_string_lossy())])?;
    judge(setup, &output, &files, None)?;
    let counts = fs::read_to_string(counts).map_err(|error| error.to_string())?;
    let counts = counts.lines().filter_map(|line| {
        let (call, count) = line.split_once(' ')?;
        Some((call.to_owned(), count.parse().ok()?))
    });
    Ok(counts.collect())
}

fn fresh(setup: &Setup<'_>) -> Result<PathBuf, Failure> {
    let files = setup.dir.join("files");
    let _ = fs::remove_dir_all(&files);
    fs::create_dir(&files).map_err(|error| error.to_string())?;
    if let Some(is_sharded) = setup.kind.promotion() {
        promotion::prepare(&files, is_sharded)?;
    }
    Ok(files)
}

/// Runs the child with a fault, and checks the results.
fn fail(setup: &Setup<'_>, fault: &Fault<'_>) -> Result<String, Failure> {
    let Fault { call, at, mode, error } = fault;
    let files = fresh(setup)?;
    let at_text = at.to_string();
    let set = [
        ("FAULT_CALL", *call),
        ("FAULT_AT", &at_text),
        ("FAULT_MODE", mode),
        ("FAULT_ERROR", error),
    ];
    let output = spawn(setup, &files, &set)?;
    judge(setup, &output, &files, Some(fault)).map_err(|wrong| {
        let said = String::from_utf8_lossy(&output.stdout);
        let cried = String::from_utf8_lossy(&output.stderr);
        format!("{call} {at}, {mode}, {error}: {wrong}\n{said}{cried}")
    })
}

fn judge(
    setup: &Setup<'_>,
    output: &Output,
    files: &Path,
    fault: Option<&Fault<'_>>,
) -> Result<String, Failure> {
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    // The number of calls differs from run to run, so the last calls may not be made.
    let is_killed =
        fault.is_some_and(|fault| fault.mode == KILL) && output.status.signal() == Some(SIGKILL);
    if !is_killed && !output.status.success() {
        return Err(format!("the child ended with {}", output.status));
    }
    if fault.is_none() && said.contains("error: ") {
        return Err(format!("an error without a fault: {said}"));
    }
    if let Some(is_sharded) = setup.kind.promotion() {
        return promotion::judge(&said, files, is_sharded).map(|()| said);
    }
    if setup.kind == Kind::OverTime {
        return over_time::judge(&said, files).map(|()| said);
    }
    if matches!(setup.kind, Kind::Shards | Kind::Moves) {
        return shards::judge(&said, files).map(|()| said);
    }
    if setup.kind == Kind::ShardList {
        return shards::judge_list(&said, files).map(|()| said);
    }
    if setup.kind == Kind::Growth {
        return shards::growth::judge(&said, files).map(|()| said);
    }
    let steps = said.lines().rev().find_map(|line| line.strip_prefix("done ")?.parse().ok());
    let mut model = Model::default();
    model.advance(steps.unwrap_or_default());
    let shop =
        Store::open(files.join("store")).and_then(Shop::new).map_err(|error| error.to_string())?;
    let found = shop.steps().map_err(|error| error.to_string())?;
    // The outcome of the last step may be unknown.
    if said.contains("unknown") && found == model.steps + 1 {
        model.advance(found);
    }
    shop.prove(&model)?;
    // The store can be written.
    shop.step(&mut model)?.map_err(|error| error.to_string())?;
    for copy in ["backup", "compact"] {
        let copy = files.join(copy);
        if copy.exists() {
            let shop = Store::open(&copy).and_then(Shop::new).map_err(|error| error.to_string())?;
            let mut model = Model::default();
            model.advance(shop.steps().map_err(|error| error.to_string())?);
            shop.prove(&model)?;
        }
    }
    Ok(said)
}

/// A store, and its expected contents.
struct Run {
    path: PathBuf,
    reserve: usize,
    journal: bool,
    shop: Option<Shop>,
    model: Model,
    /// The outcome of the last step is unknown until the store is opened again.
    is_unknown: bool,
}

/// The work of the child. After each failure, the last commit must be present.
pub(crate) fn child(path: &str, reserve: &str, kind: &str) -> Result<(), Failure> {
    let path = PathBuf::from(path);
    if kind == Kind::Shards.name() {
        return shards::child(&path);
    }
    if [Kind::Promotion, Kind::PromotionOfShards].map(Kind::name).contains(&kind) {
        promotion::child(&path);
        return Ok(());
    }
    if kind == Kind::OverTime.name() {
        return over_time::child(&path);
    }
    if kind == Kind::ShardList.name() {
        return shards::list::child(&path);
    }
    if kind == Kind::Growth.name() {
        return shards::growth::child(&path);
    }
    if kind == Kind::Moves.name() {
        return shards::child_with_moves(&path);
    }
    let journal = kind == Kind::Journal.name();
    let reserve = reserve.parse().map_err(|_| "no number".to_owned())?;
    let model = Model::default();
    let mut run = Run { path, reserve, journal, shop: None, model, is_unknown: false };
    run.steps(9)?;
    run.copy("backup", Store::backup_to)?;
    run.copy("compact", Store::compact_to)?;
    run.shop = None;
    // The tenth step is large, so the map must grow.
    run.steps(3)?;
    run.attempt(|run| {
        // No repository of the other declaration is open.
        let shop = run.open()?;
        let store = shop.store.clone();
        drop(shop);
        let built = indexed::ItemRepository::open(&store);
        drop(built?);
        run.shop = Some(Shop::new(store)?);
        Ok(())
    })?;
    run.attempt(|run| {
        let shop = run.open()?;
        let report = shop.store.transaction(|txn| shop.items.repair(txn).run());
        run.shop = Some(shop);
        report.map(drop)
    })?;
    run.steps(2)
}

impl Run {
    /// Opens the shop, or takes the open one.
    fn open(&mut self) -> Result<Shop, Error> {
        if let Some(shop) = self.shop.take() {
            return Ok(shop);
        }
        let options = if self.journal {
            crate::journal()
        } else {
            Store::options().durability(Durability::Full)
        };
        let options = options.map_size(1 << 18).reserve(self.reserve);
        let shop = options.open(self.path.join("store")).and_then(Shop::new)?;
        if self.is_unknown {
            let steps = shop.steps()?;
            self.is_unknown = false;
            if steps == self.model.steps + 1 {
                self.model.advance(steps);
            }
        }
        Ok(shop)
    }

    fn steps(&mut self, steps: u64) -> Result<(), Failure> {
        for _ in 0..steps {
            let mut wrong = None;
            self.attempt(|run| {
                let shop = run.open()?;
                let done = shop.step(&mut run.model).unwrap_or_else(|difference| {
                    wrong = Some(difference);
                    Ok(())
                });
                run.shop = Some(shop);
                done?;
                println!("done {}", run.model.steps);
                Ok(())
            })?;
            wrong.map_or(Ok(()), Err)?;
            if let Some(shop) = &self.shop {
                let compared = shop.compare(&self.model)?;
                self.met(compared.err())?;
            }
        }
        Ok(())
    }

    fn copy(
        &mut self,
        name: &str,
        copy: fn(&Store, PathBuf) -> Result<(), Error>,
    ) -> Result<(), Failure> {
        let to = self.path.join(name);
        let mut copied = false;
        self.attempt(|run| {
            let shop = run.open()?;
            let done = copy(&shop.store, to.clone());
            copied = done.is_ok();
            run.shop = Some(shop);
            done
        })?;
        if copied == to.exists() {
            Ok(())
        } else {
            Err(format!("{name}: it exists: {}", to.exists()))
        }
    }

    fn attempt(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<(), Error>,
    ) -> Result<(), Failure> {
        let outcome = work(self);
        self.met(outcome.err())
    }

    /// Checks that the last commit is present after an error, if necessary after reopening the store.
    fn met(&mut self, error: Option<Error>) -> Result<(), Failure> {
        let Some(error) = error else { return Ok(()) };
        println!("error: {error}");
        if let Error::CommitUnknown { .. } = error {
            println!("unknown");
            self.is_unknown = true;
        }
        if self.journal && matches!(error, Error::CommitUnknown { .. } | Error::ReopenNeeded { .. })
        {
            println!("reopened");
            self.shop = None;
            return Ok(());
        }
        if let Error::DamagedFile { .. } | Error::Corrupt { .. } = error {
            return Err("nothing is damaged".to_owned());
        }
        if let Some(shop) = &self.shop {
            match shop.compare(&self.model)? {
                Ok(()) => return Ok(()),
                Err(error) => println!("error: {error}"),
            }
            self.shop = None;
            println!("reopened");
        }
        match self.open() {
            Ok(shop) => {
                match shop.compare(&self.model)? {
                    Ok(()) => self.shop = Some(shop),
                    Err(error) => println!("error: {error}"),
                }
                Ok(())
            }
            Err(error) => {
                println!("error: {error}");
                Ok(())
            }
        }
    }
}
