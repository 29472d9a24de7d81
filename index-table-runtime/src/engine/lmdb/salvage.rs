//! Copying what can be read of a damaged data file, without LMDB, into a new one.

use std::{collections::BTreeMap, io, path::Path};

use heed::CommitOrAbort;

use super::{
    begin::read_txn,
    env::Engine,
    error::refused,
    gate::Kind,
    journal::recovery::checkpoint_of,
    journalled::unstarted,
    lock,
    names::{CATALOG, Database, FILE, LIST_COPIES, SHARDS, index_of, queue_of},
    pages::{self, Fault, LostKeys, Readable, has_branches},
};
use crate::{
    engine::Records,
    model::{
        error::{Error, Result},
        schema::{DATABASES, StateRecord, TableRecord},
        stream::STREAM,
    },
};

/// The bytes of the entries of a transaction.
const BATCH_BYTES: usize = 8 << 20;

/// The keys of a database that could not be copied.
pub(crate) struct Lost {
    /// The name of the database; empty for the names of all databases.
    pub(crate) database: String,
    pub(crate) page: u64,
    pub(crate) reason: &'static str,
    pub(crate) from: Option<Vec<u8>>,
    pub(crate) to: Option<Vec<u8>>,
}

/// The outcome of [`salvage`].
#[derive(Default)]
pub(crate) struct Salvaged {
    /// The number of rows of each table.
    pub(crate) rows: BTreeMap<String, u64>,
    pub(crate) lost: Vec<Lost>,
    /// The number of commits in the journal that are not copied.
    pub(crate) missing_commits: u64,
    /// The indexes and aggregates that have to be built, as pairs of a table and a name.
    pub(crate) emptied: Vec<(String, String)>,
}

/// Copies the entries of the data file in the directory `from`, which may be open as `open`, to the new, empty file of `to`. A file that
/// has to be recovered is read in the state of its last checkpoint. Returns what was copied and lost. `record` is the state of an index that has to be built.
pub(crate) fn salvage(
    from: &Path,
    open: Option<&Engine>,
    to: &Engine,
    record: &dyn Fn(&TableRecord, &str) -> Result<Vec<u8>>,
) -> Result<Salvaged> {
    // Keeps LMDB from reusing the pages of its state; dropped in this order.
    if open.is_none() {
        refuse_in_use(from)?;
    }
    let reading = open.map(|open| open.begin(Kind::Reader, read_txn)).transpose()?;
    let txn = reading.as_ref().map(|txn| txn.id() as u64);
    let checkpoint = match open {
        Some(_) => None,
        None => checkpoint_of(from).map_err(|not_started| unstarted(from, not_started))?,
    };
    let (state, commits) = checkpoint.unzip();
    let opened = Readable::open(&from.join(FILE), txn, state);
    let (mut source, names) = opened.map_err(|fault| refused(from, fault))?;
    // An open store has told that it has no shards.
    if open.is_none() && source.names().iter().any(|name| name == SHARDS) {
        return Err(Error::NotOffered {
            what: "salvaging a sharded store; `restore_shard` replaces a damaged shard",
        });
    }
    let mut copy = Copy { source: &mut source, to, done: Salvaged::default() };
    copy.done.lost.extend(names.into_iter().map(|lost| of("", lost)));
    copy.done.missing_commits = commits.unwrap_or_default();
    copy.run(record)?;
    let done = copy.done;
    drop(reading);
    Ok(done)
}

/// Refuses a store that can't be opened, and that another process has open: its commits would replace pages while they are read.
fn refuse_in_use(from: &Path) -> Result<()> {
    let processes = lock::processes(from).map_err(|source| Error::io(from, source))?;
    let Some(process) = processes.first() else { return Ok(()) };
    let reason = format!(
        "process {process} has it open, and would change it during the salvage; end the process, or salvage a copy of the directory"
    );
    Err(Error::AlreadyOpen { path: from.to_owned(), reason })
}

