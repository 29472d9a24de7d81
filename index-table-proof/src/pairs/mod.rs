//! Two processes with a store, of each pair of accesses and in each order, which are killed.
//!
//! Each process writes steps of the model or compares snapshots with it. The second process opens the store while the first
//! one has it open, or while the first one is killed. Then one of them is killed or closes the store, the other one
//! continues, and a third process opens the store beside it. At last, no process has the store open.
//!
//! - Each process opens the store, or is refused with the id of the process that writes it.
//! - No step is acknowledged by two processes, and each snapshot is that of a number of steps.
//! - The next process finds each acknowledged step. Each killed writer may have committed one more.
//! - An archive has each commit, after a reader has recovered the store.

mod access;
mod process;

use std::{collections::BTreeSet, fs, path::Path, thread, time::Duration};

use index_table::{CommitNumber, Store};

use crate::{
    random::Random,
    shop::{Model, Shop},
};
use access::{ALL, Access, Outcome, archive, store};
use process::Process;
pub(crate) use process::child;

type Failure = String;

/// The maximum time until an archive has all commits.
const PATIENCE: Duration = Duration::from_mins(1);

/// The commits of the processes.
#[derive(Default)]
struct Known {
    /// The steps that are certainly in the store.
    found: u64,
    /// The steps that were acknowledged since then.
    acknowledged: BTreeSet<u64>,
    /// The writers that were killed since then.
    killed: u64,
    /// Whether the directory has the record of an archive; `None` if a process was killed that may have made it.
    is_archived: Option<bool>,
    steps: u64,
    reads: u64,
    refused: u64,
}

impl Known {
    fn acknowledged(&self) -> u64 {
        self.acknowledged.last().copied().unwrap_or(self.found)
    }

    fn acknowledge(&mut self, step: u64) -> Result<(), Failure> {
        self.steps += 1;
        if step > self.found && self.acknowledged.insert(step) {
            return Ok(());
        }
        Err(format!("step {step} was acknowledged before, or another process has written it"))
    }

    /// Compares the number of steps in the store with the acknowledged steps.
    fn find(&mut self, steps: u64) -> Result<(), Failure> {
        let least = self.acknowledged();
        if steps < least || steps > least + self.killed {
            return Err(format!(
                "{steps} steps are present, {least} were acknowledged, and {} writers were killed",
                self.killed
            ));
        }
        self.found = steps;
        self.acknowledged.clear();
        self.killed = 0;
        Ok(())
    }
}

/// Runs each pair in this number of rounds. If some have to fail, returns an error if none does.
pub(crate) fn run(rounds: u64, seed: u64, has_to_fail: bool) -> Result<(), Failure> {
    println!("pairs: {rounds} rounds of each pair of processes, from seed {seed}");
    println!("{:8} {:>9} {:>9} {:>9}", "first", "steps", "snapshots", "refused");
    for (number, first) in (0..).zip(ALL) {
        let mut total = Known::default();
        for (at, second) in (0..).zip(ALL) {
            let mut random = Random(seed ^ (number * 8 + at) << 32);
            match run_pair([first, second], rounds, &mut random, &mut total) {
                Ok(()) => {}
                Err(wrong) if has_to_fail => {
                    println!("failed, as it has to: {first:?}, then {second:?}: {wrong}");
                    return Ok(());
                }
                Err(wrong) => return Err(format!("{first:?}, then {second:?}: {wrong}")),
            }
        }
        let Known { steps, reads, refused, .. } = total;
        println!("{:8} {steps:>9} {reads:>9} {refused:>9}", format!("{first:?}"));
    }
    if has_to_fail { Err("no pair has failed".to_owned()) } else { Ok(()) }
}

fn run_pair(
    pair: [Access; 2],
    rounds: u64,
    random: &mut Random,
    total: &mut Known,
) -> Result<(), Failure> {
    // Kills need no disk.
    let dir = crate::scratch().map_err(|error| error.to_string())?;
    let mut known = Known { is_archived: Some(false), ..Known::default() };
    create(dir.path(), &mut known, random)?;
    for round in 0..rounds {
        let seed = random.draw();
        run_round(dir.path(), pair, &mut known, &mut Random(seed))
            .map_err(|wrong| format!("round {round} with {seed}: {wrong}"))?;
    }
    total.steps += known.steps;
    total.reads += known.reads;
    total.refused += known.refused;
    Ok(())
}

/// Creates the store. A reader needs its tables.
fn create(path: &Path, known: &mut Known, random: &mut Random) -> Result<(), Failure> {
    let access = [Access::Full, Access::Journal][random.below(2) as usize];
    let process = Process::start(path, access)?;
    process.outcome()?;
    process.go_on(3, known)?;
    if random.below(2) == 0 { process.kill(known) } else { process.end(known) }
}

/// The processes that have the store open.
type Open = Vec<Process>;

fn run_round(
    path: &Path,
    [first, second]: [Access; 2],
    known: &mut Known,
    random: &mut Random,
) -> Result<(), Failure> {
    let mut open = Open::new();
    start(path, first, &mut open, known)?;
    if let Some(process) = open.first() {
        process.go_on(random.below(4), known)?;
    }
    if random.below(4) == 0 && !open.is_empty() {
        start_while_killed(path, second, &mut open, known, random)?;
    } else {
        start(path, second, &mut open, known)?;
    }
    for process in &open {
        process.go_on(1, known)?;
    }
    thread::sleep(Duration::from_micros(random.below(15_000)));
    leave(&mut open, known, random)?;
    for process in &open {
        process.go_on(2, known)?;
    }
    let third = ALL[random.below(ALL.len() as u64 - 1) as usize];
    start(path, third, &mut open, known)?;
    thread::sleep(Duration::from_micros(random.below(15_000)));
    while !open.is_empty() {
        leave(&mut open, known, random)?;
    }
    prove(path, known, random)
}

