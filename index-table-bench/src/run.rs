//! The measurement of customers. Every round measures every contender, and their results must be equal.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::Instant,
};

use crate::{
    allocations,
    contender::{Contender, Digest, Failure, Kind, apply},
    median,
    results::{Figure, Measure, Results},
    workload::{Operation, Workload},
};

/// The seed of every run.
pub const SEED: u64 = 20_260_101;

/// The options of a run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The sizes of the table.
    pub rows: Vec<usize>,
    /// The number of loads of each contender into a new directory.
    pub loads: usize,
    /// The number of rounds of the other operations, on the table of the last load.
    pub rounds: usize,
    /// The approximate number of times that a round repeats each operation.
    pub units: usize,
    /// The number of durable inserts in a round.
    pub durable: usize,
    /// The directories of the files.
    pub directories: Directories,
}

/// The directories of the files.
#[derive(Debug, Clone)]
pub struct Directories {
    /// A directory on a disk, with the real cost of a sync, for loads and durable inserts.
    pub disk: PathBuf,
    /// A directory in memory, for all other operations, so that the figures have no noise of the disk.
    /// The calls are the same, including syncs.
    pub memory: PathBuf,
}

fn measure(operation: &Operation) -> Measure {
    match operation {
        Operation::Insert(_) => Measure::Insert,
        Operation::BulkLoad(_) => Measure::BulkLoad,
        Operation::InsertOneByOne(_) => Measure::InsertOneByOne,
        Operation::Get(_) => Measure::Get,
        Operation::GetOneByOne(_) => Measure::GetOneByOne,
        Operation::GetByEmail(_) => Measure::GetByEmail,
        Operation::RowsOfTown(_) => Measure::RowsOfTown,
        Operation::EntriesOfTown(_) => Measure::EntriesOfTown,
        Operation::RowsInRange(_) => Measure::RowsInRange,
        Operation::Page(_) => Measure::Page,
        Operation::Count(_) => Measure::Count,
        Operation::SetFirstName(_) => Measure::SetFirstName,
        Operation::SetTown(_) => Measure::SetTown,
        Operation::Delete(_) => Measure::Delete,
    }
}

/// Returns the divisor for the time of an operation: the number of found rows, or of repetitions.
#[must_use]
pub fn units(operation: &Operation, digest: &Digest) -> usize {
    match operation {
        Operation::Insert(rows) | Operation::BulkLoad(rows) | Operation::InsertOneByOne(rows) => {
            rows.len()
        }
        Operation::Get(ids) | Operation::GetOneByOne(ids) | Operation::Delete(ids) => ids.len(),
        Operation::GetByEmail(emails) => emails.len(),
        Operation::Page(positions) => positions.len(),
        Operation::Count(towns) => towns.len(),
        Operation::SetFirstName(changes) | Operation::SetTown(changes) => changes.len(),
        Operation::RowsOfTown(_) | Operation::EntriesOfTown(_) | Operation::RowsInRange(_) => {
            usize::try_from(digest.found).unwrap_or(usize::MAX)
        }
    }
}

/// The figures of one size: a value of each round for each measure and contender, or `None` if the contender
/// lacks the operation.
type Rounds = BTreeMap<(Measure, usize), Vec<Option<f64>>>;

/// Runs the plan.
///
/// # Errors
///
/// The errors of a contender, or that the results of two contenders differ.
pub fn run(kinds: &[Kind], plan: &Plan) -> Result<Results, String> {
    let mut figures = Vec::new();
    for &rows in &plan.rows {
        let mut rounds = Rounds::new();
        for medium in [Medium::Memory, Medium::Disk] {
            Field::load(kinds, rows, plan, medium, &mut rounds)?.measure(plan, &mut rounds)?;
        }
        summarize(kinds, rows, &rounds, &mut figures);
    }
    Ok(Results { figures, rounds: (plan.loads, plan.rounds) })
}

/// The medium of the files.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Medium {
    Memory,
    Disk,
}

/// All contenders with the same rows.
struct Field<'k> {
    kinds: &'k [Kind],
    medium: Medium,
    workload: Workload,
    open: Vec<(PathBuf, Box<dyn Contender>)>,
}

