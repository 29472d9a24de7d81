//! Power failures, simulated.
//!
//! The writes of a killed process stay in the system's cache, so a kill shows nothing about the disk. Here, a preloaded
//! library records every write, change of length, change of a name, and sync of a child. From the record, this process
//! makes images of the disk that a power failure could leave at any moment ([`disk`]). It opens each image, and compares
//! it with the acknowledgements that were recorded before that moment:
//!
//! - Every acknowledged commit is present. The next commit may be present too. Each is complete.
//! - `check` and `verify` find nothing, and the next commit succeeds.
//!
//! Some images are the files of the next child, so that power fails again during recovery. [`run_weakened`] omits syncs or
//! runs a variant of the journal, and requires images that fail.

mod disk;
mod record;

use std::{
    fs,
    io::{BufRead as _, BufReader},
    ops::Range,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use crate::{
    crash::{Known, SCENARIOS, Scenario, TOGETHER},
    random::Random,
    shop::Model,
};
use disk::Disk;
use record::Event;

type Failure = String;

/// The number of images of a record.
const OF_A_RECORD: u64 = 50;

/// The maximum time until the next acknowledgement of a child.
const PATIENCE: Duration = Duration::from_secs(2);

/// The maximum time to check an image. A check takes milliseconds, and longer when other programs run.
const JUDGEMENT: Duration = Duration::from_mins(2);

/// The results of a scenario.
#[derive(Default)]
struct Counted {
    images: u64,
    records: u64,
    failed: u64,
    /// The number of images with a commit that was not acknowledged.
    ahead: u64,
    first_failure: Option<String>,
}

/// Makes a number of images in each scenario that `only` names, and checks them.
pub(crate) fn run(images: u64, seed: u64, only: &str) -> Result<(), Failure> {
    println!(
        "power: {images} images of each scenario, {}, from seed {seed}",
        crate::durability_name()
    );
    let failed = run_all(images, seed, only, "")?;
    if failed == 0 { Ok(()) } else { Err(format!("{failed} images failed")) }
}

/// Does the same while the syncs of files with `ignored` in their names do nothing. Returns an error if no image fails.
pub(crate) fn run_weakened(
    images: u64,
    seed: u64,
    only: &str,
    ignored: &str,
) -> Result<(), Failure> {
    let durability = crate::durability_name();
    let without = match std::env::var("INDEX_TABLE_WEAKEN") {
        Ok(variant) => format!("variant `{variant}`"),
        Err(_) if ignored.is_empty() => "as it is".to_owned(),
        Err(_) => format!("without syncs of `{ignored}`"),
    };
    println!(
        "power: {images} images, {durability}, {without}, of which some have to fail, from seed {seed}"
    );
    match run_all(images, seed, only, ignored)? {
        0 => Err("no image failed".to_owned()),
        _ => Ok(()),
    }
}

/// Returns true if a variant of the journal is chosen, in a build with variants.
fn is_any_weakened() -> bool {
    std::env::var_os("INDEX_TABLE_WEAKEN").is_some()
}

/// Returns true if this variant is chosen.
fn is_weakened(variant: &str) -> bool {
    std::env::var("INDEX_TABLE_WEAKEN").is_ok_and(|chosen| chosen == variant)
}

fn run_all(images: u64, seed: u64, only: &str, ignored: &str) -> Result<u64, Failure> {
    let dir = crate::scratch().map_err(|error| error.to_string())?;
    let shim = crate::compile(dir.path(), "record", include_str!("../../shim/record.c"))?;
    println!("{:26} {:>7} {:>7} {:>7} {:>7}", "during", "records", "images", "ahead", "failed");
    let mut failed = 0;
    for (number, scenario) in SCENARIOS.iter().enumerate() {
        // The images of a store that always has a journal are the same at each durability.
        let is_repeated =
            only.is_empty() && scenario.has_journal && crate::durability_name() != "journal";
        if !scenario.is_chosen(only) || scenario.is_beside || is_repeated {
            continue;
        }
        let files = dir.path().join("files");
        let setup = Setup { number, scenario, shim: &shim, dir: &files, ignored };
        let counted = setup
            .run(images, &mut Random(seed ^ (number as u64) << 32))
            .map_err(|error| format!("{}: {error}", scenario.name))?;
        let Counted { images, records, failed: bad, ahead, first_failure } = counted;
        println!("{:26} {records:>7} {images:>7} {ahead:>7} {bad:>7}", scenario.name);
        if let Some(first) = first_failure {
            println!("  {first}");
        }
        failed += bad;
    }
    Ok(failed)
}

/// The events of one or two processes.
struct Record {
    events: Vec<Event>,
    /// The positions of the events in which the second process opens the store. Half of the images are made there.
    recovery: Range<usize>,
}

struct Setup<'s> {
    number: usize,
    scenario: &'s Scenario,
    shim: &'s Path,
    dir: &'s Path,
    ignored: &'s str,
}

