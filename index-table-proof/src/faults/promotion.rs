//! System calls that fail while a follower is promoted: of a store with one data file, or of one with shards.
//!
//! After an error or a kill, the copy can be opened: as a follower, which can then be promoted, or as the promoted store. After an
//! error, the original can be opened and written too.

use std::{path::Path, time::Duration};

use index_table::{Durability, Error, Follower, IndexTable, Result, ShardMap, Store};
use serde::{Deserialize, Serialize};

use super::Failure;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IndexTable)]
#[table(name = "notes", shard_by = id)]
#[index(text)]
struct Note {
    #[primary_key]
    id: u32,
    text: String,
}

/// The number of rows in the archive.
const ROWS: u32 = 20;

fn original(files: &Path, is_sharded: bool) -> Result<(Store, NoteRepository)> {
    let options = Store::options().durability(Durability::Journal).archive(files.join("archive"));
    let options = if is_sharded {
        let map = ShardMap::ranges().to("north", ..ROWS / 2).to("south", ROWS / 2..);
        options.shard("north", "north").shard("south", "south").map("notes", map)
    } else {
        options
    };
    opened(options.open(files.join("store"))?)
}

fn opened(store: Store) -> Result<(Store, NoteRepository)> {
    let notes = NoteRepository::open(&store)?;
    Ok((store, notes))
}

fn put(store: &Store, notes: &NoteRepository, id: u32) -> Result<()> {
    store.transaction(|txn| notes.put(txn, &Note { id, text: format!("note {id}") }))
}

/// Makes the original with its archive, and a closed follower.
pub(super) fn prepare(files: &Path, is_sharded: bool) -> std::result::Result<(), Failure> {
    let prepare = || {
        let (store, notes) = original(files, is_sharded)?;
        (0..ROWS).try_for_each(|id| put(&store, &notes, id))?;
        drop((store, notes));
        follower(files).map(drop)
    };
    for _ in 0..100 {
        match prepare() {
            // The archive has no base yet.
            Err(Error::NotInArchive { .. }) => std::thread::sleep(Duration::from_millis(10)),
            prepared => return prepared.map_err(|error: Error| error.to_string()),
        }
    }
    Err("the archive has no base".to_owned())
}

fn follower(files: &Path) -> Result<Follower> {
    Follower::open(files.join("standby"), files.join("archive"))
}

/// The work of the child.
pub(super) fn child(files: &Path) {
    match follower(files).and_then(Follower::promote).and_then(opened) {
        Ok((store, notes)) => match put(&store, &notes, ROWS) {
            Ok(()) => println!("written"),
            Err(error) => println!("error: a write: {error}"),
        },
        Err(error) => println!("error: {error}"),
    }
    if std::env::var("FAULT_MODE").is_ok_and(|mode| mode == "always") {
        println!("stopped");
    }
}

/// Opens the copy, and the original if the child has returned an error.
pub(super) fn judge(
    said: &str,
    files: &Path,
    is_sharded: bool,
) -> std::result::Result<(), Failure> {
    let shown = |what: &str, error: Error| format!("{what}: {error}");
    let (copy, is_follower) = match follower(files) {
        Ok(follower) => {
            let promoted = original_goes_on(said, files, is_sharded).and_then(|()| {
                follower.promote().map_err(|error| shown("promotion without a fault", error))
            });
            (promoted?, true)
        }
        Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::AlreadyExists => {
            let store = Store::options().create(false).open(files.join("standby"));
            (store.map_err(|error| shown("the copy is neither", error))?, false)
        }
        Err(error) => return Err(shown("the follower", error)),
    };
    if said.contains("written") && is_follower {
        return Err("the promoted store is a follower".to_owned());
    }
    let (store, notes) = opened(copy).map_err(|error| shown("the copy", error))?;
    put(&store, &notes, ROWS + 1).map_err(|error| shown("a write to the copy", error))?;
    let check = || {
        let txn = store.read()?;
        let ids = notes.all(&txn).keys().collect::<Result<Vec<_>>>()?;
        Ok((ids, notes.verify(&txn).run()?.is_clean()))
    };
    let (ids, is_clean) = check().map_err(|error| shown("a read of the copy", error))?;
    // A write whose error was reported may have been committed.
    let rows = ids.iter().filter(|id| **id < ROWS).count();
    let has_written = ids.contains(&ROWS) || !said.contains("written");
    if rows != ROWS as usize || !ids.contains(&(ROWS + 1)) || !has_written || !is_clean {
        return Err(format!("the copy has the rows {ids:?}; clean: {is_clean}"));
    }
    Ok(())
}

/// After an error of the promotion, the original can be written.
fn original_goes_on(
    said: &str,
    files: &Path,
    is_sharded: bool,
) -> std::result::Result<(), Failure> {
    let is_error =
        said.lines().any(|line| line.starts_with("error: ") && !line.contains("a write"));
    // With the archive, the record of the promotion can't be removed either.
    if !is_error || said.contains("stopped") {
        return Ok(());
    }
    let written = original(files, is_sharded).and_then(|(store, notes)| put(&store, &notes, 0));
    written.map_err(|error| format!("the original: {error}"))
}
