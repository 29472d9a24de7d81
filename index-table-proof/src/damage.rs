//! Files that are damaged, a page at a time.
//!
//! A child opens the file, runs all queries, verifies, repairs, writes, and runs the queries again. It gets the
//! expected results, so that it detects wrong results. Crashes of LMDB in a child are counted.

use std::{
    collections::BTreeMap,
    fs,
    io::{Read as _, Write as _},
    os::unix::process::ExitStatusExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use index_table::{Error, Store};

use crate::{
    random::Random,
    shop::{Model, Shop},
};

type Failure = String;

const PAGE: usize = 4096;
const STEPS: u64 = 14;
const PATIENCE: Duration = Duration::from_secs(20);

/// The outcomes, from the best to the worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    /// Nothing was lost.
    Harmless,
    /// Opening the store is an error.
    Refused,
    /// `check` is an error.
    Checked,
    /// A query, or a write, is an error.
    Failed,
    /// A result is wrong, and `verify` reports it.
    Reported,
    /// A result is wrong, without a report.
    Wrong,
    /// LMDB does not return.
    Hung,
    /// LMDB has crashed.
    Crashed,
}

const OUTCOMES: [(Outcome, &str); 8] = [
    (Outcome::Harmless, "no effect"),
    (Outcome::Refused, "refused when opened"),
    (Outcome::Checked, "found by `check`"),
    (Outcome::Failed, "an error later"),
    (Outcome::Reported, "found by `verify`"),
    (Outcome::Wrong, "a wrong result"),
    (Outcome::Hung, "no result"),
    (Outcome::Crashed, "a crash of LMDB"),
];

