//! The table and the stores of the measurements of shards.

use std::{
    env,
    error::Error,
    fs,
    path::{Path, PathBuf},
    process, thread,
};

use index_table::{Durability, IndexTable, Options, Result, ShardMap, Store};
use serde::{Deserialize, Serialize};

/// The number of towns.
pub const TOWNS: u32 = 500;

/// The number of threads that write at the same time.
pub const THREADS: u32 = 8;

/// The return type of a measurement.
pub type Outcome<T> = std::result::Result<T, Box<dyn Error>>;

/// A customer, whose shard depends on the tenant.
#[derive(Serialize, Deserialize, IndexTable)]
#[table(name = "customers", shard_by = tenant)]
#[index(tenant, town)]
#[index(town, include = [name])]
pub struct Customer {
    /// The tenant, which is the shard key.
    #[primary_key]
    pub tenant: u32,
    /// A number that is scattered over the whole range.
    #[primary_key]
    pub id: u64,
    /// The number of the town.
    pub town: u32,
    /// The name, which one index includes.
    pub name: String,
    /// A text in no index.
    pub text: String,
}

/// Returns the customer with this number.
#[must_use]
pub fn customer(number: u64, tenant: u32) -> Customer {
    let scattered = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    Customer {
        tenant,
        id: scattered >> 20,
        town: (scattered >> 40) as u32 % TOWNS,
        name: format!("customer {number}"),
        text: "x".repeat(80),
    }
}

/// Returns the options of every store and shard.
pub fn options(durability: Durability) -> Options {
    Store::options().map_size(1 << 32).durability(durability)
}

/// Opens a sharded store. The tenants below `tenants` are assigned to its shards in turn.
///
/// # Errors
///
/// The errors of the store.
pub fn open(path: &Path, shards: u32, tenants: u32, durability: Durability) -> Result<Store> {
    let names: Vec<String> = (0..shards).map(|shard| format!("s{shard}")).collect();
    let map =
        names.iter().zip(0..).fold(ShardMap::list().to("s0", [u32::MAX]), |map, (name, shard)| {
            map.to(name, (0..tenants).filter(move |tenant| tenant % shards == shard))
        });
    let all = options(durability).map("customers", map);
    names.iter().fold(all, |all, name| all.shard(name, name)).open(path)
}

/// Runs `work` in [`THREADS`] threads, with the number of each thread.
///
/// # Errors
///
/// The first error of a thread.
pub fn in_threads(work: impl Fn(u32) -> Result<()> + Sync) -> Result<()> {
    thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> =
            (0..THREADS).map(|number| scope.spawn(move || work(number))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().unwrap_or(Ok(())))
    })
}

/// Runs measurements with the arguments of the program: `[ROUNDS [DIRECTORY]]`. They get a new directory, which
/// is removed at the end, and the number of rounds.
///
/// # Errors
///
/// If an argument is invalid, or the errors of the measurements.
pub fn run(name: &str, measurements: &[fn(&Path, u32) -> Outcome<()>]) -> Outcome<()> {
    let mut arguments = env::args().skip(1);
    let rounds = arguments.next().map_or(Ok(9), |text| text.parse())?;
    let base = arguments.next().map_or_else(env::temp_dir, PathBuf::from);
    let directory = base.join(format!("index-table-{name}-{}", process::id()));
    fs::create_dir_all(&directory)?;
    let outcome = measurements.iter().try_for_each(|measure| measure(&directory, rounds));
    fs::remove_dir_all(&directory)?;
    outcome
}
