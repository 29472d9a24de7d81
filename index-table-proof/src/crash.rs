//! Processes that are killed at any moment.
//!
//! A child writes, with full durability, and says so after each commit. It is killed; what it said is
//! committed has to be there, the next transaction whole or not at all, and the tables and the file in
//! order. The next child goes on with the same files.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use heed::{CommitOrAbort, Database, EnvOpenOptions, types::Bytes};
use index_table::{IndexTable, Result, Store};
use serde::{Deserialize, Serialize};

use crate::{
    random::Random,
    shop::{INDEXES, Model, Shop},
};

type Failure = String;

/// What is going on when the process is killed.
struct Scenario {
    name: &'static str,
    /// Rounds with the same files.
    rounds: u64,
    /// What the child does until it is killed.
    child: fn(&Path) -> Result<()>,
    /// What is done to the files before, and whether a store is kept open meanwhile.
    before: fn(&Path, &mut Known) -> Result<Option<Shop>, Failure>,
    /// Whether the files are as they should be.
    after: fn(&Path, &mut Known) -> Result<(), Failure>,
}

const SCENARIOS: [Scenario; 6] = [
    Scenario { name: "writes", rounds: 50, child: write, before: nothing, after: prove },
    Scenario { name: "a growing map", rounds: 4, child: grow, before: nothing, after: prove },
    Scenario {
        name: "beside a process",
        rounds: 50,
        child: write,
        before: keep_open,
        after: prove,
    },
    Scenario { name: "copies", rounds: 25, child: copy, before: nothing, after: prove_copies },
    Scenario { name: "a repair", rounds: 20, child: repair, before: damage, after: prove_repaired },
    Scenario { name: "a build", rounds: 20, child: build, before: fill, after: prove_built },
];

/// What the killed processes have said, and what follows from it.
#[derive(Default)]
struct Known {
    model: Model,
    /// The transactions that were acknowledged.
    acknowledged: u64,
    /// Those that were found and not acknowledged.
    found: u64,
    /// Rounds in which something else was going on, such as a copy that was cut off.
    cut: u64,
    /// What the last process has acknowledged.
    said: u64,
    random: u64,
}

/// Kills processes so many times for each scenario, and shows what came of it.
pub(crate) fn run(rounds: u64, seed: u64) -> Result<(), Failure> {
    println!("crash: {rounds} rounds of each scenario, from seed {seed}");
    println!(
        "{:18} {:>7} {:>13} {:>22} {:>8}",
        "killed in", "rounds", "acknowledged", "done and not yet said", "cut off"
    );
    for (number, scenario) in SCENARIOS.iter().enumerate() {
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
        println!("{:18} {rounds:>7} {acknowledged:>13} {found:>22} {cut:>8}", scenario.name);
    }
    Ok(())
}

/// What a child does.
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
    if random.below(8) > 0 {
        lines.next();
    }
    thread::sleep(Duration::from_micros(random.below(25_000)));
    child.kill().and_then(|()| child.wait()).map_err(|error| error.to_string())?;
    known.said = 0;
    for line in lines.map_while(Result::ok) {
        if let Some(error) = line.strip_prefix("error: ") {
            return Err(format!("the child met {error}"));
        }
        known.said += u64::from(line == "done");
    }
    known.acknowledged += known.said;
    if let Some(shop) = open {
        // This process has had the store open all the time, and goes on. A transaction that was written
        // and never acknowledged is there for readers once somebody has begun to write: that is when
        // LMDB finds that the lock's owner has died.
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

fn say(what: &str) {
    let mut out = std::io::stdout().lock();
    // When nobody listens any more, it is about to be killed.
    let _ = writeln!(out, "{what}").and_then(|()| out.flush());
}

fn open(path: &Path) -> Result<Shop, Failure> {
    Store::open(path.join("store")).and_then(Shop::new).map_err(|error| error.to_string())
}

/// Takes over what has been committed: what was acknowledged, and at most one transaction more.
fn advance(shop: &Shop, known: &mut Known) -> Result<(), Failure> {
    let steps = shop.steps().map_err(|error| error.to_string())?;
    let said = known.acknowledged + known.found;
    match steps.checked_sub(said) {
        Some(more @ (0 | 1)) => known.found += more,
        _ => return Err(format!("{said} transactions are known, and {steps} are there")),
    }
    known.model.advance(steps);
    Ok(())
}

fn write_with(options: &index_table::Options, path: &Path) -> Result<()> {
    let shop = Shop::new(options.open(path.join("store"))?)?;
    say("open");
    let mut model = Model::default();
    model.advance(shop.steps()?);
    loop {
        match shop.step(&mut model) {
            Ok(Ok(())) => say("done"),
            Ok(Err(error)) => return Err(error),
            Err(wrong) => say(&format!("error: {wrong}")),
        }
    }
}

fn write(path: &Path) -> Result<()> {
    write_with(&Store::options(), path)
}

fn grow(path: &Path) -> Result<()> {
    write_with(&Store::options().map_size(1 << 16), path)
}

fn nothing(_: &Path, _: &mut Known) -> Result<Option<Shop>, Failure> {
    Ok(None)
}

fn keep_open(path: &Path, _: &mut Known) -> Result<Option<Shop>, Failure> {
    open(path).map(Some)
}

fn prove(path: &Path, known: &mut Known) -> Result<(), Failure> {
    let shop = open(path)?;
    advance(&shop, known)?;
    shop.prove(&known.model)
}

/// Writes, and copies the store all the time.
fn copy(path: &Path) -> Result<()> {
    let store = Store::open(path.join("store"))?;
    thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0.. {
                let to = path.join(format!("copy-{}-{number}", std::process::id()));
                let copied =
                    if number % 2 == 0 { store.compact_to(&to) } else { store.backup_to(&to) };
                if let Err(error) = copied {
                    say(&format!("error: {error}"));
                }
            }
        });
        write(path)
    })
}

