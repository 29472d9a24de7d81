//! Power failures while a store with one data file gets a second one, and threads write it.

use std::{
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use index_table::{Error, Result, Store};

use super::{Failure, Known, Tables, say};

/// The shard that is added, and the shard in the first data file.
const ADDED: &str = "east";
const MAIN: &str = "main";

/// Returns the path of the store in the directory of a scenario.
fn store_path(path: &Path) -> PathBuf {
    path.join("grown")
}

/// Returns true if the directory of a scenario has a store.
pub(crate) fn exists(path: &Path) -> bool {
    store_path(path).exists()
}

fn open(path: &Path) -> Result<Tables> {
    Tables::new(crate::journal().open(store_path(path))?)
}

fn has_added(store: &Store) -> bool {
    store.shard_ids().iter().any(|shard| shard.name() == ADDED)
}

/// Adds the shard and moves parts to it. If an earlier process has added it, the parts move back, and the shard is removed and added.
fn change(tables: &Tables) -> Result<()> {
    let store = tables.store();
    for begun in store.moves()? {
        store.resume_move(begun.id).run()?;
    }
    if has_added(store) {
        move_all(store, MAIN)?;
        store.remove_shard(ADDED)?;
    }
    // A directory of a removed shard stays.
    store.add_shard(ADDED, format!("{ADDED}-{}", std::process::id()))?;
    move_all(store, ADDED)
}

fn move_all(store: &Store, to: &str) -> Result<()> {
    store.move_range("parts", 1_u8.., to).run()?;
    store.move_slots("parts.place", 0..8192, to).run().map(drop)
}

/// Commits transactions in rounds while the store grows.
pub(in crate::crash) fn write(path: &Path) -> Result<()> {
    let tables = open(path)?;
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(u64::from(std::process::id() % 4)));
            if let Err(error) = change(&tables) {
                say(&format!("error: {error}"));
            }
        });
        tables.write_in_rounds()
    })
}

/// Makes the same checks as after commits in a store with shards.
pub(in crate::crash) fn prove(path: &Path, known: &mut Known) -> Result<(), Failure> {
    let shown = |error: Error| error.to_string();
    let tables = open(path).map_err(shown)?;
    known.cut += u64::from(!has_added(tables.store()));
    let count = tables.check().map_err(shown)??;
    known.find(count, u64::from(super::THREADS))
}

/// Adds the shard if it is missing, commits the next transaction of each thread, and checks everything again.
pub(crate) fn go_on(path: &Path) -> Result<(), Failure> {
    let continued = || {
        let tables = open(path)?;
        if !has_added(tables.store()) {
            tables.store().add_shard(ADDED, format!("{ADDED}-later"))?;
        }
        tables.commit_next()?;
        drop(tables);
        open(path)?.check()
    };
    continued().map_err(|error| format!("the next commit: {error}"))?.map(drop)
}