impl<'k> Field<'k> {
    fn load(
        kinds: &'k [Kind],
        rows: usize,
        plan: &Plan,
        medium: Medium,
        rounds: &mut Rounds,
    ) -> Result<Self, String> {
        let (directory, measure) = match medium {
            Medium::Memory => (&plan.directories.memory, Measure::Load),
            Medium::Disk => (&plan.directories.disk, Measure::LoadToDisk),
        };
        let workload = Workload::new(SEED, rows);
        let load = Operation::Insert(workload.rows().to_vec());
        let bulk = Operation::BulkLoad(workload.rows().to_vec());
        let mut open: Vec<Option<(PathBuf, Box<dyn Contender>)>> = Vec::new();
        open.resize_with(kinds.len(), || None);
        for round in 0..plan.loads {
            for turn in 0..kinds.len() {
                let index = (turn + round) % kinds.len();
                let kind = &kinds[index];
                eprintln!("{rows} rows, load {} of {}: {}", round + 1, plan.loads, kind.name);
                if let Some((path, contender)) = open[index].take() {
                    drop(contender);
                    fs::remove_dir_all(path).map_err(|error| error.to_string())?;
                }
                let opened = directory.join(format!("{rows}-{round}-{index}"));
                let mut contender = (kind.open)(&opened).map_err(|failure| say(kind, failure))?;
                let sample = sample(kind, &mut *contender, &load)?;
                contender.settle().map_err(|failure| say(kind, failure))?;
                let space = files(&opened).map_err(|error| error.to_string())? as f64 / rows as f64;
                rounds.entry((measure, index)).or_default().push(sample.nanoseconds);
                if medium == Medium::Memory {
                    rounds.entry((Measure::Space, index)).or_default().push(Some(space));
                }
                let path = directory.join(format!("{rows}-{round}-{index}-bulk"));
                let [time, space] = bulk_load(kind, &path, (&workload, &bulk), &mut *contender)?;
                let measures = match medium {
                    Medium::Memory => [Some(Measure::BulkLoad), Some(Measure::BulkSpace)],
                    Medium::Disk => [Some(Measure::BulkLoadToDisk), None],
                };
                for (measure, figure) in measures.into_iter().zip([time, space]) {
                    if let Some(measure) = measure {
                        rounds.entry((measure, index)).or_default().push(figure);
                    }
                }
                open[index] = Some((opened, contender));
            }
        }
        Ok(Self { kinds, medium, workload, open: open.into_iter().flatten().collect() })
    }

