//! Processes that are killed while a sharded store builds the indexes of a table, and threads write the table.

use std::{path::Path, thread};

use index_table::{IndexState, IndexTable, Result};
use serde::{Deserialize, Serialize};

use super::{
    AccountRepository, Failure, KEPT, Known, PartRepository, Tables, commit_in_rounds, open,
    open_shards, say, store_path,
};
use crate::crash::Beside;

/// The parts without indexes.
mod forgotten {
    use super::{Deserialize, IndexTable, Serialize};

    #[derive(Serialize, Deserialize, IndexTable)]
    #[table(name = "parts", shard_by = shard)]
    pub(super) struct Part {
        #[primary_key]
        shard: u8,
        #[primary_key]
        thread: u8,
        #[primary_key]
        number: u32,
        text: String,
    }
}

/// Opens the store without building the indexes of the parts.
fn open_online(path: &Path) -> Result<Tables> {
    let store = open_shards(&store_path(path), crate::journal(), "parts")?;
    let parts = PartRepository::open_online(&store)?;
    let accounts = AccountRepository::open(&store)?;
    Ok(Tables { store, parts, accounts })
}

/// Forgets the indexes of the parts, so that the next process builds them. Every other build is continued instead.
pub(in crate::crash) fn forget(path: &Path, known: &mut Known) -> Result<Option<Beside>, Failure> {
    let mut prepared = || {
        if known.filled == 0 {
            let tables = open(path)?;
            for number in 0..KEPT {
                for thread in 0..super::THREADS {
                    tables.store.transaction(|txn| tables.write(txn, thread, number))?;
                    known.filled += 1;
                }
            }
        } else if known.random.is_multiple_of(2) {
            return Ok(());
        }
        let store = open_shards(&store_path(path), crate::journal(), "parts")?;
        forgotten::PartRepository::open(&store).map(drop)
    };
    prepared().map(|()| None).map_err(|error: index_table::Error| error.to_string())
}

/// Commits transactions in rounds, and builds the indexes at the same time.
pub(in crate::crash) fn write(path: &Path) -> Result<()> {
    let tables = open_online(path)?;
    let counts = tables.counts(&tables.store.read()?)?;
    say("open");
    thread::scope(|scope| {
        scope.spawn(|| {
            if let Err(error) = tables.parts.build(&tables.store).batch_bytes(1000).run() {
                say(&format!("error: {error}"));
            }
        });
        commit_in_rounds(counts, |thread, number| {
            tables.commit(thread, number)?;
            tables.check_sum()
        })
    })
}

/// Counts incomplete builds, continues half of them, and makes the same checks as after commits alone.
pub(in crate::crash) fn prove(path: &Path, known: &mut Known) -> Result<(), Failure> {
    let mut finished = || {
        let tables = open_online(path)?;
        let catalog = tables.store.catalog()?;
        let mut indexes = catalog.tables.iter().flat_map(|table| &table.indexes);
        known.cut += u64::from(
            indexes.any(|index| matches!(index.state, IndexState::Building { rows: 1.., .. })),
        );
        if known.random % 4 < 2 {
            tables.parts.build(&tables.store).run()?;
        }
        Ok(())
    };
    finished().map_err(|error: index_table::Error| error.to_string())?;
    super::prove(path, known)
}