impl Setup<'_> {
    fn run(&self, images: u64, random: &mut Random) -> Result<Counted, Failure> {
        let mut counted = Counted::default();
        let mut known = Known::default();
        while counted.images < images {
            if counted.records % self.scenario.rounds.min(8) == 0 {
                known = Known::default();
                empty(self.dir)?;
                empty(&self.work())?;
            }
            counted.records += 1;
            known.random = random.draw();
            known.said = 0;
            // A store that stays open while the child writes.
            let open = (self.scenario.before)(&self.work(), &mut known)?;
            self.keep_foreign()?;
            let mut disk = Disk::load(&self.work())?;
            let recorded = self.record_all(random);
            drop(open);
            let record = match recorded {
                // An image was intact by its judge, but not for a longer run.
                Err(ended) if is_any_weakened() && counted.records > 1 => {
                    counted.images += 1;
                    counted.failed += 1;
                    counted.first_failure.get_or_insert(ended);
                    known = Known::default();
                    empty(&self.work())?;
                    continue;
                }
                recorded => recorded?,
            };
            // If a record has only one critical moment, more records are needed.
            let of_a_record = if self.scenario.needs_power { OF_A_RECORD / 5 } else { OF_A_RECORD };
            let share = of_a_record.min(images - counted.images);
            self.judge_all(&mut disk, &record, share, &mut known, random, &mut counted)?;
        }
        Ok(counted)
    }

    fn work(&self) -> PathBuf {
        self.dir.join("work")
    }

    fn foreign(&self) -> PathBuf {
        self.dir.join("foreign")
    }

    /// Keeps a copy of the data file, which is put next to a later journal.
    fn keep_foreign(&self) -> Result<(), Failure> {
        let data = self.work().join("store").join("data.mdb");
        if !data.exists() || self.foreign().exists() || !is_weakened("foreign-data") {
            return Ok(());
        }
        fs::copy(data, self.foreign()).map(drop).map_err(|error| error.to_string())
    }

    /// Runs the child. In some records of [`TOGETHER`], it is killed, and another child recovers the store: it finds
    /// writes in the system's cache that were not synced.
    fn record_all(&self, random: &mut Random) -> Result<Record, Failure> {
        let mut events = self.record(random)?;
        let mut recovery = 0..0;
        if self.scenario.name == TOGETHER && random.below(3) > 0 {
            if let Some(Event::Write { inode, at, data, .. }) = events.last_mut() {
                interrupt(&self.work(), *inode, *at, data).map_err(|error| error.to_string())?;
            }
            let recovered = self.record(random)?;
            let is_open =
                |event: &Event| matches!(event, Event::Output(text) if text.starts_with("open"));
            let opened = recovered.iter().position(is_open).unwrap_or(recovered.len());
            recovery = events.len()..events.len() + opened;
            events.extend(recovered);
        }
        Ok(Record { events, recovery })
    }

    /// Runs the child until it has acknowledged a few commits.
    fn record(&self, random: &mut Random) -> Result<Vec<Event>, Failure> {
        let log = self.dir.join("record");
        let _ = fs::remove_file(&log);
        let mut child = self.spawn(&log)?;
        let awaited = random.below(6 + self.scenario.awaited * 8) + 1;
        let ended = wait(&mut child, awaited);
        let _ = child.kill();
        let _ = child.wait();
        ended?;
        record::read(&log)
    }

    fn spawn(&self, log: &Path) -> Result<Child, Failure> {
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let mut command = Command::new(program);
        command.arg("crash-child").arg(self.number.to_string()).arg(self.work());
        command.env("LD_PRELOAD", self.shim).env("RECORD_LOG", log).env("RECORD_DIR", self.work());
        command.stdout(Stdio::piped()).spawn().map_err(|error| error.to_string())
    }

    fn judge_all(
        &self,
        disk: &mut Disk,
        Record { events, recovery }: &Record,
        images: u64,
        known: &mut Known,
        random: &mut Random,
        counted: &mut Counted,
    ) -> Result<(), Failure> {
        let (image, next) = (self.dir.join("image"), self.dir.join("next"));
        let ignored = |path: &str| {
            let name = path.rsplit('/').next().unwrap_or_default();
            !self.ignored.is_empty() && name.contains(self.ignored)
        };
        let mut moment = |_| {
            let is_any = recovery.is_empty() || random.below(2) == 0;
            let (first, end) = (recovery.start as u64, recovery.end as u64);
            if is_any {
                random.below(events.len() as u64 + 1)
            } else {
                first + random.below(end - first)
            }
        };
        let mut moments: Vec<u64> = (0..images).map(&mut moment).collect();
        moments.sort_unstable();
        let chosen = random.below(images);
        let (mut taken, mut said) = (0, 0);
        let mut follower = None;
        for (number, moment) in moments.into_iter().enumerate() {
            for event in events.get(taken..moment as usize).unwrap_or_default() {
                disk.take(event, &ignored)?;
                if let Event::Output(text) = event {
                    said += text.lines().filter(|line| *line == "done").count() as u64;
                    if let Some(error) = text.lines().find_map(|line| line.strip_prefix("error: "))
                    {
                        return Err(format!("the child met {error}"));
                    }
                }
            }
            taken = moment as usize;
            let seed = random.draw();
            empty(&image)?;
            disk.image(&mut Random(seed), &image).map_err(|error| error.to_string())?;
            let data = image.join("store").join("data.mdb");
            if self.foreign().exists() && data.exists() {
                fs::copy(self.foreign(), data).map_err(|error| error.to_string())?;
            }
            let is_chosen = number as u64 == chosen;
            if is_chosen {
                empty(&next)?;
                disk.image(&mut Random(seed), &next).map_err(|error| error.to_string())?;
            }
            counted.images += 1;
            match self.judge(&image, known, said) {
                Ok(found) => {
                    counted.ahead += u64::from(found.found > known.found);
                    if is_chosen {
                        follower = Some(found);
                    }
                }
                Err(wrong) => {
                    counted.failed += 1;
                    let of = events.len();
                    counted.first_failure.get_or_insert_with(|| {
                        format!(
                            "record {}, event {moment} of {of}, {said} acknowledged: {wrong}",
                            counted.records
                        )
                    });
                    if let Some(kept) = std::env::var_os("POWER_KEEP") {
                        let _ = fs::remove_dir_all(&kept);
                        empty(Path::new(&kept))?;
                        disk.image(&mut Random(seed), Path::new(&kept))
                            .map_err(|error| error.to_string())?;
                        return Err(wrong);
                    }
                }
            }
        }
        fs::remove_dir_all(self.work()).map_err(|error| error.to_string())?;
        if let Some(found) = follower {
            *known = found;
            fs::rename(&next, self.work()).map_err(|error| error.to_string())
        } else {
            // An image that failed is not continued.
            *known = Known::default();
            empty(&self.work())
        }
    }

    /// Checks an image in a separate process, because LMDB may crash.
    fn judge(&self, image: &Path, known: &Known, said: u64) -> Result<Known, Failure> {
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let mut command = Command::new(program);
        command.arg("power-judge").arg(self.number.to_string()).arg(image);
        let numbers = [known.filled, known.acknowledged, known.found, known.model.steps, said];
        command.args(numbers.map(|number| number.to_string()));
        let output = output_of(&mut command)?;
        let text = String::from_utf8_lossy(&output.stdout);
        if !output.status.success() {
            return Err(format!("{} {}", output.status, text.trim()));
        }
        let numbers: Vec<u64> =
            text.split_whitespace().filter_map(|text| text.parse().ok()).collect();
        known_from(&numbers).ok_or_else(|| format!("the judge wrote {text}"))
    }
}

