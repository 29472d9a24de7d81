//! Stores with an archive, and stores that are restored from one.

mod damage;
#[path = "../support/data_files.rs"]
mod data_files;
#[path = "../support/directories.rs"]
mod directories;
mod earlier;
mod forks;
mod handed;
mod joining;
mod lost;
mod moments;
mod named;
mod numbers;
mod partial;
mod processes;
mod refused;
mod shards;
mod targets;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use index_table::{
    CommitNumber, Error, IndexTable, Options, RestoreArchive, Result, Store, report::ArchiveLag,
};
use serde::{Deserialize, Serialize};

pub(crate) use crate::data_files::{Kind, on_each_kind};

pub(crate) type TestResult = std::result::Result<(), Box<dyn std::error::Error>>;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "orders", shard_by = tenant)]
#[index(topic)]
#[index(title, strategy = "full", name = "whole")]
#[index(code, unique, scope = "global")]
pub(crate) struct Order {
    #[primary_key]
    pub(crate) tenant: u32,
    #[primary_key]
    pub(crate) id: u32,
    pub(crate) topic: u8,
    pub(crate) title: String,
    pub(crate) code: u64,
    pub(crate) text: String,
}

pub(crate) type Rows = BTreeMap<(u32, u32), Order>;

pub(crate) fn order(tenant: u32, id: u32, version: u32) -> Order {
    Order {
        tenant,
        id,
        topic: ((id + version) % 5) as u8,
        title: format!("title {}", (id + version) % 11),
        code: u64::from(tenant) << 40 | u64::from(id) << 20 | u64::from(version % (1 << 20)),
        text: "x".repeat((id * 7 + version % 1000 * 13) as usize % 97 * 30),
    }
}

/// Returns options without an archive. Their journal makes a checkpoint every few commits.
pub(crate) fn without_archive(kind: Kind) -> Options {
    kind.journal("orders")
}

/// A store with an archive, in a directory of its own.
pub(crate) struct Archived {
    dir: tempfile::TempDir,
    pub(crate) kind: Kind,
    pub(crate) store: PathBuf,
    pub(crate) archive: PathBuf,
}

impl Archived {
    pub(crate) fn new(kind: Kind) -> std::io::Result<Self> {
        let dir = tempfile::tempdir()?;
        let (store, archive) = (dir.path().join("store"), dir.path().join("archive"));
        Ok(Self { dir, kind, store, archive })
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn options(&self) -> Options {
        self.to(&self.archive)
    }

    /// Returns options with another archive.
    pub(crate) fn to(&self, archive: &Path) -> Options {
        without_archive(self.kind).archive(archive)
    }

    /// Returns options of a store that is open or was restored. They declare no shards.
    pub(crate) fn existing(&self, archive: &Path) -> Options {
        self.kind.of(without_archive(self.kind), Store::options()).archive(archive)
    }

    /// Opens the store with its archive.
    pub(crate) fn open(&self) -> Result<(Store, OrderRepository)> {
        open(&self.options(), &self.store)
    }

    pub(crate) fn restore(&self) -> RestoreArchive<'static> {
        Store::restore_archive(&self.archive)
    }

    /// Restores the archive in a fresh directory, and returns the rows after all checks.
    pub(crate) fn restored(&self, restore: RestoreArchive<'_>) -> Checked<(CommitNumber, Rows)> {
        let to = fresh(self.dir.path(), "restored");
        let last = restore.run(&to)?;
        Ok((last, rows_of(&to)?))
    }

    /// Restores the whole archive.
    pub(crate) fn restored_rows(&self) -> Checked<Rows> {
        Ok(self.restored(self.restore())?.1)
    }

    /// Restores the state after a commit, and checks that it has these rows.
    pub(crate) fn has(&self, commit: &CommitNumber, rows: &Rows) -> TestResult {
        let (last, found) = self.restored(self.restore().until_commit(commit.clone()))?;
        assert_eq!(last, *commit);
        assert!(found == *rows, "after commit {commit}");
        Ok(())
    }