    fn measure(&mut self, plan: &Plan, rounds: &mut Rounds) -> Result<(), String> {
        self.check()?;
        for round in 0..plan.rounds {
            let rows = self.workload.rows().len();
            eprintln!("{rows} rows, round {} of {}", round + 1, plan.rounds);
            let operations = self.workload.round(plan.units, plan.durable);
            self.prepare(&operations)?;
            for operation in operations {
                let durable = matches!(operation, Operation::InsertOneByOne(_));
                if durable || self.medium == Medium::Memory {
                    self.operation(round, &operation, rounds)?;
                }
            }
        }
        if self.medium == Medium::Memory {
            self.check()?;
            // Reopening between the rounds would make the first query of a round pay for empty caches.
            for round in 0..plan.rounds {
                self.reopen(round, rounds)?;
            }
        }
        while let Some((path, contender)) = self.open.pop() {
            drop(contender);
            fs::remove_dir_all(path).map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// Prepares pages before any operation of the round, so that they are in no cache when they are read.
    fn prepare(&mut self, operations: &[Operation]) -> Result<(), String> {
        for operation in operations {
            let Operation::Page(positions) = operation else { continue };
            for (kind, (_, contender)) in self.kinds.iter().zip(&mut self.open) {
                contender.prepare_pages(positions).map_err(|failure| say(kind, failure))?;
            }
        }
        Ok(())
    }

    /// Compares all rows and entries of the contenders, without measuring.
    fn check(&mut self) -> Result<(), String> {
        for operation in self.workload.check() {
            self.operation(0, &operation, &mut Rounds::new())?;
        }
        Ok(())
    }

    fn operation(
        &mut self,
        round: usize,
        operation: &Operation,
        rounds: &mut Rounds,
    ) -> Result<(), String> {
        let measure = match (measure(operation), self.medium) {
            (Measure::InsertOneByOne, Medium::Memory) => Measure::InsertOneByOneInMemory,
            (measure, _) => measure,
        };
        let mut first: Option<(&str, Digest)> = None;
        for turn in 0..self.kinds.len() {
            let index = (turn + round) % self.kinds.len();
            let (kind, (_, contender)) = (&self.kinds[index], &mut self.open[index]);
            let sample = sample(kind, &mut **contender, operation)?;
            rounds.entry((measure, index)).or_default().push(sample.nanoseconds);
            if measure == Measure::EntriesOfTown {
                let allocations = rounds.entry((Measure::Allocations, index)).or_default();
                allocations.push(sample.allocations);
            }
            let Some(digest) = sample.digest else { continue };
            match first {
                Some((other, expected)) if expected != digest => {
                    return Err(format!(
                        "{} and {other} don't digest alike: {measure:?}, {digest:?} and \
                         {expected:?}",
                        kind.name
                    ));
                }
                _ => first = Some((kind.name, digest)),
            }
        }
        Ok(())
    }

    fn reopen(&mut self, round: usize, rounds: &mut Rounds) -> Result<(), String> {
        for turn in 0..self.kinds.len() {
            let index = (turn + round) % self.kinds.len();
            let kind = &self.kinds[index];
            let (path, contender) = self.open.remove(index);
            drop(contender);
            let start = Instant::now();
            let mut contender = (kind.open)(&path).map_err(|failure| say(kind, failure))?;
            let mut digest = Digest::default();
            contender.get(&[1], &mut digest).map_err(|failure| say(kind, failure))?;
            let time = start.elapsed().as_nanos() as f64;
            rounds.entry((Measure::Reopen, index)).or_default().push(Some(time));
            self.open.insert(index, (path, contender));
        }
        Ok(())
    }
}

/// Loads the rows into a new directory by a bulk load, and compares the results with those of a contender of
/// the same kind with inserted rows. Returns the time and the space, or `None` without a bulk load.
fn bulk_load(
    kind: &Kind,
    path: &Path,
    (workload, load): (&Workload, &Operation),
    inserted: &mut dyn Contender,
) -> Result<[Option<f64>; 2], String> {
    let mut contender = (kind.open)(path).map_err(|failure| say(kind, failure))?;
    let sample = sample(kind, &mut *contender, load)?;
    let mut space = None;
    if sample.digest.is_some() {
        contender.settle().map_err(|failure| say(kind, failure))?;
        let bytes = files(path).map_err(|error| error.to_string())?;
        space = Some(bytes as f64 / workload.rows().len() as f64);
        for query in workload.check() {
            let digest = |contender: &mut dyn Contender| {
                apply(contender, &query).map_err(|failure| say(kind, failure))
            };
            if digest(&mut *contender)? != digest(&mut *inserted)? {
                return Err(format!("{} has other results after a bulk load", kind.name));
            }
        }
    }
    drop(contender);
    fs::remove_dir_all(path).map_err(|error| error.to_string())?;
    Ok([sample.nanoseconds, space])
}

struct Sample {
    /// The time for one unit; `None` if the contender lacks the operation.
    nanoseconds: Option<f64>,
    allocations: Option<f64>,
    digest: Option<Digest>,
}

fn sample(
    kind: &Kind,
    contender: &mut dyn Contender,
    operation: &Operation,
) -> Result<Sample, String> {
    let before = allocations::count();
    let start = Instant::now();
    let digest = apply(contender, operation);
    let time = start.elapsed().as_nanos() as f64;
    let mut allocations = (allocations::count() - before) as f64;
    if let Operation::EntriesOfTown(towns) = operation {
        allocations -= allocations_of_queries(contender, towns) as f64;
    }
    match digest {
        Ok(digest) => {
            let units = units(operation, &digest).max(1) as f64;
            Ok(Sample {
                nanoseconds: Some(time / units),
                allocations: Some(allocations / units),
                digest: Some(digest),
            })
        }
        Err(Failure::Lacks) => Ok(Sample { nanoseconds: None, allocations: None, digest: None }),
        Err(failure) => Err(say(kind, failure)),
    }
}

/// Returns the number of allocations of the same queries without results, which is subtracted.
fn allocations_of_queries(contender: &mut dyn Contender, towns: &[String]) -> u64 {
    let nowhere = towns.iter().map(|town| format!("{town}, nowhere")).collect();
    let operation = Operation::EntriesOfTown(nowhere);
    let before = allocations::count();
    // The caller detects a missing operation.
    let _answer = apply(contender, &operation);
    allocations::count() - before
}

fn say(kind: &Kind, failure: Failure) -> String {
    match failure {
        Failure::Lacks => format!("{} lacks a required operation", kind.name),
        Failure::Failed(error) => format!("{}: {error}", kind.name),
    }
}

/// Returns the total length of all files in a directory.
pub(crate) fn files(directory: &Path) -> std::io::Result<u64> {
    let mut length = 0;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        length += if metadata.is_dir() { files(&entry.path())? } else { metadata.len() };
    }
    Ok(length)
}

fn summarize(kinds: &[Kind], rows: usize, rounds: &Rounds, figures: &mut Vec<Figure>) {
    for (&(measure, index), samples) in rounds {
        let values = || samples.iter().copied().flatten();
        let first = rounds.get(&(measure, 0));
        let ratios = first.into_iter().flatten().zip(samples);
        let ratios: Vec<f64> =
            ratios.filter_map(|(one, other)| Some((*other)? / (*one)?)).collect();
        figures.push(Figure {
            rows,
            measure,
            contender: kinds[index].name.to_owned(),
            median: values().next().map(|_| median(values())),
            spread: values()
                .next()
                .map(|first| (values().fold(first, f64::min), values().fold(first, f64::max))),
            ratio: (!ratios.is_empty()).then(|| median(ratios.into_iter())),
        });
    }
}
