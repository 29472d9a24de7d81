//! Copying the readable rows of a damaged store.

use std::{fs::File, path::Path};

use serde::Serialize;

use super::{
    Store,
    copy::{Modes, Partial, at_path},
};
use crate::{
    engine::{DEFAULT_MAP_SIZE, Durability, Engine, Options, checked, files::DATA_FILE, lmdb},
    model::{
        error::{Error, Result},
        schema::{Building, StateRecord},
    },
};

/// The outcome of [`Store::salvage`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SalvageReport {
    /// The tables, by name.
    pub tables: Vec<SalvagedTable>,
    /// What could not be read, of anything but indexes; empty if no row, change or record is lost.
    pub lost: Vec<LostRange>,
    /// The indexes and aggregates without entries in the copy, as `table.index`: a program builds them when it opens the table.
    pub to_build: Vec<String>,
    /// The commits of the journal that the copy lacks: those after the last checkpoint, if the writing process was killed.
    pub missing_commits: u64,
}

/// A table of a [`SalvageReport`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SalvagedTable {
    /// The name of the table.
    pub table: String,
    /// The number of copied rows.
    pub rows: u64,
}

/// Keys whose rows or records could not be read; see [`SalvageReport`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LostRange {
    /// The database: the name of a table for its rows, or a part such as `table.change-stream`, `.queue.table` or `.catalog`.
    pub database: String,
    /// The damaged page.
    pub page: u64,
    /// Its damage.
    pub reason: &'static str,
    /// The encoded first key that may be lost; `None` for the first key of the database.
    pub from: Option<Vec<u8>>,
    /// The encoded first key after the lost ones; `None` if the last key may be lost.
    pub to: Option<Vec<u8>>,
}

impl Store {
    /// Copies everything that can be read of a damaged store in the directory `from` to a new store in the directory `to`: the rows of
    /// all tables with their lists, sequences, queues, change streams and the catalog. An index is copied if its pages and those
    /// of the rows are intact; otherwise a program builds it when it opens the table. Nothing is read by LMDB, which can crash in a
    /// damaged file. The rows below a damaged branch are found if no other branch is damaged.
    ///
    /// `from` stays as it is, and can be in use. Its indexes are not compared with the rows: run `verify` on the copy. The copy has
    /// no archive and no followers. Its directory is written under another name, `.….partial`, and renamed when it is complete.
    ///
    /// If the writing process was killed, the state of the last checkpoint is copied, and [`SalvageReport::missing_commits`] says how
    /// many commits of the journal the copy lacks. To have them, open a copy of the directory first, which recovers it; LMDB applies
    /// the journal without a check of the pages, so this can end the process if the file is damaged.
    ///
    /// Cost: reads each page in use, and writes each row. Takes memory for a transaction of 8 MiB and one bit for each page.
    ///
    /// # Errors
    ///
    /// [`Error::DamagedFile`] if the first two pages are damaged, which have the roots of everything; [`Error::NotOffered`] for a sharded
    /// store, whose shards are restored one by one;
    /// the errors of [`backup_to`](Store::backup_to) for `to`. A failed salvage leaves no files.
    ///
    /// # Examples
    ///
    /// ```
    /// # use index_table::{IndexTable, Store};
    /// # use serde::{Deserialize, Serialize};
    /// # #[derive(Serialize, Deserialize, IndexTable)]
    /// # struct Note { #[primary_key] id: u32 }
    /// # fn main() -> index_table::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let (damaged, copy) = (dir.path().join("damaged"), dir.path().join("copy"));
    /// # let store = Store::open(&damaged)?;
    /// # let notes = NoteRepository::open(&store)?;
    /// # store.transaction(|txn| notes.insert(txn, &Note { id: 1 }))?;
    /// # drop((notes, store));
    /// let report = Store::salvage(&damaged, &copy)?;
    /// assert_eq!(report.tables[0].rows, 1);
    /// assert!(report.lost.is_empty());
    /// let store = Store::open(&copy)?;
    /// # assert!(NoteRepository::open(&store)?.get(&store.read()?, 1)?.is_some());
    /// # Ok(())
    /// # }
    /// ```
    pub fn salvage(from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<SalvageReport> {
        let (from, to) = (from.as_ref(), to.as_ref());
        let options =
            Options { without_recovery: true, ..Self::options().create(false).read_only(true) };
        let opened = match checked(|| options.open(from)) {
            Ok(opened) => Some(opened),
            // Without the names, LMDB can't open it.
            // LMDB could crash when it applies the journal to a damaged file.
            Err(Error::DamagedFile { .. } | Error::RecoveryNeeded { .. })
                if from.join(DATA_FILE).is_file() =>
            {
                None
            }
            Err(error) => return Err(error),
        };
        if opened.as_ref().is_some_and(Self::has_shards) {
            return Err(Error::NotOffered {
                what: "salvaging a sharded store; `restore_shard` replaces a damaged shard",
            });
        }
        let open = opened.as_ref().map(|opened| opened.inner.engines.on_disk()).transpose()?;
        let io = |source| Error::io(to, source);
        let partial = Partial::create(to).map_err(io)?;
        let salvaged = fill(from, open, &partial.0).map_err(|error| at_path(error, to))?;
        let file = File::open(partial.0.join(DATA_FILE)).map_err(io)?;
        Modes::of(from).apply(&file, &partial.0).map_err(io)?;
        file.sync_all().map_err(io)?;
        drop(file);
        partial.finish(to).map_err(io)?;
        let lmdb::Salvaged { rows, lost, emptied, missing_commits } = salvaged;
        let lost = lost.into_iter().map(|lost| LostRange {
            database: lost.database,
            page: lost.page,
            reason: lost.reason,
            from: lost.from,
            to: lost.to,
        });
        Ok(SalvageReport {
            tables: rows.into_iter().map(|(table, rows)| SalvagedTable { table, rows }).collect(),
            lost: lost.collect(),
            to_build: emptied.iter().map(|(table, index)| format!("{table}.{index}")).collect(),
            missing_commits,
        })
    }
}

/// Fills a new data file in the directory `to`.
fn fill(from: &Path, open: Option<&lmdb::Engine>, to: &Path) -> Result<lmdb::Salvaged> {
    let (databases, length) = lmdb::salvaged_size(from)?;
    // A database takes at most twice the pages in the copy. A batch needs some more.
    let map_size = usize::try_from(length.saturating_mul(4)).unwrap_or(usize::MAX);
    let options = Options::default()
        .durability(Durability::None)
        .max_databases(databases.saturating_add(Options::default().max_databases))
        .map_size(map_size.max(DEFAULT_MAP_SIZE));
    let engine = Engine::open(&options, to)?;
    let engine = engine.on_disk()?;
    lmdb::salvage(from, open, engine, &|record, part| {
        let own = record.indexes.iter().find(|own| own.name == part);
        let state = match own {
            Some(own) if own.is_eventual() => StateRecord::Disabled,
            _ => StateRecord::Building(Building::default()),
        };
        state.encode("the table")
    })
}
