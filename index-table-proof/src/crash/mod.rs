//! Processes that are killed at any moment.
//!
//! A child writes with full durability, acknowledges each commit, and is killed. Every acknowledged commit must
//! be present. The next transaction must be present completely or not at all. The tables and the file must be
//! intact. The next child continues with the same files.

mod archive;
mod changed;
mod evolution;
mod groups;
mod large;
mod over_time;
mod replaced;
mod scenarios;
pub(crate) mod shards;
pub(crate) mod together;

use std::{
    io::{BufRead as _, BufReader, Write as _},
    os::unix::process::ExitStatusExt as _,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use index_table::{CommitNumber, Options, Result};

use crate::{
    random::Random,
    shop::{Model, Shop},
};
pub(crate) use scenarios::{SCENARIOS, TOGETHER};

type Failure = String;

const SIGKILL: i32 = 9;

/// The number of rounds after which some must have killed a process at the tested moment.
const ENOUGH: u64 = 40;

/// The work during which the process is killed.
#[expect(clippy::struct_excessive_bools, reason = "each of these is a property of its own")]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    /// Rounds with the same files.
    pub(crate) rounds: u64,
    /// The maximum number of acknowledgements before the process is killed.
    pub(crate) awaited: u64,
    /// Whether it needs another process that has the store open.
    pub(crate) is_beside: bool,
    /// Whether a kill alone shows nothing.
    pub(crate) needs_power: bool,
    /// Whether the store has a journal at each durability.
    pub(crate) has_journal: bool,
    /// Whether the scenario counts incomplete work.
    is_cut_off: bool,
    /// The work of the child.
    pub(crate) child: fn(&Path) -> Result<()>,
    /// Prepares the files, and may keep a store open.
    pub(crate) before: fn(&Path, &mut Known) -> Result<Option<Beside>, Failure>,
    /// Checks the files.
    pub(crate) after: fn(&Path, &mut Known) -> Result<(), Failure>,
}

impl Scenario {
    /// Returns true if `only` is the name, or a part of the name and of no scenario the whole name.
    pub(crate) fn is_chosen(&self, only: &str) -> bool {
        let is_name = SCENARIOS.iter().any(|scenario| scenario.name == only);
        if is_name { self.name == only } else { self.name.contains(only) }
    }
}

/// A store that this process has open while a child writes.
pub(crate) enum Beside {
    Shop(Shop),
    #[expect(dead_code, reason = "the store is only kept open")]
    Shards(together::Tables),
}

/// The acknowledgements of the killed processes, and the expected state.
#[derive(Default)]
pub(crate) struct Known {
    pub(crate) model: Model,
    /// The transactions before the first process.
    pub(crate) filled: u64,
    /// The transactions that were acknowledged.
    pub(crate) acknowledged: u64,
    /// The transactions that were committed and not acknowledged.
    pub(crate) found: u64,
    /// Rounds with incomplete work, such as an unfinished copy.
    pub(crate) cut: u64,
    /// The acknowledgements of the last process.
    pub(crate) said: u64,
    pub(crate) random: u64,
    /// The states that were found after earlier kills: the commit, and the number of transactions.
    pub(crate) moments: Vec<(CommitNumber, u64)>,
}

impl Known {
    /// Compares the number of transactions that are present with the number of acknowledged transactions. At most
    /// `most` further transactions may be present.
    pub(crate) fn find(&mut self, present: u64, most: u64) -> Result<(), Failure> {
        let expected = self.filled + self.acknowledged + self.found;
        match present.checked_sub(expected) {
            Some(more) if more <= most => self.found += more,
            _ => {
                return Err(format!(
                    "{present} transactions are present, and {expected} are known"
                ));
            }
        }
        Ok(())
    }
}