/// Returns the number of databases of the data file in the directory `from`, and its length.
pub(crate) fn salvaged_size(from: &Path) -> Result<(u32, u64)> {
    let file = from.join(FILE);
    let databases = pages::look_at_head(&file, false).map_err(|fault| refused(from, fault))?;
    let length = file.metadata().map_err(|source| Error::io(&file, source))?.len();
    // A damaged number is less than the number of bytes.
    let databases = databases.unwrap_or_default().min(length / 64);
    Ok((u32::try_from(databases).unwrap_or(u32::MAX), length))
}

struct Copy<'c> {
    source: &'c mut Readable,
    to: &'c Engine,
    done: Salvaged,
}

/// The error of reading or writing an entry.
enum Failed {
    Io(io::Error),
    Other(Error),
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<Fault> for Failed {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Io(error) => Self::Io(error),
            Fault::Damaged(reason) => Self::Io(io::Error::other(reason)),
        }
    }
}

impl Copy<'_> {
    fn run(&mut self, state: &dyn Fn(&TableRecord, &str) -> Result<Vec<u8>>) -> Result<()> {
        let mut records = Records::new();
        let mut lost = Vec::new();
        let read = self.source.tree::<Failed>(CATALOG, &mut lost, &mut |name, record| {
            records.push((String::from_utf8_lossy(name).into_owned(), record.to_vec()));
            Ok(())
        });
        read.map_err(|failed| self.failed(failed))?;
        self.note(CATALOG, lost);
        let tables: Vec<(String, TableRecord)> = records
            .iter()
            .filter(|(name, _)| !name.contains('.'))
            .filter_map(|(name, record)| Some((name.clone(), TableRecord::read(record).ok()?)))
            .collect();
        // The database of a table, a queue or an index, in the place of a renamed one.
        let stored = |table: &str, part: Option<&str>| {
            let find = |name: String| {
                let found = records.iter().find(|(own, _)| *own == name);
                let name = found.and_then(|(_, record)| record.get(1..));
                name.and_then(|name| str::from_utf8(name).ok()).map(str::to_owned)
            };
            let beginning =
                find(format!("{table}.{DATABASES}")).unwrap_or_else(|| table.to_owned());
            match part {
                None => beginning,
                Some(part) => {
                    let end = find(format!("{table}.{DATABASES}.{part}"));
                    index_of(&beginning, &end.unwrap_or_else(|| part.to_owned()))
                }
            }
        };
        // Rows, queues and streams, records: everything but indexes. All of it is read first, so that the pages that nothing has
        // are the leaves of a damaged branch.
        let mut indexes = BTreeMap::new();
        for (at, (table, record)) in tables.iter().enumerate() {
            for part in record.indexes.iter().filter(|part| part.name != STREAM) {
                indexes.insert(stored(table, Some(&part.name)), (at, part.name.clone()));
            }
        }
        let names = self.source.names();
        let mut found: BTreeMap<String, Vec<LostKeys>> = BTreeMap::new();
        for name in &names {
            let mut lost = Vec::new();
            let is_index = indexes.contains_key(name);
            let count = self.copy(name, &mut lost, !is_index, false)?;
            if let Some((table, _)) = tables.iter().find(|(table, _)| stored(table, None) == **name)
            {
                self.done.rows.insert(table.clone(), count);
            }
            found.insert(name.clone(), lost);
        }
        let damaged: Vec<String> = found
            .iter()
            .filter(|(_, lost)| has_branches(lost))
            .map(|(name, _)| name.clone())
            .collect();
        if let [name] = damaged.as_slice()
            && !indexes.contains_key(name)
            && let Some(lost) = found.get_mut(name)
        {
            let count = self.copy(name, lost, true, true)?;
            for (table, rows) in &mut self.done.rows {
                if stored(table, None) == *name {
                    *rows += count;
                }
            }
        }
        // An index is copied if it and the rows are intact, and built otherwise.
        for (name, (at, part)) in &indexes {
            // A reference has no database of its own.
            let Some((table, record)) = tables.get(*at).filter(|_| found.contains_key(name)) else {
                continue;
            };
            let is_intact = |name: &str| found.get(name).is_some_and(Vec::is_empty);
            let queue = queue_of(&stored(table, None));
            let has_queue = found.get(&queue).is_none_or(Vec::is_empty);
            let is_eventual =
                record.indexes.iter().any(|own| own.name == *part && own.is_eventual());
            if is_intact(name) && is_intact(&stored(table, None)) && (has_queue || !is_eventual) {
                self.copy(name, &mut Vec::new(), true, false)?;
                continue;
            }
            self.flush(name, &mut Vec::new())?;
            let record_name = format!("{table}.{part}");
            let known = records.iter().find(|(own, _)| *own == record_name);
            let known = known.and_then(|(_, state)| StateRecord::decode(state));
            if known.is_none_or(|known| known.kept().is_none()) {
                let state = state(record, part)?;
                self.flush(CATALOG, &mut vec![(record_name.into_bytes(), state)])?;
            }
            self.done.emptied.push((table.clone(), part.clone()));
        }
        // The first copies of lists are in the catalog.
        let has_lists = found.get(CATALOG).is_none_or(Vec::is_empty);
        for (name, lost) in found {
            let is_second = name == LIST_COPIES && has_lists;
            if !indexes.contains_key(&name) && name != CATALOG && !is_second {
                self.note(&name, lost);
            }
        }
        Ok(())
    }

    /// Reads a database, and copies it if it is `written`. Of a damaged one, `orphans` copies the leaves below its damaged branches.
    fn copy(
        &mut self,
        name: &str,
        lost: &mut Vec<LostKeys>,
        written: bool,
        orphans: bool,
    ) -> Result<u64> {
        let to = self.to;
        let (mut batch, mut bytes, mut count) = (Vec::new(), 0, 0);
        let mut each = |key: &[u8], value: &[u8]| {
            count += 1;
            if !written {
                return Ok(());
            }
            bytes += key.len() + value.len();
            batch.push((key.to_vec(), value.to_vec()));
            if bytes < BATCH_BYTES {
                return Ok(());
            }
            bytes = 0;
            write(to, name, &mut batch).map_err(Failed::Other)
        };
        let read = if orphans {
            self.source.without_branches::<Failed>(name, lost, &mut each)
        } else {
            self.source.tree::<Failed>(name, lost, &mut each)
        };
        read.map_err(|failed| self.failed(failed))?;
        if written {
            self.flush(name, &mut batch)?;
        }
        Ok(count)
    }

    fn flush(&self, name: &str, batch: &mut Vec<(Vec<u8>, Vec<u8>)>) -> Result<()> {
        write(self.to, name, batch)
    }

    fn note(&mut self, database: &str, lost: Vec<LostKeys>) {
        self.done.lost.extend(lost.into_iter().map(|lost| of(database, lost)));
    }

    fn failed(&self, failed: Failed) -> Error {
        match failed {
            Failed::Io(source) => Error::io(&self.to.path, source),
            Failed::Other(error) => error,
        }
    }
}

/// Writes entries in a transaction, and creates their database.
fn write(to: &Engine, name: &str, batch: &mut Vec<(Vec<u8>, Vec<u8>)>) -> Result<()> {
    let (_turn, txn) = to.begin_write()?;
    let written = to.env()?.create_databases_and_commit(txn, |opener, txn| {
        let database: Database<'_> = opener.create_database(txn, Some(name))?;
        for (key, value) in batch.drain(..) {
            database.put(txn, &key, &value)?;
        }
        Ok::<_, heed::Error>(CommitOrAbort::<(), ()>::Commit(()))
    });
    written.map(drop).map_err(|error| to.error(error))
}

fn of(database: &str, lost: LostKeys) -> Lost {
    let LostKeys { page, reason, from, to, .. } = lost;
    Lost { database: database.to_owned(), page, reason, from, to }
}
