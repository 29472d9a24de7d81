//! Measuring. Every round measures every contender, and their results must be equal.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::Instant,
};

use crate::{
    allocations,
    contender::{Answer, Contender, Failure, Kind, apply},
    median,
    results::{Figure, Measure, Results},
    workload::{Operation, Workload},
};

/// The seed of every run.
pub const SEED: u64 = 20_260_101;

/// The options of a run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Sizes of the table.
    pub rows: Vec<usize>,
    /// Loads of each contender into a new directory.
    pub loads: usize,
    /// Rounds of the other operations, on the table of the last load.
    pub rounds: usize,
    /// About how many single operations there are of each in a round.
    pub units: usize,
    /// Durable inserts in a round.
    pub durable: usize,
    /// Where the files are.
    pub directories: Directories,
}

/// Where the files are.
#[derive(Debug, Clone)]
pub struct Directories {
    /// On a disk, with the real cost of a sync: for loads and durable inserts.
    pub disk: PathBuf,
    /// In memory, for all else, so that the figures are work and not the disk's noise. The same
    /// calls are made, syncs included.
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

/// By how much to divide: rows that were found, or operations.
#[must_use]
pub fn units(operation: &Operation, answer: &Answer) -> usize {
    match operation {
        Operation::Insert(rows) | Operation::BulkLoad(rows) | Operation::InsertOneByOne(rows) => {
            rows.len()
        }
        Operation::Get(ids) | Operation::GetOneByOne(ids) | Operation::Delete(ids) => ids.len(),
        Operation::GetByEmail(emails) => emails.len(),
        Operation::Page(places) => places.len(),
        Operation::Count(towns) => towns.len(),
        Operation::SetFirstName(changes) | Operation::SetTown(changes) => changes.len(),
        Operation::RowsOfTown(_) | Operation::EntriesOfTown(_) | Operation::RowsInRange(_) => {
            usize::try_from(answer.found).unwrap_or(usize::MAX)
        }
    }
}

/// Figures of one size as they come: a list of rounds for each measure and contender. `None`: the
/// contender lacks the operation.
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

/// What the files of a field are on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Medium {
    Memory,
    Disk,
}

/// The contenders with the same rows.
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
                let place = (turn + round) % kinds.len();
                let kind = &kinds[place];
                eprintln!("{rows} rows, load {} of {}: {}", round + 1, plan.loads, kind.name);
                if let Some((path, contender)) = open[place].take() {
                    drop(contender);
                    fs::remove_dir_all(path).map_err(|error| error.to_string())?;
                }
                let opened = directory.join(format!("{rows}-{round}-{place}"));
                let mut contender = (kind.open)(&opened).map_err(|failure| say(kind, failure))?;
                let sample = sample(kind, &mut *contender, &load)?;
                contender.settle().map_err(|failure| say(kind, failure))?;
                let space = files(&opened).map_err(|error| error.to_string())? as f64 / rows as f64;
                rounds.entry((measure, place)).or_default().push(sample.nanoseconds);
                if medium == Medium::Memory {
                    rounds.entry((Measure::Space, place)).or_default().push(Some(space));
                }
                let path = directory.join(format!("{rows}-{round}-{place}-bulk"));
                let [time, space] = bulk_load(kind, &path, (&workload, &bulk), &mut *contender)?;
                let measures = match medium {
                    Medium::Memory => [Some(Measure::BulkLoad), Some(Measure::BulkSpace)],
                    Medium::Disk => [Some(Measure::BulkLoadToDisk), None],
                };
                for (measure, figure) in measures.into_iter().zip([time, space]) {
                    if let Some(measure) = measure {
                        rounds.entry((measure, place)).or_default().push(figure);
                    }
                }
                open[place] = Some((opened, contender));
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
            // Not between the rounds: the first query would pay for empty caches.
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

    /// Long before the pages are read, so that they are in no cache.
    fn prepare(&mut self, operations: &[Operation]) -> Result<(), String> {
        for operation in operations {
            let Operation::Page(places) = operation else { continue };
            for (kind, (_, contender)) in self.kinds.iter().zip(&mut self.open) {
                contender.prepare_pages(places).map_err(|failure| say(kind, failure))?;
            }
        }
        Ok(())
    }

    /// Everything that is in the tables, without a figure.
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
        let mut first: Option<(&str, Answer)> = None;
        for turn in 0..self.kinds.len() {
            let place = (turn + round) % self.kinds.len();
            let (kind, (_, contender)) = (&self.kinds[place], &mut self.open[place]);
            let sample = sample(kind, &mut **contender, operation)?;
            rounds.entry((measure, place)).or_default().push(sample.nanoseconds);
            if measure == Measure::EntriesOfTown {
                let allocations = rounds.entry((Measure::Allocations, place)).or_default();
                allocations.push(sample.allocations);
            }
            let Some(answer) = sample.answer else { continue };
            match first {
                Some((other, expected)) if expected != answer => {
                    return Err(format!(
                        "{} and {other} don't answer alike: {measure:?}, {answer:?} and \
                         {expected:?}",
                        kind.name
                    ));
                }
                _ => first = Some((kind.name, answer)),
            }
        }
        Ok(())
    }

    fn reopen(&mut self, round: usize, rounds: &mut Rounds) -> Result<(), String> {
        for turn in 0..self.kinds.len() {
            let place = (turn + round) % self.kinds.len();
            let kind = &self.kinds[place];
            let (path, contender) = self.open.remove(place);
            drop(contender);
            let start = Instant::now();
            let mut contender = (kind.open)(&path).map_err(|failure| say(kind, failure))?;
            let mut answer = Answer::default();
            contender.get(&[1], &mut answer).map_err(|failure| say(kind, failure))?;
            let time = start.elapsed().as_nanos() as f64;
            rounds.entry((Measure::Reopen, place)).or_default().push(Some(time));
            self.open.insert(place, (path, contender));
        }
        Ok(())
    }
}

