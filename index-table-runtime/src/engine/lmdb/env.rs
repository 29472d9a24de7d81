use std::{
    borrow::Cow,
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::{Mutex, OnceLock, PoisonError, atomic::AtomicUsize},
    time::Duration,
};

use heed::{CommitOrAbort, CommitToken, OnCommit, RwTxn};

use super::{
    Database, Env, Layout, Txn, Writer,
    blocks::Forecast,
    catalog::{databases_of, index_of, queue_of},
    gate::{Gate, Kind},
    open::Counted,
    process,
    reserve::Reserve,
    txn::{Turn, Writing},
};
use crate::{
    engine::{Retry, Space},
    model::{
        error::{Error, Result},
        schema::TableSchema,
    },
};

pub(super) const CATALOG: &str = ".catalog";
pub(super) const SEQUENCES: &str = ".sequences";

/// Longer than it takes to unmap a directory.
const CLOSING: Duration = Duration::from_secs(10);

/// An open environment. Its path is canonical.
pub(crate) struct Engine {
    pub(super) env: Env,
    pub(super) path: PathBuf,
    /// See [`process::forks`].
    pub(super) forks: u32,
    /// Whether it was opened for reading alone.
    pub(super) read_only: bool,
    pub(super) max_databases: u32,
    pub(super) max_readers: u32,
    /// Every transaction begins by it, and whatever else looks at the map.
    pub(super) gate: Gate,
    pub(super) map_size: AtomicUsize,
    pub(super) max_map_size: usize,
    /// The handle to the catalog, once this process has one.
    pub(super) catalog: OnceLock<Database<'static>>,
    /// The databases of which LMDB has a handle. Transactions that begin know those, and no others.
    pub(super) known: Mutex<BTreeSet<String>>,
    pub(super) reserve: Reserve,
    /// Held by this process's write transaction, so that one thread at a time waits for LMDB's lock.
    pub(super) writing: Mutex<Writing>,
    pub(super) _counted: Counted,
}

impl Engine {
    /// LMDB's locks and reader slots are the process's that opened the store.
    pub(crate) fn refuse_forked(&self) -> Result<()> {
        if self.is_inherited() {
            return Err(Error::Forked { path: self.path.clone() });
        }
        Ok(())
    }

    pub(super) fn is_inherited(&self) -> bool {
        process::forks() != self.forks
    }

    /// Gives back the slots of readers whose processes have died; how many there were.
    pub(crate) fn clear_stale_readers(&self) -> Result<usize> {
        self.refuse_forked()?;
        self.env.clear_stale_readers().map_err(|error| self.error(error))
    }

    /// How many read transactions this process has, and the age of the oldest.
    pub(crate) fn readers(&self) -> (usize, Option<Duration>) {
        self.gate.readers()
    }

    /// The bytes in use, up to the last page. Only for who is in the gate.
    pub(super) fn used(&self) -> usize {
        used(&self.env)
    }

    /// Waits for the thread that drops the last handle to the directory.
    pub(crate) fn wait_until_closed(path: &Path) {
        if let Some(closing) = heed::env_closing_event(path) {
            closing.wait_timeout(CLOSING);
        }
    }

    /// The directory of its files.
    pub(crate) fn directory(&self) -> &Path {
        &self.path
    }

    pub(crate) fn read(&self) -> Result<Txn<'_>> {
        let (txn, pass) = self.begin(Kind::Reader, Env::read_txn)?;
        Ok(Txn::reading(self, txn, pass))
    }

    pub(crate) fn write(&self) -> Result<Txn<'_>> {
        let (txn, turn) = self.begin_write()?;
        // Not where a table is opened: a file that is refused then has not been touched.
        self.reserve();
        Ok(Txn::writing(self, txn, turn))
    }

    pub(super) fn begin_write(&self) -> Result<(RwTxn<'_>, Turn<'_>)> {
        // The lock may have been held when the process was forked.
        self.refuse_forked()?;
        self.refuse_read_only()?;
        let mut writing = self.lock_writing();
        writing.scratch.forget_large();
        writing.retry = None;
        let (txn, pass) = self.begin(Kind::Writer, Env::write_txn)?;
        Ok((txn, Turn { _pass: pass, writing }))
    }

    /// Creates what is missing of a table, and lets `prepare` look at it, in one write transaction.
    pub(crate) fn open_table(
        &self,
        schema: &'static TableSchema,
        prepare: impl FnOnce(Writer<'_, '_>) -> Result<()>,
    ) -> Result<Tables<'static>, (Error, Option<Retry>)> {
        let (txn, mut turn) = self.begin_write().map_err(|error| (error, None))?;
        let opened = self.env.create_databases_and_commit(txn, |opener, txn| {
            let tables = Tables::new(schema, |name| {
                opener.create_database(txn, Some(name)).map_err(|error| self.error(error))
            })?;
            prepare(Writer::new(self, txn, &tables, &mut turn.writing))?;
            Ok(CommitOrAbort::<_, ()>::Commit(tables))
        });
        match opened {
            Ok(CommitOrAbort::Commit(tables)) => {
                let _ = self.catalog.set(tables.catalog);
                Ok(self.with_known(tables))
            }
            Ok(CommitOrAbort::Abort(())) => Err((Error::internal("a table was not opened"), None)),
            Err(failure) => Err(self.ended(failure, turn.writing.retry)),
        }
    }
}

