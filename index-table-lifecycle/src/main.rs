//! A random lifecycle of stores: a process opens, moves, copies and restores them, is killed, and continues, while threads
//! write and read. A model computes the expected rows from the progress that each snapshot has. A script that fails is
//! reduced. `docs/RELIABILITY.md` describes it.
//!
//! ```text
//! index-table-lifecycle run [--seed N] [--minutes M | --seconds S] [--keep-going] [--without STEP]… [--found DIRECTORY]
//! index-table-lifecycle script FILE [TIMES]
//! index-table-lifecycle reduce FILE [MINUTES [WORDS]]
//! index-table-lifecycle show SEED
//! ```

mod act;
mod app;
mod book;
mod check;
mod child;
mod consume;
mod copies;
mod failure;
mod forked;
mod generate;
mod model;
mod perform;
mod reduce;
mod releases;
mod run;
mod script;
mod tables;
mod whole;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant, SystemTime},
};

use index_table_proof::random;

use script::Script;

const USAGE: &str = "run [--seed N] [--minutes M | --seconds S] [--keep-going] [--without STEP] [--found DIRECTORY], \
                     script FILE [TIMES], reduce FILE [MINUTES [WORDS]] or show SEED";

/// A script is reduced if one of so many runs fails.
const TRIES: u32 = 3;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match arguments.as_slice() {
        ["child", dir, config] => child::run(Path::new(dir), config),
        ["reader", dir, config, millis] => {
            forked::reader(Path::new(dir), config, millis.parse().unwrap_or_default())
        }
        ["release", dir, release, numbers @ ..] => release_of(dir, release, numbers),
        ["run", options @ ..] => random(options),
        ["script", file, times @ ..] => again(file, times.first()),
        ["reduce", file, options @ ..] => reduce(file, options),
        ["show", seed] => {
            number(Some(seed)).map(|seed| println!("{}", generate::script(seed, &[])))
        }
        _ => Err(USAGE.to_owned()),
    };
    index_table_proof::end(outcome)
}

/// A process of the step `releases`.
fn release_of(dir: &str, release: &str, numbers: &[&str]) -> Result<(), String> {
    let mut numbers = numbers.iter();
    let numbers = [number(numbers.next())?, number(numbers.next())?, number(numbers.next())?];
    releases::run(Path::new(dir), release, numbers).map_err(|failure| failure.to_string())
}

fn number(text: Option<&&str>) -> Result<u64, String> {
    let text = text.ok_or("a number is missing")?;
    text.parse().map_err(|_| format!("`{text}` is not a number"))
}

fn read(file: &str) -> Result<Script, String> {
    fs::read_to_string(file).map_err(|error| format!("{file}: {error}"))?.parse()
}

/// Runs random scripts, and reduces those that fail.
fn random(options: &[&str]) -> Result<(), String> {
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    let (mut seed, mut seconds) = (u64::from(now.subsec_nanos()), 120);
    let (mut keeps_going, mut reduces) = (false, true);
    let (mut without, mut found) = (Vec::new(), None);
    let mut options = options.iter();
    while let Some(option) = options.next() {
        match *option {
            "--seed" => seed = number(options.next())?,
            "--minutes" => seconds = 60 * number(options.next())?,
            "--seconds" => seconds = number(options.next())?,
            "--keep-going" => keeps_going = true,
            "--unreduced" => reduces = false,
            "--without" => without.extend(options.next().map(ToString::to_string)),
            "--found" => found = options.next().map(PathBuf::from),
            _ => return Err(USAGE.to_owned()),
        }
    }
    println!("seed {seed}, {seconds} s");
    let (begun, mut known, mut count) = (Instant::now(), BTreeSet::new(), 0);
    while begun.elapsed() < Duration::from_secs(seconds) {
        let script = generate::script(seed + count, &without);
        count += 1;
        let is_known = |kind: &str| known.contains(kind);
        let Err(failure) = run::run(&script, run::LIMIT, false, &is_known) else { continue };
        let after = format!("{:.0?} ({} s of CPU time)", begun.elapsed(), cpu_seconds());
        println!("after {after}, seed {}: {failure}", seed + count - 1);
        let time = Duration::from_secs(if keeps_going { 90 } else { 300 });
        let short = if reduces { reduce::reduce(&script, &failure, (TRIES, time)) } else { script };
        known.insert(reduce::kind(&failure));
        let text = format!("# seed {}, after {after}\n# {failure}\n{short}", seed + count - 1);
        println!("{text}");
        if let Some(found) = &found {
            fs::create_dir_all(found).map_err(|error| error.to_string())?;
            let file = found.join(format!("{}.txt", seed + count - 1));
            fs::write(file, text).map_err(|error| error.to_string())?;
        }
        if !keeps_going {
            return Err("a lifecycle failed".to_owned());
        }
    }
    let cpu = cpu_seconds();
    println!("{count} lifecycles, {cpu} s of CPU time, {} kinds of failures", known.len());
    if known.is_empty() { Ok(()) } else { Err("some lifecycles failed".to_owned()) }
}

/// Returns the CPU time of this process and of its ended children in seconds, or 0 if the system doesn't report it.
fn cpu_seconds() -> u64 {
    let text = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name of the program can have spaces. In hundredths of a second: user and system time, and that of the children.
    let (_, fields) = text.rsplit_once(')').unwrap_or_default();
    let times = fields.split_whitespace().skip(11).take(4);
    times.filter_map(|it| it.parse::<u64>().ok()).sum::<u64>() / 100
}

/// Runs a script several times.
fn again(file: &str, times: Option<&&str>) -> Result<(), String> {
    let (script, times) = (read(file)?, times.map_or(Ok(1), |it| number(Some(it)))?);
    let failures =
        (0..times).filter_map(|_| run::run(&script, run::LIMIT, times == 1, &|_| false).err());
    let failures: Vec<_> = failures.inspect(|failure| println!("{failure}")).collect();
    println!("{} of {times} runs failed", failures.len());
    if failures.is_empty() { Ok(()) } else { Err("the script failed".to_owned()) }
}

/// Reduces a script that fails in a way whose kind begins with these words, or in any way.
fn reduce(file: &str, options: &[&str]) -> Result<(), String> {
    let (script, minutes) = (read(file)?, options.first().map_or(Ok(5), |it| number(Some(it)))?);
    let words = options.get(1).copied().unwrap_or_default();
    let is_other = |kind: &str| !kind.starts_with(words);
    let failures = (0..TRIES).map(|_| run::run(&script, run::LIMIT, true, &is_other).err());
    let Some(failure) = failures.flatten().next() else {
        return Err("the script does not fail in this way".to_owned());
    };
    println!("{failure}");
    let time = Duration::from_secs(60 * minutes);
    println!("{}", reduce::reduce(&script, &failure, (TRIES, time)));
    Ok(())
}