/// Loads the rows into a new directory at once, and compares the results with those of a contender of the
/// same kind that has inserted them. Time and space, if it can.
fn bulk_load(
    kind: &Kind,
    path: &Path,
    (workload, load): (&Workload, &Operation),
    inserted: &mut dyn Contender,
) -> Result<[Option<f64>; 2], String> {
    let mut contender = (kind.open)(path).map_err(|failure| say(kind, failure))?;
    let sample = sample(kind, &mut *contender, load)?;
    let mut space = None;
    if sample.answer.is_some() {
        contender.settle().map_err(|failure| say(kind, failure))?;
        let bytes = files(path).map_err(|error| error.to_string())?;
        space = Some(bytes as f64 / workload.rows().len() as f64);
        for question in workload.check() {
            let answer =
                |of: &mut dyn Contender| apply(of, &question).map_err(|failure| say(kind, failure));
            if answer(&mut *contender)? != answer(&mut *inserted)? {
                return Err(format!("{} answers otherwise after a bulk load", kind.name));
            }
        }
    }
    drop(contender);
    fs::remove_dir_all(path).map_err(|error| error.to_string())?;
    Ok([sample.nanoseconds, space])
}

struct Sample {
    /// For one; `None`: the contender lacks the operation.
    nanoseconds: Option<f64>,
    allocations: Option<f64>,
    answer: Option<Answer>,
}

fn sample(
    kind: &Kind,
    contender: &mut dyn Contender,
    operation: &Operation,
) -> Result<Sample, String> {
    let before = allocations::count();
    let start = Instant::now();
    let answer = apply(contender, operation);
    let time = start.elapsed().as_nanos() as f64;
    let mut allocations = (allocations::count() - before) as f64;
    if let Operation::EntriesOfTown(towns) = operation {
        allocations -= of_queries(contender, towns) as f64;
    }
    match answer {
        Ok(answer) => {
            let units = units(operation, &answer).max(1) as f64;
            Ok(Sample {
                nanoseconds: Some(time / units),
                allocations: Some(allocations / units),
                answer: Some(answer),
            })
        }
        Err(Failure::Lacks) => Ok(Sample { nanoseconds: None, allocations: None, answer: None }),
        Err(failure) => Err(say(kind, failure)),
    }
}

/// The allocations of the same queries without entries, which are subtracted.
fn of_queries(contender: &mut dyn Contender, towns: &[String]) -> u64 {
    let nowhere = towns.iter().map(|town| format!("{town}, nowhere")).collect();
    let operation = Operation::EntriesOfTown(nowhere);
    let before = allocations::count();
    // Whether it can answer is seen by the caller.
    let _answer = apply(contender, &operation);
    allocations::count() - before
}

fn say(kind: &Kind, failure: Failure) -> String {
    match failure {
        Failure::Lacks => format!("{} lacks what it can't do without", kind.name),
        Failure::Failed(error) => format!("{}: {error}", kind.name),
    }
}

/// The length of all files in a directory.
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
    for (&(measure, place), samples) in rounds {
        let known = || samples.iter().copied().flatten();
        let first = rounds.get(&(measure, 0));
        let ratios = first.into_iter().flatten().zip(samples);
        let ratios: Vec<f64> =
            ratios.filter_map(|(one, other)| Some((*other)? / (*one)?)).collect();
        figures.push(Figure {
            rows,
            measure,
            contender: kinds[place].name.to_owned(),
            median: known().next().map(|_| median(known())),
            spread: known()
                .next()
                .map(|one| (known().fold(one, f64::min), known().fold(one, f64::max))),
            ratio: (!ratios.is_empty()).then(|| median(ratios.into_iter())),
        });
    }
}
