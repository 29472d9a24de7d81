//! Random closures of many clients, and their check: there is a serial order in which a model has the same results.
//!
//! Each closure reads rows by key and by a range of an index, and writes rows that depend on the result. It records the
//! version of each row that it has read or written. These versions constrain the order, and so do rows that a range did
//! not have yet. If the constraints have a cycle, the transactions were not serializable, for example because of a lost
//! update or of write skew. Otherwise, a model runs the closures in this order, and has to read and write the same.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::{AtomicU64, Ordering},
    thread,
};

use index_table::{Error, IndexTable, Result, Store, WriteTxn};
use serde::{Deserialize, Serialize};

/// A row of the workload. The version and the stage never decrease.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "tasks")]
#[index(stage, include = [version])]
#[index(slot, unique)]
#[index(value, consistency = "eventual")]
pub(crate) struct Task {
    #[primary_key]
    id: u32,
    stage: u32,
    version: u32,
    value: i64,
    slot: u64,
}

/// A row for each committed transaction, to determine which transactions were committed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "receipts")]
pub(crate) struct Receipt {
    #[primary_key]
    id: u64,
}

/// The number of rows at the start. They have the keys 0 to `ROWS` - 1.
const ROWS: u32 = 16;

fn task(id: u32, stage: u32, version: u32, value: i64) -> Task {
    let slot = u64::from(id) << 32 | u64::from(version);
    Task { id, stage, version, value, slot }
}

/// A generator of random numbers (splitmix64).
#[derive(Clone)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut number = self.0;
        number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        number ^ number >> 31
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

/// The reads and writes of a transaction.
#[derive(Debug, Clone, Default, PartialEq)]
struct Seen {
    /// Keys and versions.
    rows: Vec<(u32, u32)>,
    /// The starts of ranges of stages, with the keys and versions of the rows in them.
    ranges: Vec<(u32, Vec<(u32, u32)>)>,
    /// Keys, versions and stages.
    written: Vec<(u32, u32, u32)>,
}

/// The table, or its model.
trait Tasks {
    fn get(&mut self, id: u32) -> Result<Task>;
    fn rows_from(&mut self, stage: u32) -> Result<Vec<Task>>;
    fn insert(&mut self, row: Task) -> Result<()>;
    fn replace(&mut self, row: Task) -> Result<()>;
}

struct InTable<'a, 's> {
    tasks: &'a TaskRepository,
    txn: &'a mut WriteTxn<'s>,
}

impl Tasks for InTable<'_, '_> {
    fn get(&mut self, id: u32) -> Result<Task> {
        Ok(self.tasks.get(self.txn, id)?.expect("the row is never deleted"))
    }

    fn rows_from(&mut self, stage: u32) -> Result<Vec<Task>> {
        self.tasks.find_by_stage_range(self.txn, stage..).rows().collect()
    }

    fn insert(&mut self, row: Task) -> Result<()> {
        self.tasks.insert(self.txn, &row)
    }

    fn replace(&mut self, row: Task) -> Result<()> {
        let id = row.id;
        let is_there = self.tasks.update(self.txn, id, |stored| *stored = row)?;
        assert!(is_there, "row {id}");
        Ok(())
    }
}

impl Tasks for BTreeMap<u32, Task> {
    fn get(&mut self, id: u32) -> Result<Task> {
        Ok(self[&id].clone())
    }

    fn rows_from(&mut self, stage: u32) -> Result<Vec<Task>> {
        let mut rows: Vec<_> = self.values().filter(|row| row.stage >= stage).cloned().collect();
        rows.sort_by_key(|row| (row.stage, row.id));
        Ok(rows)
    }

    fn insert(&mut self, row: Task) -> Result<()> {
        assert!(self.insert(row.id, row).is_none());
        Ok(())
    }

    fn replace(&mut self, row: Task) -> Result<()> {
        assert!(self.insert(row.id, row).is_some());
        Ok(())
    }
}

