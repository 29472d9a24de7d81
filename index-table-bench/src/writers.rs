//! Durable commits of one row each, by many threads, and by one thread with and without reserved space.

use std::{
    fs,
    path::Path,
    sync::{Barrier, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use crate::{
    contender::{Failure, Outcome},
    contenders::{fjall, heed, index_table, sqlite},
    median,
    run::SEED,
    workload::{Customer, Workload},
};

/// A function that inserts a row, which is on disk when the function returns. Each thread has its own.
pub type Insert = Box<dyn FnMut(&Customer) -> Result<(), String> + Send>;

/// A way to write: opens or creates the files in the directory, for a number of threads.
#[derive(Clone, Copy)]
pub struct Way {
    /// The name in the tables of the report.
    pub name: &'static str,
    /// A description for the report.
    pub about: &'static str,
    /// Opens the files, and returns a function for each thread.
    pub open: fn(&Path, usize) -> Outcome<Vec<Insert>>,
}

/// The ways to write with many threads. The others are compared with the first.
pub const TOGETHER: [Way; 4] = [
    Way {
        name: "index-table, group writer",
        about: "`store.writer()`: a closure for each row, and `wait` for its result",
        open: index_table::together,
    },
    Way {
        name: "index-table, one by one",
        about: "`store.transaction` in each thread",
        open: index_table::alone,
    },
    Way {
        name: "heed, one by one",
        about: "written by hand on heed: a transaction for each row, threads wait for LMDB's lock",
        open: heed::alone,
    },
    Way {
        name: "SQLite",
        about: "WAL, synchronous=FULL; a connection for each thread, with a busy timeout",
        open: sqlite::alone,
    },
];

/// The ways to write with one thread.
pub const SINGLE: [Way; 5] = [
    Way {
        name: "index-table",
        about: "a transaction for each row, with 1 MiB reserved, the default",
        open: index_table::alone,
    },
    Way {
        name: "index-table, no reserve",
        about: "the same with `reserve(0)`",
        open: index_table::alone_without_reserve,
    },
    Way {
        name: "index-table, reader held",
        about: "as the first, while a read transaction prevents the reuse of pages",
        open: index_table::held,
    },
    Way {
        name: "index-table, reader held, no reserve",
        about: "the same with `reserve(0)`: each commit extends the file",
        open: index_table::held_without_reserve,
    },
    Way { name: "SQLite", about: "WAL, synchronous=FULL, one connection", open: sqlite::alone },
];

/// The ways to write with one thread, with and without a journal.
pub const JOURNAL: [Way; 5] = [
    Way {
        name: "index-table, journal",
        about: "`Durability::Journal`, the default: a transaction for each row",
        open: index_table::alone_in_journal,
    },
    Way {
        name: "index-table, full",
        about: "the same with `Durability::Full`",
        open: index_table::alone,
    },
    Way {
        name: "heed",
        about: "written by hand on heed: a transaction for each row",
        open: heed::alone,
    },
    Way { name: "SQLite", about: "WAL, synchronous=FULL, one connection", open: sqlite::alone },
    Way { name: "fjall", about: "a transaction for each row, with a sync", open: fjall::alone },
];

/// The ways to write with many threads and a group writer, with and without a journal.
pub const GROUPS: [Way; 2] = [
    Way {
        name: "group writer, journal",
        about: "`store.writer()` with `Durability::Journal`, the default",
        open: index_table::together_in_journal,
    },
    Way {
        name: "group writer, full",
        about: "the same with `Durability::Full`",
        open: index_table::together,
    },
];

/// The results of a run.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Results {
    /// The number of threads.
    pub threads: usize,
    /// The number of rows before the run.
    pub rows: usize,
    /// The number of commits in a round.
    pub commits: usize,
    /// The number of rounds.
    pub rounds: usize,
    /// The figures of each way.
    pub figures: Vec<Figure>,
}

/// The figures of a way.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Figure {
    /// The name of the way.
    pub name: String,
    /// The median of the rows written in a second.
    pub per_second: f64,
    /// The factor by which the first way is faster, the median of the rounds.
    pub ratio: f64,
    /// The median time of a commit in nanoseconds.
    pub p50: f64,
    /// The 99th percentile of the time of a commit.
    pub p99: f64,
}