type Damage = (&'static str, Vec<u8>);
type Counts = BTreeMap<(&'static str, bool), BTreeMap<Outcome, u64>>;

/// Damages each page in turn, with a number of flipped bits of each, and counts the outcomes.
pub(crate) fn run(flips: u64, seed: u64) -> Result<(), Failure> {
    let io = |error: std::io::Error| error.to_string();
    let dir = crate::scratch().map_err(io)?;
    let files = dir.path().join("store");
    let pages = fill(&files)?;
    let healthy = fs::read(files.join("data.mdb")).map_err(io)?;
    println!("damage: a file of {pages} pages, {flips} bits of each, from seed {seed}");
    for check in [false, true] {
        write(&files, &healthy, None).map_err(io)?;
        let (outcome, said) = judge(&files, check)?;
        if outcome != Outcome::Harmless {
            return Err(format!("without damage: {said}"));
        }
    }
    let mut counts = Counts::new();
    let mut wrong = Vec::new();
    for (kind, data) in damages(&healthy, flips, seed) {
        for check in [false, true] {
            write(&files, &data, None).map_err(io)?;
            let (outcome, said) = judge(&files, check)?;
            if outcome >= Outcome::Hung && check {
                wrong.push(format!("{kind}: {said}"));
            }
            *counts.entry((kind, check)).or_default().entry(outcome).or_default() += 1;
        }
    }
    for lock in [vec![0; PAGE], vec![0xFF; 2 * PAGE], b"no lock file".to_vec(), Vec::new()] {
        for check in [false, true] {
            write(&files, &healthy, Some(&lock)).map_err(io)?;
            let (outcome, _) = judge(&files, check)?;
            *counts.entry(("the lock file", check)).or_default().entry(outcome).or_default() += 1;
        }
    }
    show(&counts);
    for said in &wrong {
        println!("after a check that found nothing: {said}");
    }
    let zeroed = counts.get(&("a page is zeroed", true)).and_then(|it| it.get(&Outcome::Checked));
    if !wrong.is_empty() {
        Err("LMDB crashed in a file that was checked".to_owned())
    } else if zeroed.is_none() {
        Err("`check` finds no page that is zeroed".to_owned())
    } else {
        Ok(())
    }
}

fn show(counts: &Counts) {
    print!("{:20} {:8}", "damage", "checked");
    for (_, name) in OUTCOMES {
        print!(" {name:>19}");
    }
    println!();
    for ((kind, check), outcomes) in counts {
        print!("{kind:20} {:8}", if *check { "yes" } else { "no" });
        for (outcome, _) in OUTCOMES {
            print!(" {:>19}", outcomes.get(&outcome).copied().unwrap_or_default());
        }
        println!();
    }
}

/// Creates a store with a history, so that some of its pages are free.
fn fill(path: &Path) -> Result<usize, Failure> {
    let shop = Store::open(path).and_then(Shop::new).map_err(|error| error.to_string())?;
    let mut model = Model::default();
    while model.steps < STEPS {
        shop.step(&mut model)?.map_err(|error| error.to_string())?;
    }
    shop.prove(&model)?;
    let file = fs::metadata(path.join("data.mdb")).map_err(|error| error.to_string())?;
    Ok(file.len() as usize / PAGE)
}

fn damages(healthy: &[u8], flips: u64, seed: u64) -> Vec<Damage> {
    let pages = healthy.len() / PAGE;
    let mut random = Random(seed);
    let mut damages = Vec::new();
    for page in 0..pages {
        let at = page * PAGE;
        let mut changed = |kind, change: &mut dyn FnMut(&mut Vec<u8>)| {
            let mut data = healthy.to_vec();
            change(&mut data);
            damages.push((kind, data));
        };
        changed("a page is zeroed", &mut |data| data[at..at + PAGE].fill(0));
        for flip in 0..flips {
            // Half of them where LMDB has its own numbers.
            let (kind, len) =
                if flip % 2 == 0 { ("a bit of its head", 64) } else { ("a bit", PAGE as u64) };
            let (byte, bit) = (random.below(len) as usize, random.below(8));
            changed(kind, &mut |data| data[at + byte] ^= 1 << bit);
        }
        if page + 1 < pages {
            changed("two pages swapped", &mut |data| {
                let (low, high) = data[at..at + 2 * PAGE].split_at_mut(PAGE);
                low.swap_with_slice(high);
            });
        }
        changed("the file is cut", &mut |data| data.truncate(at));
    }
    damages
}

fn write(files: &Path, data: &[u8], lock: Option<&[u8]>) -> std::io::Result<()> {
    let _ = fs::remove_dir_all(files);
    fs::create_dir(files)?;
    fs::write(files.join("data.mdb"), data)?;
    lock.map_or(Ok(()), |lock| fs::write(files.join("lock.mdb"), lock))
}

/// Runs a child on the files.
fn judge(files: &Path, check: bool) -> Result<(Outcome, String), Failure> {
    let io = |error: std::io::Error| error.to_string();
    let program = std::env::current_exe().map_err(io)?;
    let mut child = Command::new(program)
        .args([
            "damage-child".as_ref(),
            files.as_os_str(),
            if check { "check" } else { "-" }.as_ref(),
        ])
        .stdout(Stdio::piped())
        .spawn()
        .map_err(io)?;
    let began = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().map_err(io)? {
            break Some(status);
        }
        if began.elapsed() > PATIENCE {
            child.kill().and_then(|()| child.wait()).map_err(io)?;
            break None;
        }
        thread::sleep(Duration::from_micros(500));
    };
    let mut said = String::new();
    child.stdout.take().ok_or("no output")?.read_to_string(&mut said).map_err(io)?;
    let outcome = match status {
        None => Outcome::Hung,
        Some(status) if status.signal().is_some() => Outcome::Crashed,
        Some(status) if !status.success() => {
            return Err(format!("the child ended with {status}: {said}"));
        }
        Some(_) => {
            let last = said.lines().last().unwrap_or_default();
            let outcome = OUTCOMES.iter().find(|(outcome, _)| last == format!("{outcome:?}"));
            outcome.ok_or_else(|| format!("the child said {said:?}"))?.0
        }
    };
    Ok((outcome, said))
}

/// Does the work of the child with a file.
pub(crate) fn child(path: &str, check: bool) -> Result<(), Failure> {
    let outcome = look(&PathBuf::from(path), check);
    println!("{outcome:?}");
    std::io::stdout().flush().map_err(|error| error.to_string())
}

fn look(path: &Path, check: bool) -> Outcome {
    let say = |what: &str| println!("{what}");
    say("open");
    let store = match Store::options().map_size(1 << 26).open(path) {
        Ok(store) => store,
        Err(error) => {
            say(&error.to_string());
            return Outcome::Refused;
        }
    };
    if check {
        say("check");
        match store.check() {
            Ok(()) => {}
            Err(Error::DamagedFile { reason, .. }) => {
                say(&reason);
                return Outcome::Checked;
            }
            Err(_) => return Outcome::Failed,
        }
    }
    say("tables");
    let Ok(shop) = Shop::new(store) else { return Outcome::Failed };
    let mut model = Model::default();
    model.advance(STEPS);
    say("read");
    let right = match shop.compare(&model) {
        Ok(Ok(())) => true,
        Ok(Err(_)) => return Outcome::Failed,
        Err(_) => false,
    };
    say("verify");
    let report = shop.store.read().and_then(|txn| shop.items.verify(&txn).run());
    let Ok(report) = report else { return Outcome::Failed };
    if !report.is_clean() {
        say("repair");
        let repaired = shop.store.transaction(|txn| shop.items.repair(txn).run());
        return if repaired.is_ok() { Outcome::Reported } else { Outcome::Failed };
    }
    if !right {
        return Outcome::Wrong;
    }
    say("write");
    for _ in 0..4 {
        match shop.step(&mut model) {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return Outcome::Failed,
            Err(_) => return Outcome::Wrong,
        }
    }
    say("read again");
    match shop.compare(&model) {
        Ok(Ok(())) => Outcome::Harmless,
        Ok(Err(_)) => Outcome::Failed,
        Err(_) => Outcome::Wrong,
    }
}
