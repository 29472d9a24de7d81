//! Runs one operation of one contender, for a profiler. The causes in the report are from such profiles.
//!
//! ```text
//! one CONTENDER OPERATION [ROWS] [TIMES]     prints the median of TIMES rounds, in nanoseconds
//! valgrind --tool=callgrind --collect-atstart=no --toggle-collect='*one*measured*' one …
//! ```
//! Figures are for one row, entry, page or count, as in the report. Under callgrind, divide the counts by the
//! printed number of operations.

use std::{
    env,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Instant,
};

use index_table_bench::{
    contender::{Contender, Digest, Failure, Kind, Outcome, apply},
    contenders::ALL,
    median,
    run::{SEED, units},
    workload::{Operation, Workload},
};

/// The number of repetitions, as in a run of the report.
const UNITS: usize = 10_000;
const DURABLE: usize = 100;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure:?}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Outcome {
    let mut arguments = env::args().skip(1);
    let mut argument = |name| arguments.next().ok_or(format!("{name} is missing"));
    let (contender, operation) = (argument("CONTENDER")?, argument("OPERATION")?);
    let rows = argument("ROWS").map_or(Ok(100_000), |rows| rows.parse())?;
    let times = argument("TIMES").map_or(Ok(1), |times| times.parse())?;
    let kind = ALL.iter().find(|kind| kind.name == contender).ok_or("no such contender")?;
    let memory = Path::new("/dev/shm");
    let memory = if memory.is_dir() { memory.to_owned() } else { env::temp_dir() };
    let directory = tempfile::tempdir_in(memory)?;

    let mut one = One { kind, path: directory.path().join("0"), figures: Vec::new(), units: 0 };
    for round in 0..if operation == "load" { times } else { 1 } {
        one.path = directory.path().join(round.to_string());
        let mut workload = Workload::new(SEED, rows);
        let load = Operation::Insert(workload.rows().to_vec());
        let mut contender = (kind.open)(&one.path)?;
        if operation == "load" {
            one.measure(&mut *contender, &load)?;
            continue;
        }
        apply(&mut *contender, &load)?;
        if operation == "reopen" {
            for _ in 0..times {
                drop(contender);
                contender = one.reopen()?;
            }
        } else {
            one.rounds(contender, &mut workload, &operation, times)?;
        }
    }
    if one.figures.is_empty() {
        return Err(format!("unknown operation {operation}").into());
    }
    println!("{:.1} ns, {} measured", median(one.figures.into_iter()), one.units);
    Ok(())
}

/// The measured operation.
struct One<'k> {
    kind: &'k Kind,
    path: PathBuf,
    /// Times in nanoseconds.
    figures: Vec<f64>,
    /// The number of measured units.
    units: usize,
}

impl One<'_> {
    /// Runs a query repeatedly. For a write, runs all writes of each round, so that the table has the state
    /// that the next write expects.
    fn rounds(
        &mut self,
        mut contender: Box<dyn Contender>,
        workload: &mut Workload,
        operation: &str,
        times: usize,
    ) -> Outcome {
        let mut round = workload.round(UNITS, DURABLE);
        if round.iter().all(|next| next.writes() || next.name() != operation) {
            for _ in 0..times {
                for next in round.iter().filter(|next| next.writes()) {
                    if next.name() == operation {
                        self.measure(&mut *contender, next)?;
                    } else {
                        apply(&mut *contender, next)?;
                    }
                }
                round = workload.round(UNITS, DURABLE);
            }
            return Ok(());
        }
        for next in round.iter().filter(|next| next.name() == operation) {
            if let Operation::Page(positions) = next {
                contender.prepare_pages(positions)?;
            }
            for _ in 0..times {
                self.measure(&mut *contender, next)?;
            }
        }
        Ok(())
    }

    fn measure(&mut self, contender: &mut dyn Contender, operation: &Operation) -> Outcome {
        let start = Instant::now();
        let digest = measured(|| apply(contender, operation))?;
        self.add(start, units(operation, &digest));
        Ok(())
    }

    fn reopen(&mut self) -> Outcome<Box<dyn Contender>> {
        let start = Instant::now();
        let contender = measured(|| {
            let mut contender = (self.kind.open)(&self.path)?;
            contender.get(&[1], &mut Digest::default())?;
            Ok::<_, Failure>(contender)
        })?;
        self.add(start, 1);
        Ok(contender)
    }

    fn add(&mut self, start: Instant, units: usize) {
        #[expect(clippy::cast_precision_loss, reason = "figures are shown with few digits")]
        self.figures.push(start.elapsed().as_nanos() as f64 / units as f64);
        self.units += units;
    }
}

/// Runs `work`. callgrind counts the instructions of this function.
#[inline(never)]
fn measured<T>(work: impl FnOnce() -> T) -> T {
    work()
}