/// Starts a process, and compares the outcome with the expected one.
fn start(path: &Path, access: Access, open: &mut Open, known: &mut Known) -> Result<(), Failure> {
    let others: Vec<_> = open.iter().map(|process| (process.access, process.id())).collect();
    let expected = |is_archived| access.beside(&others, is_archived);
    let mut process = Process::start(path, access)?;
    let outcome = process.outcome()?;
    process.access = access.used(&others);
    let is_expected = match known.is_archived {
        Some(is_archived) => outcome == expected(is_archived),
        None => outcome == expected(false) || outcome == expected(true),
    };
    if !is_expected {
        return Err(format!("{access:?} beside {others:?}: {outcome:?}"));
    }
    if outcome == Outcome::Opened {
        if access == Access::Archive {
            known.is_archived = Some(true);
        }
        open.push(process);
    } else {
        known.refused += 1;
    }
    Ok(())
}

/// Starts a process while the one that has the store open is killed, or the other way round. Afterwards, a process with
/// this access can open the store.
fn start_while_killed(
    path: &Path,
    access: Access,
    open: &mut Open,
    known: &mut Known,
    random: &mut Random,
) -> Result<(), Failure> {
    let process = Process::start(path, access)?;
    thread::sleep(Duration::from_micros(random.below(20_000)));
    if access == Access::Archive {
        known.is_archived = known.is_archived.filter(|is_archived| *is_archived);
    }
    if random.below(2) == 0 {
        process.kill(known)?;
    } else {
        for other in open.drain(..) {
            other.kill(known)?;
        }
        // It may have been refused before that.
        process.outcome()?;
        process.kill(known)?;
    }
    start(path, access, open, known)
}

/// Kills one of the processes, or lets it close the store.
fn leave(open: &mut Open, known: &mut Known, random: &mut Random) -> Result<(), Failure> {
    if open.is_empty() {
        return Ok(());
    }
    let process = open.swap_remove(random.below(open.len() as u64) as usize);
    if random.below(4) == 0 { process.end(known) } else { process.kill(known) }
}

/// Opens the store with any access after all processes have ended, and checks it.
fn prove(path: &Path, known: &mut Known, random: &mut Random) -> Result<(), Failure> {
    let access = match known.is_archived {
        Some(false) => ALL[random.below(ALL.len() as u64 - 1) as usize],
        _ if random.below(2) == 0 => Access::Read,
        _ => Access::Archive,
    };
    let shop = open_shop(path, access)?;
    let steps = shop.steps().map_err(|error| error.to_string())?;
    known.find(steps).map_err(|wrong| format!("opened with {access:?}: {wrong}"))?;
    let mut model = Model::default();
    model.advance(steps);
    shop.prove(&model).map_err(|wrong| format!("opened with {access:?}: {wrong}"))?;
    drop(shop);
    if known.is_archived == Some(false) {
        return Ok(());
    }
    known.is_archived = Some(true);
    prove_archive(path, steps, random)
}

fn open_shop(path: &Path, access: Access) -> Result<Shop, Failure> {
    let shop = access.options(path).open(store(path)).and_then(Shop::new);
    shop.map_err(|error| format!("opened with {access:?}: {error}"))
}

/// Restores the archive at its last commits.
fn prove_archive(path: &Path, steps: u64, random: &mut Random) -> Result<(), Failure> {
    let shop = open_shop(path, Access::Archive)?;
    let begun = std::time::Instant::now();
    while shop.store.archive_lag().is_none_or(|lag| lag.commits > 0 || !lag.has_base) {
        if begun.elapsed() > PATIENCE {
            return Err(format!("the archive is late: {:?}", shop.store.archive_lag()));
        }
        thread::sleep(Duration::from_millis(2));
    }
    drop(shop);
    let (last, found) = restore(path, None)?.ok_or("nothing can be restored")?;
    if found != steps {
        return Err(format!("{found} steps were restored of {steps}"));
    }
    let mut later = steps;
    for commit in (last.saturating_sub(3 + random.below(8))..last).rev() {
        // The archive may begin later.
        let Some((_, found)) = restore(path, Some(commit))? else { break };
        if found > later || found + 1 < later {
            return Err(format!(
                "{found} steps were restored to commit {commit}, and {later} later"
            ));
        }
        later = found;
    }
    Ok(())
}

/// Restores the archive, and compares the result with the model. Returns the last commit, and the number of steps.
fn restore(path: &Path, until: Option<u64>) -> Result<Option<(u64, u64)>, Failure> {
    let to = path.join("restored");
    if to.exists() {
        fs::remove_dir_all(&to).map_err(|error| error.to_string())?;
    }
    let mut restore = Store::restore_archive(archive(path));
    if let Some(commit) = until {
        restore = restore.until_commit(CommitNumber::from(commit));
    }
    let last = match restore.run(&to) {
        Err(index_table::Error::NotInArchive { .. }) if until.is_some() => return Ok(None),
        last => last.map_err(|error| format!("the restore to {until:?}: {error}"))?,
    };
    let shop = Store::open(&to).and_then(Shop::new).map_err(|error| error.to_string())?;
    let steps = shop.steps().map_err(|error| error.to_string())?;
    let mut model = Model::default();
    model.advance(steps);
    shop.prove(&model).map_err(|wrong| format!("restored to {until:?}: {wrong}"))?;
    let last = last.to_string().parse().map_err(|_| "a commit number")?;
    Ok(Some((last, steps)))
}
