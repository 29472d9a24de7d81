//! Tables with a new name: `#[table(was = "…")]`. Indexes with a new name.

#[path = "../support/data_files.rs"]
mod data_files;
#[path = "../support/directories.rs"]
mod directories;
mod files;
mod indexes;
mod kept;
#[cfg(feature = "postgres")]
#[path = "../support/postgres.rs"]
mod postgres;
mod refused;
mod shop;

use std::{
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use index_table::{Result, ShardMap, Store};

pub(crate) use data_files::{Kind, on_each_kind};

pub(crate) type TestResult = std::result::Result<(), Box<dyn std::error::Error>>;

/// The tenants of the three shards.
pub(crate) const TENANTS: [u32; 3] = [3, 13, 23];

/// A store that can be opened again.
pub(crate) enum Place {
    Files(Kind, tempfile::TempDir),
    Memory(Store),
    #[cfg(feature = "postgres")]
    Server(postgres::Schema),
}

impl Place {
    pub(crate) fn of(kind: Kind) -> Self {
        Self::Files(kind, tempfile::tempdir().expect("a directory"))
    }

    /// Returns all kinds of stores.
    pub(crate) fn all() -> Result<Vec<Self>> {
        let map = || ShardMap::ranges().to("a", ..10u32).to("b", 10u32..20).to("c", 20u32..);
        let shards =
            ["a", "b", "c"].iter().fold(Store::options(), |all, name| all.shard(*name, ""));
        let in_shards = shards.map("tenants", map()).in_memory()?;
        #[cfg_attr(not(feature = "postgres"), expect(unused_mut, reason = "the server is added"))]
        let mut all = vec![
            Self::of(Kind::OneFile),
            Self::of(Kind::Several),
            Self::Memory(Store::in_memory()),
            Self::Memory(in_shards),
        ];
        #[cfg(feature = "postgres")]
        all.extend(postgres::Schema::new().map(Self::Server));
        Ok(all)
    }

    pub(crate) fn open(&self) -> Result<Store> {
        match self {
            Self::Files(kind, directory) => kind.store("tenants").open(directory.path()),
            Self::Memory(store) => Ok(store.clone()),
            #[cfg(feature = "postgres")]
            Self::Server(schema) => schema.open(),
        }
    }

    /// Whether numbers are assigned in blocks.
    pub(crate) const fn has_gaps(&self) -> bool {
        !matches!(self, Self::Files(..) | Self::Memory(_))
    }

    pub(crate) fn path(&self) -> PathBuf {
        match self {
            Self::Files(_, directory) => directory.path().to_owned(),
            _ => PathBuf::new(),
        }
    }
}

/// Opens the tables of a release, and calls `$work` with the store and the repositories.
macro_rules! with {
    ($place:expr, $release:ident, |$store:ident, $people:ident, $orders:ident| $work:block) => {{
        let $store = $place.open()?;
        let $people = crate::shop::$release::People::open(&$store)?;
        let $orders = crate::shop::$release::Orders::open(&$store)?;
        $work
    }};
}
pub(crate) use with;

/// Fills the store by the first release, with changes that a consumer has not read, and messages that are not applied.
pub(crate) fn fill(place: &Place) -> TestResult {
    use shop::first;
    with!(place, first, |store, people, orders| {
        let regions = first::Regions::open(&store)?;
        store.transaction(|txn| regions.put(txn, &first::Region { code: 1 }))?;
        drop(people.changes(&store, "mailer")?);
        for tenant in TENANTS {
            store.transaction(|txn| first::fill(txn, (&people, &orders), tenant))?;
        }
        let (mut mailer, begun) = (people.changes(&store, "mailer")?, Instant::now());
        let taken = loop {
            let batch = mailer.next_batch(2)?;
            if batch.len() == 2 {
                break batch;
            }
            assert!(begun.elapsed() < Duration::from_mins(1), "it takes too long");
            // On a server, the transactions of other tests delay changes.
            thread::sleep(Duration::from_millis(1));
        };
        taken.commit(&store)?;
    });
    Ok(())
}
