//! Measures the time, CPU time and bytes that an archive, a follower and a change stream add to a commit with a
//! journal. Measures the lag of an archive and a follower under full load, and the commits that are lost when the
//! original is killed under load and its follower is promoted.
//!
//! ```text
//! cargo run --release -p index-table-bench --bin archive -- [ROWS] [COMMITS] [ROUNDS] [DIRECTORY]
//! ```
//!
//! Each round measures all stores, in a different order each time. Ratios are medians of the ratios within a round. The
//! CPU time is that of all threads of the process.
#![allow(clippy::cast_precision_loss, reason = "figures for reports")]

use std::{
    env,
    error::Error,
    fs,
    io::{BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant, SystemTime},
};

use index_table::{Durability, Follower, IndexTable, Options, Store};
use index_table_bench::median;
use serde::{Deserialize, Serialize};

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

#[derive(Clone, Serialize, Deserialize, IndexTable)]
#[table(name = "orders")]
#[index(customer)]
#[index(day, include = [amount])]
struct Order {
    #[primary_key]
    number: u64,
    customer: u32,
    day: u32,
    amount: i64,
    text: String,
}

/// The same rows with a change stream.
mod streamed {
    use super::{Deserialize, IndexTable, Serialize};

    #[derive(Clone, Serialize, Deserialize, IndexTable)]
    #[table(name = "orders", changes)]
    #[index(customer)]
    #[index(day, include = [amount])]
    pub(crate) struct Order {
        #[primary_key]
        pub(crate) number: u64,
        pub(crate) customer: u32,
        pub(crate) day: u32,
        pub(crate) amount: i64,
        pub(crate) text: String,
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Plain,
    Stream,
    Archive,
    Follower,
}

const KINDS: [(Kind, &str); 4] = [
    (Kind::Plain, "journal"),
    (Kind::Stream, "journal, `changes`"),
    (Kind::Archive, "journal, archive"),
    (Kind::Follower, "journal, archive, follower in another process"),
];

fn main() -> Outcome {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["write", path] => return write(Path::new(path)),
        ["follow", path] => return follow(Path::new(path)),
        _ => {}
    }
    let argument = |at: usize, default: usize| {
        arguments.get(at).map_or(Ok(default), |text| text.parse::<usize>())
    };
    let (rows, commits, rounds) = (argument(0, 50_000)?, argument(1, 2_000)?, argument(2, 11)?);
    let directory = arguments.get(3).map_or_else(env::temp_dir, PathBuf::from);
    let directory = tempfile::tempdir_in(directory)?;
    commits_of(rows, commits, rounds, directory.path())?;
    lag(&directory.path().join("lag"))?;
    promotions(rounds, &directory.path().join("promotions"))
}

fn order(number: u64) -> Order {
    let mixed = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
    Order {
        number: mixed << 20 | number,
        customer: (mixed % 5000) as u32,
        day: (mixed >> 8) as u32 % 365,
        amount: i64::try_from(mixed).unwrap_or_default(),
        text: "x".repeat(80),
    }
}

fn options(kind: Kind, archive: &Path) -> Options {
    let options = Store::options().durability(Durability::Journal);
    if matches!(kind, Kind::Archive | Kind::Follower) { options.archive(archive) } else { options }
}

/// The CPU time of this process in seconds, and the bytes that it has written.
fn used() -> Outcome<(f64, u64)> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    let fields: Vec<&str> =
        stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).map_or(Ok(0), |text| text.parse::<u64>());
    let io = fs::read_to_string("/proc/self/io")?;
    let written = io.lines().find_map(|line| line.strip_prefix("wchar: "));
    // A tick is 10 ms on Linux.
    Ok(((ticks(11)? + ticks(12)?) as f64 / 100.0, written.unwrap_or("0").trim().parse()?))
}

/// The figures of a commit: time and CPU in microseconds, and bytes.
#[derive(Clone, Copy)]
struct Figures {
    time: f64,
    cpu: f64,
    bytes: f64,
}

