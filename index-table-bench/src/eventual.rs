//! Writes with strong and with eventual indexes: the cost of a write, and the maximum rate of the worker.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use index_table::{Durability, Store, WhenFull, WriteTxn};
use serde::{Deserialize, Serialize};

use crate::median;

/// The results of a run.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Results {
    /// The number of rows.
    pub rows: usize,
    /// The number of commits of one row in a round.
    pub commits: usize,
    /// The number of rounds.
    pub rounds: usize,
    /// A figure for each number of indexes and each consistency.
    pub figures: Vec<Figure>,
}

/// The cost of a number of indexes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Figure {
    /// The number of indexes; each write changes the key in all of them.
    pub indexes: usize,
    /// `strong` or `eventual`.
    pub consistency: String,
    /// The time to write one of many rows in a transaction, in nanoseconds, in memory and without a worker.
    pub write: f64,
    /// The median time of a durable commit of one row, in nanoseconds, with a worker.
    pub p50: f64,
    /// The 99th percentile of the time of such a commit.
    pub p99: f64,
    /// The number of rows written in a second, in memory, in transactions of 100 rows. Writers wait while the queue
    /// is full, so this is the rate of the worker.
    pub kept_up: f64,
    /// The number of messages applied in a second without writers; `None` for strong indexes.
    pub applied: Option<f64>,
}