/// Runs the closure with this number, which determines its steps. `new` is a key that no other closure uses.
fn closure(tasks: &mut impl Tasks, number: u64, new: u32) -> Result<Seen> {
    let (mut random, mut seen) = (Random(number), Seen::default());
    let kind = random.below(8);
    let id = random.below(ROWS.into()) as u32;
    let write = |seen: &mut Seen, tasks: &mut dyn FnMut(Task) -> Result<()>, row: Task| {
        seen.written.push((row.id, row.version, row.stage));
        tasks(row)
    };
    if kind < 3 {
        // Moves an amount from a row to another row.
        let other = (id + 1 + random.below(u64::from(ROWS) - 1) as u32) % ROWS;
        let (from, to) = (tasks.get(id)?, tasks.get(other)?);
        seen.rows = vec![(id, from.version), (other, to.version)];
        let amount = random.below(5).cast_signed();
        if from.value >= amount {
            for (row, change) in [(from, -amount), (to, amount)] {
                let row = task(row.id, row.stage, row.version + 1, row.value + change);
                write(&mut seen, &mut |row| tasks.replace(row), row)?;
            }
        }
        return Ok(seen);
    }
    // Reads a range, and writes another row that depends on it.
    let stage = random.below(8) as u32;
    let rows = tasks.rows_from(stage)?;
    seen.ranges = vec![(stage, rows.iter().map(|row| (row.id, row.version)).collect())];
    let sum = rows.iter().map(|row| row.value).sum::<i64>() + rows.len().cast_signed() as i64;
    if kind == 7 {
        let row = task(new, (sum % 12).cast_unsigned() as u32, 1, sum % 5);
        write(&mut seen, &mut |row| tasks.insert(row), row)?;
        return Ok(seen);
    }
    let row = tasks.get(id)?;
    seen.rows = vec![(id, row.version)];
    if kind < 6 {
        let raised = u32::from(sum % 3 == 0);
        let row = task(id, row.stage + raised, row.version + 1, row.value + sum % 7);
        write(&mut seen, &mut |row| tasks.replace(row), row)?;
    }
    Ok(seen)
}

/// A transaction that was committed.
#[derive(Debug)]
struct Committed {
    seed: u64,
    new: u32,
    seen: Seen,
}

/// The numbers of the outcomes of a run.
#[derive(Debug, Default)]
pub(crate) struct Outcomes {
    pub(crate) committed: AtomicU64,
    /// Transactions with [`Error::Unreachable`] or [`Error::TransactionFailed`].
    pub(crate) failed: AtomicU64,
    /// Transactions with [`Error::CommitUnknown`].
    pub(crate) unknown: AtomicU64,
}

/// A transaction of a client, with the outcome that the client received.
struct Attempt {
    receipt: u64,
    /// `None`: unknown.
    is_committed: Option<bool>,
    run: Committed,
}

/// Creates the tables with their first rows.
pub(crate) fn prepare(store: &Store) -> Result<()> {
    let (tasks, _) = (TaskRepository::open(store)?, ReceiptRepository::open(store)?);
    tasks.bulk_load(store, (0..ROWS).map(|id| task(id, id % 8, 0, 20))).run().map(drop)
}

/// Runs random closures in `threads` threads, which share these stores, until `goes_on` returns false for the number of
/// the round. Then reads the tables through `direct`, and compares everything with a serial model.
///
/// # Panics
///
/// If there is no serial order, if an acknowledged transaction is missing, if a failed transaction is present, or if an
/// index is wrong.
pub(crate) fn run(
    stores: &[Store],
    threads: u32,
    goes_on: impl Fn(u32, &Outcomes) -> bool + Sync,
    direct: &Store,
) -> Result<Outcomes> {
    let outcomes = Outcomes::default();
    let mut opened = Vec::new();
    for store in stores {
        opened.push((store, TaskRepository::open(store)?, ReceiptRepository::open(store)?));
    }
    let (opened, goes_on) = (&opened, &goes_on);
    let attempts: Vec<Attempt> = thread::scope(|scope| {
        let outcomes = &outcomes;
        let client = |thread: u32| {
            let (store, tasks, receipts) = &opened[thread as usize % opened.len()];
            let rounds = (0_u32..20_000).take_while(|round| goes_on(*round, outcomes));
            let attempt = |round: u32| {
                let receipt = u64::from(thread) << 32 | u64::from(round);
                let (seed, new) = (receipt.wrapping_mul(7_919), 1_000 + thread * 20_000 + round);
                let mut run = Committed { seed, new, seen: Seen::default() };
                let outcome = store.transaction(|txn| {
                    let table = &mut InTable { tasks, txn };
                    run.seen = closure(table, seed, new)?;
                    receipts.insert(txn, &Receipt { id: receipt })
                });
                let count = |of: &AtomicU64| of.fetch_add(1, Ordering::Relaxed);
                let is_committed = match outcome {
                    Ok(()) => Some(true),
                    Err(Error::Unreachable { .. } | Error::TransactionFailed { .. }) => Some(false),
                    Err(Error::CommitUnknown { .. }) => None,
                    Err(error) => panic!("{error}"),
                };
                count(match is_committed {
                    Some(true) => &outcomes.committed,
                    Some(false) => &outcomes.failed,
                    None => &outcomes.unknown,
                });
                Attempt { receipt, is_committed, run }
            };
            rounds.map(attempt).collect::<Vec<_>>()
        };
        let clients: Vec<_> =
            (0..threads).map(|thread| scope.spawn(move || client(thread))).collect();
        clients.into_iter().flat_map(|it| it.join().expect("a client")).collect()
    });

    let (tasks, receipts) = (TaskRepository::open(direct)?, ReceiptRepository::open(direct)?);
    tasks.drain(direct, u64::MAX)?;
    let txn = direct.read()?;
    let kept: BTreeSet<u64> = receipts.all(&txn).keys().collect::<Result<_>>()?;
    let mut history = Vec::new();
    for Attempt { receipt, is_committed, run } in attempts {
        let is_there = kept.contains(&receipt);
        assert!(is_committed.is_none_or(|it| it == is_there), "receipt {receipt:x}: {is_there}");
        history.extend(is_there.then_some(run));
    }
    let report = tasks.verify(&txn).run()?;
    assert!(report.is_clean(), "{report}");
    let rows: Vec<Task> = tasks.all(&txn).rows().collect::<Result<_>>()?;
    let mut model: BTreeMap<u32, Task> =
        (0..ROWS).map(|id| (id, task(id, id % 8, 0, 20))).collect();
    for run in serial_order(&history) {
        let Committed { seed, new, seen } = &history[run];
        assert_eq!(&closure(&mut model, *seed, *new)?, seen, "the closure {seed:x}");
    }
    assert_eq!(rows, model.into_values().collect::<Vec<_>>());
    Ok(outcomes)
}