fn measure(kind: Kind, rows: usize, commits: usize, path: &Path) -> Outcome<Figures> {
    let (store_path, archive) = (path.join("store"), path.join("archive"));
    let store = options(kind, &archive).open(&store_path)?;
    let count = rows as u64;
    let orders = || (count..count + commits as u64).map(order);
    let mut reader = None;
    let run: Box<dyn Fn() -> Outcome> = if kind == Kind::Stream {
        let table = streamed::OrderRepository::open(&store)?;
        let of = |Order { number, customer, day, amount, text }| streamed::Order {
            number,
            customer,
            day,
            amount,
            text,
        };
        store.transaction(|txn| {
            (0..count).try_for_each(|number| table.insert(txn, &of(order(number))))
        })?;
        let store = store.clone();
        Box::new(move || {
            for order in orders() {
                store.transaction(|txn| table.insert(txn, &of(order.clone())))?;
            }
            Ok(())
        })
    } else {
        let table = OrderRepository::open(&store)?;
        store.transaction(|txn| {
            (0..count).try_for_each(|number| table.insert(txn, &order(number)))
        })?;
        let store = store.clone();
        Box::new(move || {
            for order in orders() {
                store.transaction(|txn| table.insert(txn, &order))?;
            }
            Ok(())
        })
    };
    if let Kind::Archive | Kind::Follower = kind {
        wait(&store)?;
    }
    if kind == Kind::Follower {
        let mut child = child("follow", path)?;
        let out = child.stdout.take().ok_or("no output")?;
        BufReader::new(out).read_line(&mut String::new())?;
        reader = Some(child);
    }
    let (before, (cpu, bytes)) = (Instant::now(), used()?);
    run()?;
    let time = before.elapsed().as_secs_f64();
    if let Kind::Archive | Kind::Follower = kind {
        wait(&store)?;
    }
    let (cpu, bytes) = used().map(|(now, written)| (now - cpu, written - bytes))?;
    if let Some(mut reader) = reader {
        reader.kill()?;
        reader.wait()?;
    }
    drop((run, store));
    fs::remove_dir_all(path)?;
    let each = |value: f64| value / commits as f64;
    Ok(Figures { time: each(time * 1e6), cpu: each(cpu * 1e6), bytes: each(bytes as f64) })
}

fn commits_of(rows: usize, commits: usize, rounds: usize, path: &Path) -> Outcome {
    println!("Commits of one row: {rows} rows before, {rounds} rounds of {commits} commits\n");
    let mut all: Vec<Vec<Figures>> = vec![Vec::new(); KINDS.len()];
    for round in 0..rounds {
        for at in 0..KINDS.len() {
            let at = (at + round) % KINDS.len();
            let (kind, _) = KINDS[at];
            all[at].push(measure(kind, rows, commits, &path.join("commits"))?);
        }
    }
    println!("| | time | ratio | CPU | ratio | bytes written |");
    println!("|---|--:|--:|--:|--:|--:|");
    for ((_, name), figures) in KINDS.iter().zip(&all) {
        let of = |value: fn(&Figures) -> f64| median(figures.iter().map(value));
        let ratio = |value: fn(&Figures) -> f64| {
            median(figures.iter().zip(&all[0]).map(|(own, first)| value(own) / value(first)))
        };
        println!(
            "| {name} | {:.0} µs | {:.2} | {:.0} µs | {:.2} | {:.0} |",
            of(|it| it.time),
            ratio(|it| it.time),
            of(|it| it.cpu),
            ratio(|it| it.cpu),
            of(|it| it.bytes)
        );
    }
    Ok(())
}

fn wait(store: &Store) -> Outcome {
    loop {
        let lag = store.archive_lag().ok_or("no archive")?;
        if lag.commits == 0 && lag.has_base {
            return Ok(());
        }
        if let Some(error) = lag.error {
            return Err(error.into());
        }
        thread::sleep(Duration::from_millis(2));
    }
}

fn child(work: &str, path: &Path) -> Outcome<std::process::Child> {
    let mut command = Command::new(env::current_exe()?);
    Ok(command.arg(work).arg(path).stdout(Stdio::piped()).spawn()?)
}

/// Follows an archive until the process is killed.
fn follow(path: &Path) -> Outcome {
    let _follower = Follower::open(path.join("standby"), path.join("archive"))?;
    println!("open");
    loop {
        thread::sleep(Duration::from_secs(1));
    }
}

fn milliseconds() -> u128 {
    SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_millis()
}

