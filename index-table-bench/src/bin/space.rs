//! Measures the space that a store takes after transactions of 1,000 rows.
//!
//! ```text
//! cargo run --release -p index-table-bench --bin space -- [ROWS] [UPDATES] [DIRECTORY]
//! ```
//! Rows are inserted in transactions of 1,000, with ascending or random primary keys. Then other rows replace some of them, in
//! transactions of 1,000 too. The directory must be on a disk, because the space depends on the time of a checkpoint.

use std::{
    env,
    error::Error,
    fs, io,
    path::{Path, PathBuf},
    time::Instant,
};

use index_table::{Durability, IndexTable, Options, Store};
use index_table_bench::{random::Random, run::SEED};
use serde::{Deserialize, Serialize};

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

/// Returns the bytes of the files whose names begin with a word, in MiB.
fn length(directory: &Path, word: &str) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(word) {
            bytes += entry.metadata()?.len();
        }
    }
    Ok(bytes >> 20)
}

fn measure(
    options: &Options,
    directory: &Path,
    (rows, updates): (u64, u64),
    id: impl Fn(u64) -> u64,
) -> Result<[u64; 4], Box<dyn Error>> {
    let directory = tempfile::tempdir_in(directory)?;
    let path = directory.path();
    let store = options.open(path)?;
    let events = EventRepository::open(&store)?;
    let mut random = Random(SEED);
    let mut put = |of: &mut dyn Iterator<Item = u64>| {
        let of: Vec<_> = of.collect();
        store.transaction(|txn| {
            for at in &of {
                let (device, value) = (random.below(10_000) as u32, random.draw());
                let id = id(*at);
                events.put(txn, &Event { id, device, value, text: format!("{id:064}") })?;
            }
            Ok(())
        })
    };
    let begun = Instant::now();
    for first in (0..rows).step_by(1000) {
        put(&mut (first..rows.min(first + 1000)))?;
    }
    for first in (0..updates).step_by(1000) {
        put(&mut (first..updates.min(first + 1000)).map(|at| at * 7919 % rows.max(1)))?;
    }
    let time = begun.elapsed().as_secs();
    let (data, journal) = (length(path, "data.mdb")?, length(path, "journal.")?);
    let copy = path.join("copy");
    store.compact_to(&copy)?;
    Ok([data, journal, length(&copy, "data.mdb")?, time])
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let mut argument = |default: u64| arguments.next().map_or(Ok(default), |text| text.parse());
    let amount = (argument(1_000_000)?, argument(56_000)?);
    let directory = arguments.next().map_or_else(env::temp_dir, PathBuf::from);
    println!("{} rows, {} updates; sizes in MiB\n", amount.0, amount.1);
    println!("| keys | durability | `data.mdb` | journal | without free pages | seconds |");
    println!("|---|---|--:|--:|--:|--:|");
    let ascending: fn(u64) -> u64 = |at| at;
    let random: fn(u64) -> u64 =
        |at| at.wrapping_mul(SEED | 1).rotate_left(32).wrapping_mul(SEED | 1);
    for (keys, id) in [("ascending", ascending), ("random", random)] {
        for durability in [Durability::Journal, Durability::Full] {
            let options = Store::options().durability(durability);
            let [data, journal, used, time] = measure(&options, &directory, amount, id)?;
            println!("| {keys} | `{durability:?}` | {data} | {journal} | {used} | {time} |");
        }
    }
    Ok(())
}