/// A table with indexes, whose rows are made from numbers.
trait Table {
    fn put(&self, txn: &mut WriteTxn<'_>, id: u64, round: u64) -> index_table::Result<()>;
    fn drain_all(&self, store: &Store) -> index_table::Result<u64>;
}

type Opened = index_table::Result<Box<dyn Table>>;

macro_rules! tables {
    ($($name:ident: [$($field:ident)*] $consistency:tt $drain:expr;)*) => {$(
        mod $name {
            use index_table::{IndexTable, Result, Store, WriteTxn};
            use serde::{Deserialize, Serialize};

            #[derive(Serialize, Deserialize, IndexTable)]
            #[table(name = "rows")]
            $(#[index($field, consistency = $consistency)])*
            struct Row {
                #[primary_key]
                id: u64,
                text: String,
                $($field: u64,)*
            }

            pub(super) fn open(store: &Store) -> super::Opened {
                Ok(Box::new(RowRepository::open(store)?))
            }

            impl super::Table for RowRepository {
                fn put(&self, txn: &mut WriteTxn<'_>, id: u64, round: u64) -> Result<()> {
                    let mut value = super::mixed(id ^ (round << 32));
                    let mut next = || {
                        value = super::mixed(value);
                        value
                    };
                    let row = Row { id, text: format!("{id:0100}"), $($field: next(),)* };
                    RowRepository::put(self, txn, &row)
                }

                fn drain_all(&self, store: &Store) -> Result<u64> {
                    let drain: fn(&RowRepository, &Store) -> Result<u64> = $drain;
                    drain(self, store)
                }
            }
        }
    )*};
}

tables! {
    strong_1: [a] "strong" |_, _| Ok(0);
    strong_4: [a b c d] "strong" |_, _| Ok(0);
    strong_16: [a b c d e f g h i j k l m n o p] "strong" |_, _| Ok(0);
    eventual_1: [a] "eventual" |rows, store| Ok(rows.drain(store, u64::MAX)?.applied);
    eventual_4: [a b c d] "eventual" |rows, store| Ok(rows.drain(store, u64::MAX)?.applied);
    eventual_16: [a b c d e f g h i j k l m n o p] "eventual"
        |rows, store| Ok(rows.drain(store, u64::MAX)?.applied);
}

type Kind = (usize, &'static str, fn(&Store) -> Opened);

const KINDS: [Kind; 6] = [
    (1, "strong", strong_1::open),
    (1, "eventual", eventual_1::open),
    (4, "strong", strong_4::open),
    (4, "eventual", eventual_4::open),
    (16, "strong", strong_16::open),
    (16, "eventual", eventual_16::open),
];

/// The number of messages in a queue at which writers wait.
const QUEUE: u64 = 10_000;

/// The number of rows in a large transaction.
const BATCH: usize = 100;

/// Measures all kinds of tables in turn. Durable commits are measured in the directory `disk`, everything else in
/// `memory`.
///
/// # Errors
///
/// The errors of the store.
pub fn run(
    rows: usize,
    commits: usize,
    rounds: usize,
    disk: &Path,
    memory: &Path,
) -> Result<Results, String> {
    let mut measured: Vec<Rounds> = KINDS.iter().map(|_| Rounds::default()).collect();
    for round in 0..rounds {
        for turn in 0..KINDS.len() {
            let kind = (turn + round) % KINDS.len();
            let (indexes, consistency, open) = KINDS[kind];
            eprintln!("{indexes} {consistency} indexes, round {} of {rounds}", round + 1);
            let paths = [memory, disk].map(|path| path.join(format!("eventual-{round}-{kind}")));
            let measurements = &mut measured[kind];
            let outcome = measurements.round(rows, commits, open, &paths);
            outcome.map_err(|error| error.to_string())?;
            for path in paths {
                fs::remove_dir_all(path).map_err(|error| error.to_string())?;
            }
        }
    }
    let figures = KINDS.iter().zip(measured);
    let figures = figures.map(|((indexes, consistency, _), rounds)| {
        let Rounds { write, mut commits, kept_up, applied } = rounds;
        commits.sort_unstable();
        let percentile =
            |percent: usize| commits[(commits.len() - 1) * percent / 100].as_nanos() as f64;
        Figure {
            indexes: *indexes,
            consistency: (*consistency).to_owned(),
            write: median(write.into_iter()),
            p50: percentile(50),
            p99: percentile(99),
            kept_up: median(kept_up.into_iter()),
            applied: (!applied.is_empty()).then(|| median(applied.into_iter())),
        }
    });
    Ok(Results { rows, commits, rounds, figures: figures.collect() })
}

/// The measurements of one kind of table, a value for each round.
#[derive(Default)]
struct Rounds {
    write: Vec<f64>,
    commits: Vec<Duration>,
    kept_up: Vec<f64>,
    applied: Vec<f64>,
}

impl Rounds {
    fn round(
        &mut self,
        rows: usize,
        commits: usize,
        open: fn(&Store) -> Opened,
        [memory, disk]: &[std::path::PathBuf; 2],
    ) -> index_table::Result<()> {
        let ids = || 0..rows as u64;
        let wait = WhenFull::Wait(Duration::from_mins(10));
        let without_syncs = Store::options().durability(Durability::None);

        // The cost of a write, and of applying its messages.
        let path = memory.join("writes");
        let store = without_syncs.clone().index_queue(u64::MAX, wait).open(&path)?;
        let table = open(&store)?;
        let fill =
            |round| store.transaction(|txn| ids().try_for_each(|id| table.put(txn, id, round)));
        fill(0)?;
        table.drain_all(&store)?;
        let start = Instant::now();
        fill(1)?;
        self.write.push(start.elapsed().as_nanos() as f64 / rows as f64);
        let start = Instant::now();
        let applied = table.drain_all(&store)?;
        if applied > 0 {
            self.applied.push(applied as f64 / start.elapsed().as_secs_f64());
        }
        drop((table, store));

        // The rate of the worker. The time includes draining the queue.
        let store = without_syncs.index_queue(QUEUE.min(rows as u64 / 4), wait).open(&path)?;
        let table = open(&store)?;
        let worker = store.start_index_worker()?;
        let all: Vec<u64> = ids().collect();
        let start = Instant::now();
        for batch in all.chunks(BATCH) {
            store.transaction(|txn| batch.iter().try_for_each(|id| table.put(txn, *id, 2)))?;
        }
        table.drain_all(&store)?;
        self.kept_up.push(rows as f64 / start.elapsed().as_secs_f64());
        drop(worker);
        drop((table, store));

        // Durable commits of writers, concurrent with the commits of a worker.
        let store = Store::options().index_queue(u64::MAX, wait).open(disk)?;
        let table = open(&store)?;
        store.transaction(|txn| ids().try_for_each(|id| table.put(txn, id, 0)))?;
        table.drain_all(&store)?;
        let worker = store.start_index_worker()?;
        for commit in 0..commits as u64 {
            let id = mixed(commit) % rows as u64;
            let start = Instant::now();
            store.transaction(|txn| table.put(txn, id, commit + 1))?;
            self.commits.push(start.elapsed());
        }
        drop(worker);
        Ok(())
    }
}

/// Returns a pseudorandom number for `number` (splitmix64).
fn mixed(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}
