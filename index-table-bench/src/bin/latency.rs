//! Measures the time of durable transactions beside checkpoints and between them.
//!
//! ```text
//! cargo run --release -p index-table-bench --bin latency -- [ROWS] [SECONDS] [DIRECTORY]
//! ```
//! The table has this number of rows before the run, with random primary keys and two indexes. Each of the four parts runs for
//! this time: inserts of one row by one thread, and by 64 threads with the group writer; transactions of 1,000 rows by one thread
//! and by 64. A transaction is *beside* a checkpoint if they overlap. The directory must be on a disk.

use std::{
    env,
    error::Error,
    fs::File,
    io::{Read as _, Seek as _, SeekFrom},
    path::{Path, PathBuf},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use index_table::{IndexTable, Store};
use index_table_bench::{random::Random, run::SEED};
use serde::{Deserialize, Serialize};

/// The number of the next thread's random rows.
static NEXT: AtomicU64 = AtomicU64::new(1);

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

#[derive(Debug, Clone, Serialize, Deserialize, IndexTable)]
#[table(name = "events")]
#[indexes((device), (value, unique))]
struct Event {
    #[primary_key]
    id: u64,
    device: u32,
    value: u64,
    text: String,
}

fn event(random: &mut Random) -> Event {
    let (id, value) = (random.draw(), random.draw());
    Event { id, device: random.below(10_000) as u32, value, text: format!("{id:064}") }
}

/// The number of checkpoints that have begun, and the number that have ended.
#[derive(Default)]
struct Checkpoints {
    begun: AtomicU64,
    ended: AtomicU64,
}

impl Checkpoints {
    /// Returns the number of the checkpoint in progress or of the next one, and whether it is in progress.
    fn now(&self) -> (u64, bool) {
        let ended = self.ended.load(SeqCst);
        (ended, self.begun.load(SeqCst) > ended)
    }

    /// Watches the files of the journal: a checkpoint begins with a frame at the start of another segment, and ends with the
    /// block of this segment.
    fn watch(&self, path: &Path, is_over: &AtomicBool) -> std::io::Result<()> {
        let mut files: Vec<_> = (0..3)
            .map(|at| File::open(path.join(format!("journal.{at}"))))
            .collect::<std::io::Result<_>>()?;
        let (mut blocks, mut frames) = ([[0; 64]; 3], [[0; 64]; 3]);
        let mut is_first = true;
        while !is_over.load(SeqCst) {
            let (mut has_begun, mut has_ended) = (false, false);
            for ((file, block), frame) in files.iter_mut().zip(&mut blocks).zip(&mut frames) {
                let mut bytes = [0; 64];
                file.seek(SeekFrom::Start(0))?;
                file.read_exact(&mut bytes)?;
                has_ended |= std::mem::replace(block, bytes) != bytes;
                file.seek(SeekFrom::Start(4096))?;
                file.read_exact(&mut bytes)?;
                has_begun |= std::mem::replace(frame, bytes) != bytes;
            }
            // A frame may be read twice while it is written, so a begun checkpoint is not counted again.
            if !std::mem::take(&mut is_first) {
                if has_begun {
                    self.begun.store(self.ended.load(SeqCst) + 1, SeqCst);
                }
                if has_ended {
                    self.ended.store(self.begun.load(SeqCst), SeqCst);
                }
            }
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}

/// The times of transactions beside checkpoints, and between them.
#[derive(Default)]
struct Times {
    beside: Vec<Duration>,
    between: Vec<Duration>,
}

/// Runs a transaction again and again in each thread.
fn measure(
    path: &Path,
    (threads, seconds): (usize, u64),
    transaction: impl Fn(&mut Random) -> Result<(), index_table::Error> + Sync,
) -> Outcome<(Times, u64)> {
    let (checkpoints, is_over) = (Checkpoints::default(), AtomicBool::new(false));
    let times = Mutex::new(Times::default());
    thread::scope(|scope| {
        let watch = scope.spawn(|| checkpoints.watch(path, &is_over));
        let run = || {
            let mut random = Random(SEED.wrapping_mul(NEXT.fetch_add(1, SeqCst) << 8));
            let (start, mut own) = (Instant::now(), Times::default());
            while start.elapsed() < Duration::from_secs(seconds) {
                let ((ended, was_making), begun) = (checkpoints.now(), Instant::now());
                transaction(&mut random)?;
                let (time, (now, is_making)) = (begun.elapsed(), checkpoints.now());
                let is_beside = was_making || is_making || now > ended;
                if is_beside { own.beside.push(time) } else { own.between.push(time) }
            }
            let mut times = times.lock().unwrap_or_else(PoisonError::into_inner);
            times.beside.append(&mut own.beside);
            times.between.append(&mut own.between);
            Ok::<_, index_table::Error>(())
        };
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        let ended: Result<Vec<()>, _> =
            threads.into_iter().map(|thread| thread.join().expect("a thread")).collect();
        is_over.store(true, SeqCst);
        watch.join().expect("a thread")?;
        ended?;
        Ok::<_, Box<dyn Error>>(())
    })?;
    let times = times.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok((times, checkpoints.ended.load(SeqCst)))
}

fn print(name: &str, (times, checkpoints): (Times, u64), seconds: u64) {
    let Times { mut beside, mut between } = times;
    let mut all = [&beside[..], &between].concat();
    for times in [&mut all, &mut beside, &mut between] {
        times.sort_unstable();
    }
    let at = |times: &[Duration], thousandths: usize| {
        let last = times.len().saturating_sub(1);
        times.get(last * thousandths / 1000).map_or(f64::NAN, |time| time.as_secs_f64() * 1000.0)
    };
    let rate = all.len() as u64 / seconds;
    print!("| {name} | {rate} | {checkpoints} |");
    for times in [&all, &between, &beside] {
        let [p50, p99, longest] = [500, 990, 1000].map(|thousandths| at(times, thousandths));
        print!(" {} | {p50:.2} | {p99:.2} | {longest:.1} |", times.len());
    }
    let to_p50 = at(&all, 990) / at(&all, 500);
    let to_between = at(&all, 990) / at(&between, 990);
    println!(" {to_p50:.1} | {to_between:.1} |");
}

fn main() -> Outcome {
    let mut arguments = env::args().skip(1);
    let mut argument = |default: u64| arguments.next().map_or(Ok(default), |text| text.parse());
    let (rows, seconds) = (argument(1_000_000)?, argument(20)?);
    let directory = arguments.next().map_or_else(env::temp_dir, PathBuf::from);
    let directory = tempfile::tempdir_in(directory)?;
    let path = directory.path();
    let store = Store::open(path)?;
    let events = EventRepository::open(&store)?;
    let mut random = Random(SEED);
    events.bulk_load(&store, (0..rows).map(|_| event(&mut random))).run()?;
    let length = std::fs::metadata(path.join("data.mdb"))?.len() >> 20;
    println!("{rows} rows, {length} MiB; times in ms\n");
    println!(
        "| | transactions a second | checkpoints | all | p50 | p99 | longest | between | p50 | p99 | longest | beside | p50 \
         | p99 | longest | p99 / p50 | p99 / between |"
    );
    println!("|---{}|", "|--:".repeat(16));
    let one = |random: &mut Random| store.transaction(|txn| events.insert(txn, &event(random)));
    let many = |random: &mut Random| {
        let rows: Vec<_> = (0..1000).map(|_| event(random)).collect();
        store.transaction(|txn| rows.iter().try_for_each(|row| events.insert(txn, row)))
    };
    let writer = store.writer()?;
    let grouped = |random: &mut Random| {
        let (events, row) = (events.clone(), event(random));
        writer.submit(move |txn| events.insert(txn, &row)).wait()
    };
    print("a row, one thread", measure(path, (1, seconds), one)?, seconds);
    print("a row, 64 threads", measure(path, (64, seconds), grouped)?, seconds);
    print("1,000 rows, one thread", measure(path, (1, seconds), many)?, seconds);
    print("1,000 rows, 64 threads", measure(path, (64, seconds), many)?, seconds);
    drop(writer);
    let copy = path.join("copy");
    store.compact_to(&copy)?;
    let length = std::fs::metadata(path.join("data.mdb"))?.len() >> 20;
    let used = std::fs::metadata(copy.join("data.mdb"))?.len() >> 20;
    println!("\n{length} MiB afterwards, {used} MiB without free pages");
    Ok(())
}