    /// Checks that the archive refuses a restore, which then leaves nothing.
    pub(crate) fn lacks(&self, restore: RestoreArchive<'_>) -> String {
        let to = fresh(self.dir.path(), "refused");
        let outcome = restore.run(&to);
        let Err(Error::NotInArchive { reason, .. }) = outcome else { panic!("{outcome:?}") };
        assert!(!to.exists());
        reason
    }
}

pub(crate) type Checked<T> = std::result::Result<T, Box<dyn std::error::Error>>;

pub(crate) fn open(options: &Options, path: &Path) -> Result<(Store, OrderRepository)> {
    let store = options.open(path)?;
    let orders = OrderRepository::open(&store)?;
    Ok((store, orders))
}

pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, below: u32) -> u32 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % u64::from(below)) as u32
    }
}

/// Returns rows that are put, and keys whose rows are deleted, in one or several shards. The first is a put.
pub(crate) fn changes(random: &mut Random) -> Vec<(u32, u32, Option<u32>)> {
    (0..=random.below(4))
        .map(|at| {
            let is_deleted = at > 0 && random.below(4) == 0;
            let version = random.below(1 << 16);
            (random.below(30), random.below(12), (!is_deleted).then_some(version))
        })
        .collect()
}

pub(crate) fn apply(rows: &mut Rows, changes: Vec<(u32, u32, Option<u32>)>) {
    for (tenant, id, version) in changes {
        match version {
            Some(version) => rows.insert((tenant, id), order(tenant, id, version)),
            None => rows.remove(&(tenant, id)),
        };
    }
}

/// Commits some changes, and makes the same changes in the model.
pub(crate) fn change(
    store: &Store,
    orders: &OrderRepository,
    rows: &mut Rows,
    random: &mut Random,
) -> Result<()> {
    let changes = changes(random);
    store.transaction(|txn| {
        changes.iter().try_for_each(|(tenant, id, version)| match version {
            Some(version) => orders.put(txn, &order(*tenant, *id, *version)).map(drop),
            None => orders.delete(txn, *tenant, *id).map(drop),
        })
    })?;
    apply(rows, changes);
    Ok(())
}

pub(crate) fn last_commit(store: &Store) -> Result<CommitNumber> {
    Ok(store.read()?.commit_number())
}

/// Returns the rows of a store, after all checks.
pub(crate) fn rows_in(store: &Store) -> Checked<Rows> {
    assert!(store.unavailable_shards().is_empty(), "{:?}", store.unavailable_shards());
    store.check()?;
    let orders = OrderRepository::open(store)?;
    let txn = store.read()?;
    let report = orders.verify(&txn).run()?;
    assert!(report.is_clean(), "{report:?}");
    let rows = orders.all(&txn).rows().map(|row| row.map(|row| ((row.tenant, row.id), row)));
    Ok(rows.collect::<Result<_>>()?)
}

pub(crate) fn rows_of(path: &Path) -> Checked<Rows> {
    rows_in(&Store::options().create(false).open(path)?)
}

/// Returns a path that does not exist.
pub(crate) fn fresh(dir: &Path, name: &str) -> PathBuf {
    let path = dir.join(name);
    let _ = std::fs::remove_dir_all(&path);
    path
}

/// Waits until the archive has all commits and a base.
pub(crate) fn wait_for_archive(store: &Store) {
    wait_for(store, |lag| lag.commits == 0 && lag.has_base && lag.error.is_none());
}

pub(crate) fn wait_for(store: &Store, is_done: impl Fn(&ArchiveLag) -> bool) {
    let begun = Instant::now();
    loop {
        let lag = store.archive_lag().expect("an archive");
        if is_done(&lag) {
            return;
        }
        assert!(begun.elapsed() < Duration::from_mins(1), "{lag:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