/// Returns an order in which each transaction has read the latest versions.
fn serial_order(history: &[Committed]) -> Vec<usize> {
    // For each row, its versions with their stages and writers.
    let mut versions: BTreeMap<u32, BTreeMap<u32, (u32, Option<usize>)>> =
        (0..ROWS).map(|id| (id, BTreeMap::from([(0, (id % 8, None))]))).collect();
    for (run, committed) in history.iter().enumerate() {
        for (id, version, stage) in &committed.seen.written {
            let of_row = versions.entry(*id).or_default();
            let other = of_row.insert(*version, (*stage, Some(run)));
            assert_eq!(
                other, None,
                "a lost update: version {version} of row {id} was written twice"
            );
        }
    }
    let mut later: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); history.len()];
    let mut order = |before: Option<usize>, after: Option<usize>| {
        if let (Some(before), Some(after)) = (before, after)
            && before != after
        {
            later[before].insert(after);
        }
    };
    for (run, Committed { seen, .. }) in history.iter().enumerate() {
        let in_ranges = seen.ranges.iter().flat_map(|(_, rows)| rows);
        for (id, version) in seen.rows.iter().chain(in_ranges) {
            let of_row = &versions[id];
            let writer = of_row.get(version).expect("a version that was committed").1;
            order(writer, Some(run));
            order(Some(run), of_row.range(version + 1..).next().and_then(|(_, next)| next.1));
        }
        for (start, rows) in &seen.ranges {
            for (id, of_row) in &versions {
                if rows.iter().any(|(found, _)| found == id) {
                    continue;
                }
                // This transaction comes before the transaction that moved the row into the range.
                if let Some((_, (_, writer))) = of_row.iter().find(|(_, (stage, _))| stage >= start)
                {
                    assert!(writer.is_some(), "row {id} is missing in a range");
                    order(Some(run), *writer);
                }
            }
        }
    }
    let mut earlier = vec![0; history.len()];
    later.iter().flatten().for_each(|run| earlier[*run] += 1);
    let mut ready: Vec<usize> = (0..history.len()).filter(|run| earlier[*run] == 0).collect();
    let mut order = Vec::new();
    while let Some(run) = ready.pop() {
        order.push(run);
        for next in &later[run] {
            earlier[*next] -= 1;
            ready.extend((earlier[*next] == 0).then_some(*next));
        }
    }
    assert_eq!(order.len(), history.len(), "the transactions have no serial order");
    order
}

mod tests {
    use super::*;

    fn committed(rows: &[(u32, u32)], written: (u32, u32, u32)) -> Committed {
        let seen = Seen { rows: rows.to_vec(), written: vec![written], ..Seen::default() };
        Committed { seed: 0, new: 0, seen }
    }

    #[test]
    #[should_panic(expected = "no serial order")]
    fn write_skew_has_no_serial_order() {
        serial_order(&[
            committed(&[(0, 0), (1, 0)], (0, 1, 0)),
            committed(&[(0, 0), (1, 0)], (1, 1, 1)),
        ]);
    }

    #[test]
    #[should_panic(expected = "a lost update")]
    fn the_serial_model_detects_a_lost_update() {
        serial_order(&[committed(&[(0, 0)], (0, 1, 0)), committed(&[(0, 0)], (0, 1, 0))]);
    }

    #[test]
    #[should_panic(expected = "no serial order")]
    fn a_phantom_has_no_serial_order() {
        let ranged = |start, written| {
            let rows = (0..ROWS).filter(|id| id % 8 >= start).map(|id| (id, 0)).collect();
            let seen =
                Seen { ranges: vec![(start, rows)], written: vec![written], ..Seen::default() };
            Committed { seed: 0, new: 0, seen }
        };
        // Each transaction inserts a row into the range of the other.
        serial_order(&[ranged(4, (1_000, 1, 9)), ranged(5, (1_001, 1, 9))]);
    }
}