impl Engine {
    /// Notes that the table's databases are known, and in `tables`, whether all were before.
    pub(super) fn with_known<'d>(&self, mut tables: Tables<'d>) -> Tables<'d> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let schema = tables.schema;
        let indexes = schema.indexes.iter().map(|index| index.name);
        tables.were_known = true;
        for name in databases_of(schema.name, schema.has_eventual(), indexes) {
            tables.were_known &= !known.insert(name);
        }
        tables
    }
}

/// The databases of one table.
pub(crate) struct Tables<'d> {
    pub(super) schema: &'static TableSchema,
    pub(super) catalog: Database<'d>,
    pub(super) sequences: Database<'d>,
    pub(super) facts: Database<'d>,
    /// If an index is eventual.
    pub(super) queue: Option<Database<'d>>,
    pub(super) indexes: Box<[Index<'d>]>,
    /// Whether this process knew all of its own databases before.
    were_known: bool,
}

impl<'d> Tables<'d> {
    /// The databases, of which `open` gives each by its name.
    pub(super) fn new(
        schema: &'static TableSchema,
        mut open: impl FnMut(&str) -> Result<Database<'d>>,
    ) -> Result<Self> {
        Ok(Self {
            schema,
            catalog: open(CATALOG)?,
            sequences: open(SEQUENCES)?,
            facts: open(schema.name)?,
            queue: if schema.has_eventual() { Some(open(&queue_of(schema.name))?) } else { None },
            indexes: schema
                .indexes
                .iter()
                .map(|index| {
                    Ok(Index {
                        database: open(&index_of(schema.name, index.name))?,
                        layout: Layout::of(schema, index),
                        forecast: Forecast::default(),
                    })
                })
                .collect::<Result<_>>()?,
            were_known: false,
        })
    }

    pub(crate) const fn were_known(&self) -> bool {
        self.were_known
    }
}

/// The database of one index.
pub(super) struct Index<'d> {
    pub(super) database: Database<'d>,
    pub(super) layout: Layout,
    pub(super) forecast: Forecast,
}

/// A handle made inside a transaction is good for others once that one is committed.
/// Where a space of small records is.
pub(super) struct Small<'t> {
    pub(super) database: &'t Database<'t>,
    /// What the physical keys of the table begin with: its name, where tables share a database.
    pub(super) prefix: &'static str,
}

impl Small<'_> {
    /// A record of the database with its key in the space; `None`: it is another table's.
    pub(super) fn own<'r>(
        &self,
        found: Option<(&'r [u8], &'r [u8])>,
    ) -> Option<(&'r [u8], &'r [u8])> {
        let (key, record) = found?;
        let rest = key.strip_prefix(self.prefix.as_bytes())?;
        match rest.split_first() {
            _ if self.prefix.is_empty() => Some((key, record)),
            None => Some((rest, record)),
            Some((b'.', part)) => Some((part, record)),
            Some(_) => None,
        }
    }
}

impl<'d> Tables<'d> {
    /// `None`: the table has no such space.
    pub(super) fn small(&self, space: Space) -> Option<Small<'_>>
    where
        'd: 'd,
    {
        let name = self.schema.name;
        Some(match space {
            Space::Catalog => Small { database: &self.catalog, prefix: name },
            Space::Sequence => Small { database: &self.sequences, prefix: name },
            Space::Queue => Small { database: self.queue.as_ref()?, prefix: "" },
        })
    }

    /// The physical key of a record. Names of tables have no dot.
    pub(super) fn small_key<'k>(&self, space: Space, key: &'k [u8]) -> Cow<'k, [u8]> {
        let name: &'static [u8] = self.schema.name.as_bytes();
        match space {
            Space::Queue => key.into(),
            // The table's own record is read in each transaction that writes.
            Space::Catalog | Space::Sequence if key.is_empty() => name.into(),
            Space::Catalog | Space::Sequence => [name, b".", key].concat().into(),
        }
    }
}

impl OnCommit for Tables<'_> {
    type Committed = Tables<'static>;

    fn on_commit(self, token: &CommitToken) -> Tables<'static> {
        Tables {
            schema: self.schema,
            catalog: self.catalog.on_commit(token),
            sequences: self.sequences.on_commit(token),
            facts: self.facts.on_commit(token),
            queue: self.queue.map(|queue| queue.on_commit(token)),
            were_known: self.were_known,
            indexes: self
                .indexes
                .into_iter()
                .map(|index| Index {
                    database: index.database.on_commit(token),
                    layout: index.layout,
                    forecast: index.forecast,
                })
                .collect(),
        }
    }
}

fn used(env: &Env) -> usize {
    (env.info().last_page_number + 1) * env.unnamed_database_stat().page_size as usize
}