/// Kills processes in each scenario with `only` in its name, and prints the results.
pub(crate) fn run(rounds: u64, seed: u64, only: &str) -> Result<(), Failure> {
    println!("crash: {rounds} rounds of each scenario, from seed {seed}");
    println!(
        "{:26} {:>7} {:>13} {:>30} {:>11}",
        "killed during", "rounds", "acknowledged", "committed but not acknowledged", "incomplete"
    );
    let scenarios = SCENARIOS.iter().enumerate();
    // With a journal, one process at a time writes.
    let is_shared = crate::durability_name() != "journal";
    let chosen = |scenario: &Scenario| {
        scenario.is_chosen(only) && !scenario.needs_power && (is_shared || !scenario.is_beside)
    };
    for (number, scenario) in scenarios.filter(|(_, scenario)| chosen(scenario)) {
        let mut random = Random(seed ^ (number as u64) << 32);
        let (mut acknowledged, mut found, mut cut) = (0, 0, 0);
        let mut files = None;
        for round in 0..rounds {
            if round % scenario.rounds == 0 {
                let dir = tempfile::tempdir().map_err(|error| error.to_string())?;
                files = Some((dir, Known::default()));
            }
            let Some((dir, known)) = &mut files else { continue };
            known.random = random.draw();
            kill_once(number, scenario, dir.path(), known)
                .map_err(|error| format!("{}, round {round}: {error}", scenario.name))?;
            if round % scenario.rounds + 1 == scenario.rounds || round + 1 == rounds {
                acknowledged += known.acknowledged;
                found += known.found;
                cut += known.cut;
            }
        }
        println!("{:26} {rounds:>7} {acknowledged:>13} {found:>30} {cut:>11}", scenario.name);
        let is_idle = acknowledged == 0 && scenario.awaited > 0;
        if rounds >= ENOUGH && (is_idle || cut == 0 && scenario.is_cut_off) {
            return Err(format!("{}: no process was killed in it", scenario.name));
        }
    }
    Ok(())
}

/// Runs a child.
pub(crate) fn child(scenario: &str, path: &str) -> Result<(), Failure> {
    let scenario = scenario.parse().ok().and_then(|number: usize| SCENARIOS.get(number));
    let scenario = scenario.ok_or("no such scenario")?;
    (scenario.child)(Path::new(path)).map_err(|error| error.to_string())
}

fn kill_once(
    number: usize,
    scenario: &Scenario,
    dir: &Path,
    known: &mut Known,
) -> Result<(), Failure> {
    let mut random = Random(known.random);
    let open = (scenario.before)(dir, known)?;
    let mut child = spawn(number, dir).map_err(|error| error.to_string())?;
    let mut lines = BufReader::new(child.stdout.take().ok_or("no output")?).lines();
    // Some are killed while they open the store, and most while they write.
    let awaited =
        if random.below(8) > 0 { 1 + random.below(scenario.awaited + 1) as usize } else { 0 };
    let first: Vec<_> = lines.by_ref().take(awaited).collect();
    thread::sleep(Duration::from_micros(random.below(25_000)));
    let status = child.kill().and_then(|()| child.wait()).map_err(|error| error.to_string())?;
    known.said = 0;
    for line in first.into_iter().chain(lines).map_while(Result::ok) {
        if let Some(error) = line.strip_prefix("error: ") {
            return Err(format!("the child met {error}"));
        }
        known.said += u64::from(line == "done");
    }
    // No child ends by itself.
    if status.signal() != Some(SIGKILL) {
        return Err(format!("the child ended with {status}"));
    }
    known.acknowledged += known.said;
    if let Some(Beside::Shop(shop)) = open {
        // This process has the store open throughout, and continues. Readers see a transaction that was
        // written and never acknowledged when the next write begins: then LMDB detects that the owner of its
        // lock has ended.
        drop(shop.store.write().map_err(|error| error.to_string())?);
        advance(&shop, known)?;
        shop.step(&mut known.model)?.map_err(|error| error.to_string())?;
        known.acknowledged += 1;
        shop.prove(&known.model)?;
    }
    (scenario.after)(dir, known)
}

fn spawn(number: usize, dir: &Path) -> std::io::Result<Child> {
    Command::new(std::env::current_exe()?)
        .args(["crash-child".as_ref(), number.to_string().as_ref(), dir.as_os_str()])
        .stdout(Stdio::piped())
        .spawn()
}

pub(crate) fn say(what: &str) {
    let mut out = std::io::stdout().lock();
    if writeln!(out, "{what}").and_then(|()| out.flush()).is_err() {
        // The parent has ended, so nothing would kill this process.
        std::process::exit(1);
    }
}

fn open(path: &Path) -> Result<Shop, Failure> {
    open_with(path, &crate::options())
}

pub(crate) fn open_with(path: &Path, options: &Options) -> Result<Shop, Failure> {
    options.open(path.join("store")).and_then(Shop::new).map_err(|error| error.to_string())
}

/// Takes over the committed transactions: the acknowledged transactions, and at most one more.
fn advance(shop: &Shop, known: &mut Known) -> Result<(), Failure> {
    let steps = shop.steps().map_err(|error| error.to_string())?;
    known.find(steps, 1)?;
    known.model.advance(steps);
    Ok(())
}