impl Results {
    /// Returns the figures of a way.
    #[must_use]
    pub fn figure(&self, name: &str) -> Option<&Figure> {
        self.figures.iter().find(|figure| figure.name == name)
    }
}

/// Measures all ways in turn.
///
/// # Errors
///
/// The errors of a way.
pub fn run(
    ways: &[Way],
    threads: usize,
    commits: usize,
    rounds: usize,
    directory: &Path,
) -> Result<Results, String> {
    run_with(ways, (threads, 10_000), commits, rounds, directory)
}

/// Does the same as [`run`] with this number of rows before the run.
///
/// # Errors
///
/// The errors of a way.
pub fn run_with(
    ways: &[Way],
    (threads, before): (usize, usize),
    commits: usize,
    rounds: usize,
    directory: &Path,
) -> Result<Results, String> {
    let mut workload = Workload::new(SEED, before);
    let say = |way: &Way, failure| match failure {
        Failure::Lacks => format!("{} lacks it", way.name),
        Failure::Failed(error) => format!("{}: {error}", way.name),
    };
    let mut open = Vec::new();
    for (index, way) in ways.iter().enumerate() {
        let path = directory.join(format!("writers-{threads}-{index}"));
        let load = match way.name {
            "SQLite" => sqlite::open,
            "fjall" => fjall::open,
            _ => index_table::open,
        };
        let loaded = load(&path).and_then(|mut table| table.insert(workload.rows()));
        loaded.map_err(|failure| say(way, failure))?;
        let inserts = (way.open)(&path, threads).map_err(|failure| say(way, failure))?;
        open.push((path, inserts, Vec::new(), Vec::new()));
    }
    for round in 0..rounds {
        eprintln!("{threads} threads that write, round {} of {rounds}", round + 1);
        let rows = workload.more(commits);
        for turn in 0..ways.len() {
            let index = (turn + round) % ways.len();
            let (_, inserts, seconds, latencies) = &mut open[index];
            let (elapsed, mut each) = insert_all(inserts, &rows)?;
            seconds.push(elapsed.as_secs_f64());
            latencies.append(&mut each);
        }
    }
    let mut figures = Vec::new();
    let first = open.first().map(|(_, _, seconds, _)| seconds.clone()).unwrap_or_default();
    for (way, (path, inserts, seconds, mut latencies)) in ways.iter().zip(open) {
        latencies.sort_unstable();
        let at = |part: usize| latencies[(latencies.len() - 1) * part / 100].as_nanos() as f64;
        figures.push(Figure {
            name: way.name.to_owned(),
            per_second: commits as f64 / median(seconds.iter().copied()),
            ratio: median(seconds.iter().zip(&first).map(|(own, first)| own / first)),
            p50: at(50),
            p99: at(99),
        });
        drop(inserts);
        fs::remove_dir_all(path).map_err(|error| error.to_string())?;
    }
    Ok(Results { threads, rows: before, commits, rounds, figures })
}

/// Inserts rows, each thread its part. Returns the total time, and the time of each row.
fn insert_all(
    inserts: &mut [Insert],
    rows: &[Customer],
) -> Result<(Duration, Vec<Duration>), String> {
    let (start, all) = (Barrier::new(inserts.len() + 1), Mutex::new(Vec::new()));
    let threads = inserts.len();
    thread::scope(|scope| {
        let (start, all) = (&start, &all);
        let threads: Vec<_> = inserts
            .iter_mut()
            .enumerate()
            .map(|(thread, insert)| {
                scope.spawn(move || {
                    start.wait();
                    let mut own = Vec::new();
                    for row in rows.iter().skip(thread).step_by(threads) {
                        let before = Instant::now();
                        insert(row)?;
                        own.push(before.elapsed());
                    }
                    all.lock().unwrap_or_else(PoisonError::into_inner).append(&mut own);
                    Ok::<_, String>(())
                })
            })
            .collect();
        start.wait();
        let before = Instant::now();
        for thread in threads {
            thread.join().map_err(|_| "a thread has panicked".to_owned())??;
        }
        Ok::<_, String>(before.elapsed())
    })
    .map(|elapsed| (elapsed, all.into_inner().unwrap_or_else(PoisonError::into_inner)))
}
