//! Compares `index-table` with other ways to keep rows and indexes in a file, and writes a report.
//!
//! ```text
//! cargo run --release -p index-table-bench -- [ARGUMENTS]
//!
//! --quick           10,000 rows and two rounds, a few seconds, to check that everything works
//! --rows N,N,…      sizes of the table; default 10000,100000,200000,1000000
//! --rounds N        rounds of queries and updates; default 9
//! --loads N         loads of each contender; default 3
//! --only NAME,…     only these contenders and index-table
//! --films FILE      also films, from a file of JSON lines with title, year, cast, genres, extract
//! --build           also the compile time of the derive, which takes a few minutes
//! --eventual        also writes with strong and with eventual indexes
//! --writers         also many threads that write, and one thread with and without reserved space
//! --disk DIR        a directory on a disk; default: the directory for temporary files
//! --memory DIR      a directory in memory; default: /dev/shm if it exists, else the directory of --disk
//! --save FILE       save the figures as JSON
//! --from FILE       load saved figures, and measure only what other arguments add
//! --report FILE     write the report, and the picture next to it; without it, the tables are printed
//! ```

use std::{env, error::Error, fs, path::PathBuf, process::ExitCode};

use index_table_bench::{
    allocations::Counting,
    build_cost,
    contenders::ALL,
    eventual, films,
    report::{Machine, Measured},
    run::{self, Directories, Plan},
    writers,
};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const HELP: &str = "arguments: [--quick] [--rows N,N] [--rounds N] [--loads N] [--only NAME,NAME]
    [--films FILE] [--build] [--writers] [--eventual]
    [--disk DIR] [--memory DIR] [--save FILE] [--from FILE] [--report FILE]
cargo doc -p index-table-bench and src/main.rs say more";

struct Arguments {
    rows: Vec<usize>,
    rounds: usize,
    loads: usize,
    units: usize,
    durable: usize,
    only: Option<Vec<String>>,
    films: Option<PathBuf>,
    build: bool,
    writers: bool,
    eventual: bool,
    disk: PathBuf,
    memory: PathBuf,
    save: Option<PathBuf>,
    from: Option<PathBuf>,
    report: Option<PathBuf>,
}

impl Arguments {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self, Box<dyn Error>> {
        let shared_memory = PathBuf::from("/dev/shm");
        let mut parsed = Self {
            rows: vec![10_000, 100_000, 200_000, 1_000_000],
            rounds: 9,
            loads: 3,
            units: 10_000,
            durable: 100,
            only: None,
            films: None,
            build: false,
            writers: false,
            eventual: false,
            disk: env::temp_dir(),
            memory: if shared_memory.is_dir() { shared_memory } else { env::temp_dir() },
            save: None,
            from: None,
            report: None,
        };
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or_else(|| format!("{argument} needs a value"));
            match argument.as_str() {
                "--quick" => {
                    (parsed.rows, parsed.rounds, parsed.loads) = (vec![10_000], 2, 1);
                    (parsed.units, parsed.durable) = (1_000, 5);
                }
                "--rows" => {
                    let rows = value()?;
                    parsed.rows = rows.split(',').map(str::parse).collect::<Result<_, _>>()?;
                }
                "--rounds" => parsed.rounds = value()?.parse()?,
                "--loads" => parsed.loads = value()?.parse()?,
                "--only" => parsed.only = Some(value()?.split(',').map(str::to_owned).collect()),
                "--films" => parsed.films = Some(value()?.into()),
                "--build" => parsed.build = true,
                "--writers" => parsed.writers = true,
                "--eventual" => parsed.eventual = true,
                "--disk" => parsed.disk = value()?.into(),
                "--memory" => parsed.memory = value()?.into(),
                "--save" => parsed.save = Some(value()?.into()),
                "--from" => parsed.from = Some(value()?.into()),
                "--report" => parsed.report = Some(value()?.into()),
                "--help" => return Err(HELP.into()),
                _ => return Err(format!("unknown argument {argument}; {HELP}").into()),
            }
        }
        if parsed.rounds == 0 || parsed.loads == 0 || parsed.rows.iter().any(|rows| *rows < 100) {
            return Err("at least one round, one load and a hundred rows".into());
        }
        Ok(parsed)
    }
}

fn main() -> ExitCode {
    match Arguments::parse(env::args().skip(1)).and_then(|arguments| execute(&arguments)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn execute(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let mut measured = match &arguments.from {
        Some(file) => serde_json::from_slice(&fs::read(file)?)?,
        None => compare(arguments)?,
    };
    if let Some(file) = &arguments.films {
        let directory = tempfile::tempdir_in(&arguments.memory)?;
        measured.films = Some(films::run(&films::read(file)?, arguments.rounds, directory.path())?);
    }
    if arguments.build {
        measured.build = build_cost::measure(&[1, 10, 100], 3)?;
    }
    if arguments.writers {
        let directory = tempfile::tempdir_in(&arguments.disk)?;
        let (rounds, path) = (arguments.rounds, directory.path());
        // With these numbers of commits, the slowest contender takes a few seconds for a round.
        let (together, single) = (arguments.durable * 20, arguments.durable * 2);
        measured.writers = vec![
            writers::run(&writers::TOGETHER, 64, together, rounds, path)?,
            writers::run(&writers::SINGLE, 1, single, rounds, path)?,
        ];
    }
    if arguments.eventual {
        let disk = tempfile::tempdir_in(&arguments.disk)?;
        let memory = tempfile::tempdir_in(&arguments.memory)?;
        let (rows, commits) = (arguments.units * 5, arguments.durable);
        let (disk, memory) = (disk.path(), memory.path());
        measured.eventual = Some(eventual::run(rows, commits, arguments.rounds, disk, memory)?);
    }
    if let Some(file) = &arguments.save {
        fs::write(file, serde_json::to_vec_pretty(&measured)?)?;
    }
    match &arguments.report {
        Some(file) => measured.write(file)?,
        None => print!("{}", measured.tables()),
    }
    Ok(())
}

fn compare(arguments: &Arguments) -> Result<Measured, Box<dyn Error>> {
    let mut kinds = ALL.to_vec();
    if let Some(only) = &arguments.only {
        if let Some(name) = only.iter().find(|name| ALL.iter().all(|kind| kind.name != **name)) {
            let names = ALL.map(|kind| kind.name).join(", ");
            return Err(format!("unknown contender {name}; the contenders are {names}").into());
        }
        // The others are compared with the first.
        let mut first = true;
        kinds.retain(|kind| std::mem::take(&mut first) || only.iter().any(|it| it == kind.name));
    }
    let (disk, memory) =
        (tempfile::tempdir_in(&arguments.disk)?, tempfile::tempdir_in(&arguments.memory)?);
    let plan = Plan {
        rows: arguments.rows.clone(),
        loads: arguments.loads,
        rounds: arguments.rounds,
        units: arguments.units,
        durable: arguments.durable,
        directories: Directories { disk: disk.path().to_owned(), memory: memory.path().to_owned() },
    };
    let customers = run::run(&kinds, &plan)?;
    Ok(Measured { machine: Machine::this(), customers, ..Measured::default() })
}