/// Commits without a pause until the process is killed. Prints the number and the time of each commit.
fn write(path: &Path) -> Outcome {
    let store = options(Kind::Archive, &path.join("archive")).open(path.join("store"))?;
    let orders = OrderRepository::open(&store)?;
    wait(&store)?;
    let mut out = std::io::stdout();
    for number in 0.. {
        store.transaction(|txn| orders.insert(txn, &order(number)))?;
        writeln!(out, "{} {}", number + 1, milliseconds())?;
    }
    Ok(())
}

/// The lag of the archive and of a follower, while another process commits without a pause.
fn lag(path: &Path) -> Outcome {
    fs::create_dir_all(path)?;
    let mut writer = child("write", path)?;
    let mut lines = BufReader::new(writer.stdout.take().ok_or("no output")?).lines();
    lines.next().ok_or("no commit")??;
    let follower = Follower::open(path.join("standby"), path.join("archive"))?;
    let orders = OrderRepository::open(follower.store())?;
    // The time of each commit, by its number.
    let times = std::sync::Mutex::new(Vec::<u128>::new());
    let (mut behind, mut commits) = (Vec::new(), Vec::new());
    thread::scope(|scope| {
        scope.spawn(|| {
            for line in lines.map_while(Result::ok) {
                let time = line.split(' ').nth(1).and_then(|time| time.parse::<u128>().ok());
                times.lock().expect("no panic").extend(time);
            }
        });
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(10) {
            thread::sleep(Duration::from_millis(37));
            let now = milliseconds();
            let count = orders.all(&follower.store().read()?).count()?;
            let times = times.lock().expect("no panic");
            // The first commit has no time here.
            if let Some(next) = times.get((count as usize).saturating_sub(1)) {
                behind.push(now.saturating_sub(*next) as f64);
                commits.push(times.len() as f64 + 1.0 - count as f64);
            }
        }
        writer.kill()?;
        writer.wait()?;
        Ok::<_, Box<dyn Error>>(())
    })?;
    behind.sort_unstable_by(f64::total_cmp);
    let rate = times.into_inner()?.len() as f64 / 10.0;
    let at = |part: usize| behind[(behind.len() - 1) * part / 100];
    println!(
        "\nA follower while another process makes {rate:.0} commits in a second: {:.0} ms behind (median), {:.0} ms (p99); {:.0} commits (median)",
        at(50),
        at(99),
        median(commits.into_iter())
    );
    drop((orders, follower));
    fs::remove_dir_all(path)?;
    Ok(())
}

/// Kills a process that commits without a pause, and promotes its follower. Prints the lost commits, and how long before the
/// kill the first of them was acknowledged.
fn promotions(rounds: usize, path: &Path) -> Outcome {
    let (mut lost, mut age, mut promoted) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..rounds {
        fs::create_dir_all(path)?;
        let mut writer = child("write", path)?;
        let mut lines = BufReader::new(writer.stdout.take().ok_or("no output")?).lines();
        let mut times = vec![lines.next().ok_or("no commit")??];
        let follower = Follower::open(path.join("standby"), path.join("archive"))?;
        let reader = thread::spawn(move || lines.map_while(Result::ok).collect::<Vec<_>>());
        thread::sleep(Duration::from_millis(1000 + round as u64 * 53));
        writer.kill()?;
        writer.wait()?;
        let killed = milliseconds();
        times.extend(reader.join().map_err(|_| "a panic")?);
        let before = Instant::now();
        let store = follower.promote()?;
        promoted.push(before.elapsed().as_secs_f64() * 1e3);
        let orders = OrderRepository::open(&store)?;
        let count = orders.all(&store.read()?).count()? as usize;
        let time = |line: &String| line.split(' ').nth(1).and_then(|it| it.parse::<u128>().ok());
        lost.push(times.len().saturating_sub(count) as f64);
        let first = times.get(count).and_then(time);
        age.push(first.map_or(0.0, |first| killed.saturating_sub(first) as f64));
        drop((orders, store));
        fs::remove_dir_all(path)?;
    }
    let most = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
    println!(
        "\nThe original is killed under load, and the follower is promoted, {rounds} times: {:.0} ms of commits are lost (median), {:.0} ms at most; {:.0} commits (median), {:.0} at most; promoting takes {:.0} ms (median), {:.0} ms at most",
        median(age.iter().copied()),
        most(&age),
        median(lost.iter().copied()),
        most(&lost),
        median(promoted.iter().copied()),
        most(&promoted)
    );
    Ok(())
}
