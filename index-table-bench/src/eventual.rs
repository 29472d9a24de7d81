//! Writes with strong and with eventual indexes: the cost of a write, and the rate that the worker can
//! sustain.

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
    /// Commits of one row each in a round.
    pub commits: usize,
    /// Rounds.
    pub rounds: usize,
    /// One for each number of indexes and each consistency.
    pub figures: Vec<Figure>,
}

/// The cost of a number of indexes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Figure {
    /// The number of indexes; each write changes the key in all of them.
    pub indexes: usize,
    /// `strong` or `eventual`.
    pub consistency: String,
    /// A row of many in one transaction, in memory, in nanoseconds; no worker.
    pub write: f64,
    /// The median time of a durable commit of one row, in nanoseconds; with a worker.
    pub p50: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// Rows in a second, in memory, in transactions of 100: with a worker and a queue that makes writers
    /// wait, so that it is the rate of the worker.
    pub kept_up: f64,
    /// Messages that are applied in a second without writers; none with strong indexes.
    pub applied: Option<f64>,
}

/// A table with indexes, of which the rows are numbers.
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

/// Messages that a queue has before writers wait.
const QUEUE: u64 = 10_000;

/// Rows of a transaction where many are written.
const TOGETHER: usize = 100;

/// Measures all kinds in turns: durable commits in `disk`, all else in `memory`.
///
/// # Errors
///
/// Those of the store.
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
            let place = (turn + round) % KINDS.len();
            let (indexes, consistency, open) = KINDS[place];
            eprintln!("{indexes} {consistency} indexes, round {} of {rounds}", round + 1);
            let paths = [memory, disk].map(|path| path.join(format!("eventual-{round}-{place}")));
            measured[place].round(rows, commits, open, &paths).map_err(|it| it.to_string())?;
            for path in paths {
                fs::remove_dir_all(path).map_err(|error| error.to_string())?;
            }
        }
    }
    let figures = KINDS.iter().zip(measured);
    let figures = figures.map(|((indexes, consistency, _), rounds)| {
        let Rounds { write, mut commits, kept_up, applied } = rounds;
        commits.sort_unstable();
        let at = |part: usize| commits[(commits.len() - 1) * part / 100].as_nanos() as f64;
        Figure {
            indexes: *indexes,
            consistency: (*consistency).to_owned(),
            write: median(write.into_iter()),
            p50: at(50),
            p99: at(99),
            kept_up: median(kept_up.into_iter()),
            applied: (!applied.is_empty()).then(|| median(applied.into_iter())),
        }
    });
    Ok(Results { rows, commits, rounds, figures: figures.collect() })
}

/// Figures of a kind, in order of measurement.
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
        let none = Store::options().durability(Durability::None);

        // The cost of a write, and the deferred work.
        let path = memory.join("writes");
        let store = none.clone().index_queue(u64::MAX, wait).open(&path)?;
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

        // The rate of a worker: the queue is as full at the end as it can be at the start.
        let store = none.index_queue(QUEUE.min(rows as u64 / 4), wait).open(&path)?;
        let table = open(&store)?;
        let worker = store.start_index_worker()?;
        let all: Vec<u64> = ids().collect();
        let start = Instant::now();
        for some in all.chunks(TOGETHER) {
            store.transaction(|txn| some.iter().try_for_each(|id| table.put(txn, *id, 2)))?;
        }
        table.drain_all(&store)?;
        self.kept_up.push(rows as f64 / start.elapsed().as_secs_f64());
        drop(worker);
        drop((table, store));

        // Durable commits, with a worker that commits too.
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

/// A number that is independent of its neighbours (splitmix64).
fn mixed(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}