/// A copy that is there is whole, and of a state that was committed.
fn prove_copies(path: &Path, known: &mut Known) -> Result<(), Failure> {
    prove(path, known)?;
    let copies = fs::read_dir(path).map_err(|error| error.to_string())?;
    let mut copies: Vec<PathBuf> =
        copies.map_while(|entry| entry.ok().map(|it| it.path())).collect();
    copies.retain(|copy| !copy.ends_with("store"));
    for copy in copies {
        if copy.extension().is_some_and(|extension| extension == "partial") {
            known.cut += 1;
        } else {
            let shop = Store::open(&copy).and_then(Shop::new).map_err(|error| error.to_string())?;
            let steps = shop.steps().map_err(|error| error.to_string())?;
            if steps > known.model.steps {
                return Err(format!("a copy has {steps} transactions"));
            }
            let mut model = Model::default();
            model.advance(steps);
            shop.prove(&model)?;
        }
        fs::remove_dir_all(&copy).map_err(|error| error.to_string())?;
    }
    Ok(())
}

const FILLED: u64 = 60;

/// Makes a table to work on.
fn fill(path: &Path, known: &mut Known) -> Result<Option<Shop>, Failure> {
    if known.model.steps < FILLED {
        let shop = open(path)?;
        while known.model.steps < FILLED {
            shop.step(&mut known.model)?.map_err(|error| error.to_string())?;
        }
    }
    Ok(None)
}

/// Changes entries behind the store's back.
fn damage(path: &Path, known: &mut Known) -> Result<Option<Shop>, Failure> {
    fill(path, known)?;
    let mut random = Random(known.random);
    for index in INDEXES {
        let damaged = damage_index(&path.join("store"), &format!("items.{index}"), &mut random);
        damaged.map_err(|error| error.to_string())?;
    }
    Ok(None)
}

fn damage_index(path: &Path, name: &str, random: &mut Random) -> heed::Result<()> {
    #[expect(unsafe_code, reason = "heed marks the whole environment unsafe")]
    // SAFETY: nothing else has the files open.
    let env = unsafe { EnvOpenOptions::new().max_dbs(20).open(path)? };
    let txn = env.write_txn()?;
    let done = env.create_databases_and_commit(txn, |opener, txn| {
        let Some(database): Option<Database<'_, Bytes, Bytes>> =
            opener.open_database(txn, Some(name))?
        else {
            return Ok(CommitOrAbort::<(), ()>::Abort(()));
        };
        let entries = database
            .iter(txn)?
            .map(|entry| entry.map(|(key, value)| (key.to_vec(), value.to_vec())));
        let entries = entries.collect::<heed::Result<Vec<_>>>()?;
        for (mut key, mut value) in entries {
            match random.below(6) {
                0 => _ = database.delete(txn, &key)?,
                1 => {
                    value.push(7);
                    database.put(txn, &key, &value)?;
                }
                2 => {
                    key.push(random.below(256) as u8);
                    database.put(txn, &key, &value)?;
                }
                _ => {}
            }
        }
        Ok::<_, heed::Error>(CommitOrAbort::Commit(()))
    });
    done.map(drop)
}

fn repair(path: &Path) -> Result<()> {
    let shop = Shop::new(Store::open(path.join("store"))?)?;
    say("open");
    shop.store.transaction(|txn| shop.items.repair(txn).run())?;
    say("done");
    thread::sleep(Duration::from_secs(60));
    Ok(())
}

/// The repair was done or it was not; when it is run again, all is well.
fn prove_repaired(path: &Path, known: &mut Known) -> Result<(), Failure> {
    let shop = open(path)?;
    let repaired = shop.store.transaction(|txn| shop.items.repair(txn).run());
    let repaired = repaired.map_err(|error| error.to_string())?;
    known.cut += u64::from(!repaired.is_clean());
    if repaired.left > 0 || known.said > 0 && !repaired.is_clean() {
        return Err(repaired.to_string());
    }
    shop.prove(&known.model)
}

/// The items with two indexes more.
mod indexed {
    use super::{Deserialize, IndexTable, Serialize};

    #[derive(Serialize, Deserialize, IndexTable)]
    #[table(name = "items")]
    #[index(group)]
    #[index(name, group, strategy = "full", name = "whole")]
    #[index(each(tags), name = "tagged", include = [note])]
    pub(super) struct Item {
        #[primary_key]
        id: u32,
        group: u8,
        name: String,
        amount: i32,
        code: u64,
        tags: Vec<String>,
        note: Option<String>,
        url: String,
    }
}

/// Opens a table declared in two ways by turns, so that indexes are built each time.
fn build(path: &Path) -> Result<()> {
    let store = Store::open(path.join("store"))?;
    say("open");
    loop {
        drop(indexed::ItemRepository::open(&store)?);
        drop(crate::shop::ItemRepository::open(&store)?);
        say("done");
    }
}

/// Both declarations can be opened, and their indexes are what the rows say.
fn prove_built(path: &Path, known: &mut Known) -> Result<(), Failure> {
    let proven = || -> Result<_> {
        let store = Store::open(path.join("store"))?;
        store.check()?;
        let items = indexed::ItemRepository::open(&store)?;
        items.verify(&store.read()?).run()
    };
    let report = proven().map_err(|error| error.to_string())?;
    if !report.is_clean() {
        return Err(report.to_string());
    }
    open(path)?.prove(&known.model)
}
