//! Followers of an archive.

mod added_shards;
mod building;
mod changed_shards;
#[path = "../support/data_files.rs"]
mod data_files;
mod following;
mod hidden;
mod processes;
mod promoted;
mod restored;
mod shards;
mod unfinished;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use index_table::{Error, Follower, IndexTable, Options, Result, Store};
use serde::{Deserialize, Serialize};

pub(crate) use crate::data_files::{Kind, on_each_kind};

pub(crate) type TestResult = std::result::Result<(), Box<dyn std::error::Error>>;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "orders", shard_by = tenant)]
#[index(topic)]
pub(crate) struct Order {
    #[primary_key]
    tenant: u32,
    #[primary_key]
    id: u32,
    topic: u8,
    text: String,
}

pub(crate) type Rows = BTreeMap<(u32, u32), Order>;

pub(crate) struct Dirs {
    _dir: tempfile::TempDir,
    pub(crate) kind: Kind,
    pub(crate) store: PathBuf,
    pub(crate) archive: PathBuf,
    pub(crate) standby: PathBuf,
}

pub(crate) fn dirs(kind: Kind) -> std::io::Result<Dirs> {
    let dir = tempfile::tempdir()?;
    let path = |name: &str| dir.path().join(name);
    let (store, archive, standby) = (path("store"), path("archive"), path("standby"));
    Ok(Dirs { _dir: dir, kind, store, archive, standby })
}

impl Dirs {
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.store.with_file_name(name)
    }

    /// Opens the original with its archive.
    pub(crate) fn open(&self) -> Result<(Store, OrderRepository)> {
        opened(options(self.kind, &self.archive).open(&self.store)?)
    }

    /// Opens the follower, which is created by the first call.
    pub(crate) fn follow(&self) -> Result<(Follower, OrderRepository)> {
        let follower = Follower::open(&self.standby, &self.archive)?;
        let copies = OrderRepository::open(follower.store())?;
        Ok((follower, copies))
    }

    /// Writes the original with its archive.
    pub(crate) fn write(&self, rows: &mut Rows, steps: std::ops::Range<u32>) -> Result<()> {
        let (store, orders) = self.open()?;
        wait(|| store.archive_lag().is_some_and(|lag| lag.has_base));
        write(&store, &orders, rows, steps)
    }

    /// Writes the original, and gives up its archive.
    pub(crate) fn write_without_archive(
        &self,
        rows: &mut Rows,
        steps: std::ops::Range<u32>,
    ) -> Result<()> {
        let (store, orders) = opened(Store::options().without_archive().open(&self.store)?)?;
        write(&store, &orders, rows, steps)
    }

    /// Returns options of a promoted store, which declare no shards.
    pub(crate) fn promoted(&self) -> Options {
        self.kind.of(self.kind.journal("orders"), Store::options()).archive(&self.archive)
    }

    /// Restores the archive, and checks that it has these rows.
    pub(crate) fn archive_has(&self, rows: &Rows) -> TestResult {
        Store::restore_archive(&self.archive).run(self.path("restored"))?;
        self.has(&Store::open(self.path("restored"))?, rows)
    }

    pub(crate) fn has(&self, store: &Store, rows: &Rows) -> TestResult {
        let found = rows_of(store, &OrderRepository::open(store)?)?;
        assert!(found == *rows, "{:?}: {} rows, not {}", self.kind, found.len(), rows.len());
        Ok(())
    }
}

pub(crate) fn opened(store: Store) -> Result<(Store, OrderRepository)> {
    let orders = OrderRepository::open(&store)?;
    Ok((store, orders))
}

/// Returns options with an archive, and a journal that makes a checkpoint every few commits.
pub(crate) fn options(kind: Kind, archive: &Path) -> Options {
    kind.journal("orders").archive(archive)
}

/// For each step, writes rows in all shards and deletes a row, in one transaction.
pub(crate) fn write(
    store: &Store,
    orders: &OrderRepository,
    rows: &mut Rows,
    steps: std::ops::Range<u32>,
) -> Result<()> {
    for step in steps {
        store.transaction(|txn| {
            for tenant in [step % 10, 10 + step % 10, 20 + step % 10] {
                let text = format!("{step}").repeat(1 + step as usize % 50);
                let order = Order { tenant, id: step % 7, topic: (step % 5) as u8, text };
                orders.put(txn, &order)?;
                rows.insert((tenant, order.id), order);
            }
            let gone = (step * 3 % 30, step % 7);
            if gone.0 % 10 != step % 10 {
                rows.remove(&gone);
                orders.delete(txn, gone.0, gone.1)?;
            }
            Ok::<_, Error>(())
        })?;
    }
    Ok(())
}

pub(crate) fn rows_of(
    store: &Store,
    orders: &OrderRepository,
) -> std::result::Result<Rows, Box<dyn std::error::Error>> {
    let txn = store.read()?;
    let report = orders.verify(&txn).run()?;
    assert!(report.is_clean(), "{report:?}");
    let rows = orders.all(&txn).rows().map(|row| row.map(|row| ((row.tenant, row.id), row)));
    Ok(rows.collect::<Result<_>>()?)
}

pub(crate) fn wait(mut is_done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_done() {
        assert!(begun.elapsed() < Duration::from_secs(40), "it takes too long");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until a follower has the last commit of its original.
pub(crate) fn wait_for(follower: &Follower, original: &Store) -> Result<()> {
    let last = original.read()?.commit_number();
    wait(|| follower.store().read().is_ok_and(|txn| txn.commit_number() >= last));
    // The error of a round before is left until the end of this round.
    wait(|| follower.lag().is_ok_and(|lag| (lag.commits, lag.error) == (0, None)));
    Ok(())
}

/// Waits until the archive has all commits and a base.
pub(crate) fn wait_for_archive(store: &Store) {
    wait(|| store.archive_lag().is_some_and(|lag| lag.has_base && lag.commits == 0));
}