/// Replaces the bytes of the last write of a killed process by the bytes in the file. A write is recorded before it is done, and
/// the process that is started next finds nothing of a write that was not done.
fn interrupt(path: &Path, inode: u64, at: u64, data: &mut Vec<u8>) -> std::io::Result<()> {
    for entry in fs::read_dir(path)? {
        let (entry, path) = entry.map(|entry| (entry.metadata(), entry.path()))?;
        let found = entry?;
        if found.is_dir() {
            interrupt(&path, inode, at, data)?;
        } else if found.ino() == inode {
            let content = fs::read(path)?;
            let there = content.get(at as usize..).unwrap_or_default();
            *data = there[..there.len().min(data.len())].to_vec();
        }
    }
    Ok(())
}

/// Runs the process that checks an image. In a damaged tree, LMDB may not return.
fn output_of(command: &mut Command) -> Result<Output, Failure> {
    let shown = |error: std::io::Error| error.to_string();
    let mut child = command.stdout(Stdio::piped()).spawn().map_err(shown)?;
    let started = Instant::now();
    while child.try_wait().map_err(shown)?.is_none() {
        if started.elapsed() > JUDGEMENT {
            child.kill().and_then(|()| child.wait()).map_err(shown)?;
            return Err("the check of the image does not end".to_owned());
        }
        thread::sleep(Duration::from_millis(1));
    }
    child.wait_with_output().map_err(shown)
}

/// The work of the process that checks an image.
pub(crate) fn judge(scenario: &str, path: &str, numbers: &[&str]) -> Result<(), Failure> {
    let scenario = scenario.parse().ok().and_then(|number: usize| SCENARIOS.get(number));
    let scenario = scenario.ok_or("no such scenario")?;
    let numbers: Vec<u64> = numbers.iter().filter_map(|text| text.parse().ok()).collect();
    let mut known = known_from(&numbers).ok_or("a number is missing")?;
    known.said = numbers.get(4).copied().ok_or("a number is missing")?;
    known.acknowledged += known.said;
    (scenario.after)(Path::new(path), &mut known)?;
    go_on(Path::new(path))?;
    let Known { filled, acknowledged, found, model, .. } = known;
    println!("{filled} {acknowledged} {found} {}", model.steps);
    Ok(())
}

fn known_from(numbers: &[u64]) -> Option<Known> {
    let [filled, acknowledged, found, steps, ..] = *numbers else { return None };
    let mut model = Model::default();
    model.advance(steps);
    Some(Known { model, filled, acknowledged, found, ..Known::default() })
}

/// Commits once more, and checks everything again. An archive of the store does not get this commit.
fn go_on(path: &Path) -> Result<(), Failure> {
    if crate::crash::shards::exists(path) {
        return crate::crash::shards::go_on(path);
    }
    if crate::crash::together::exists(path) {
        return crate::crash::together::go_on(path);
    }
    if crate::crash::together::growth::exists(path) {
        return crate::crash::together::growth::go_on(path);
    }
    let shop = crate::crash::open_with(path, &crate::options().without_archive())?;
    let mut model = Model::default();
    model.advance(shop.steps().map_err(|error| error.to_string())?);
    shop.step(&mut model)?.map_err(|error| format!("the next commit: {error}"))?;
    shop.prove(&model).map_err(|error| format!("after the next commit: {error}"))
}

/// Waits for a number of acknowledgements. Returns an error if the child ends by itself.
fn wait(child: &mut Child, awaited: u64) -> Result<(), Failure> {
    let lines = BufReader::new(child.stdout.take().ok_or("no output")?).lines();
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    for _ in 0..awaited {
        match receiver.recv_timeout(PATIENCE) {
            Ok(_) => {}
            // A child without further work sleeps.
            Err(mpsc::RecvTimeoutError::Timeout) => return Ok(()),
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                return Err("the child has ended".to_owned());
            }
        }
    }
    Ok(())
}

fn empty(dir: &Path) -> Result<(), Failure> {
    let _ = fs::remove_dir_all(dir);
    fs::create_dir_all(dir).map_err(|error| error.to_string())
}
