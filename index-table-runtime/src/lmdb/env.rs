use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use heed::{
    AnyTls, CommitOrAbort, CommitToken, Env, EnvFlags, EnvOpenOptions, MdbError, OnCommit, RoTxn,
    RwTxn, WithoutTls,
};

use super::{
    Database, Layout, Reader, Writer,
    blocks::{Forecast, Scratch},
};
use crate::{
    error::{Error, Result},
    schema::TableSchema,
    store::{Durability, Options},
};

const CATALOG: &str = ".catalog";
const SEQUENCES: &str = ".sequences";

/// Longer than it takes to unmap a directory.
const CLOSING: Duration = Duration::from_secs(10);

/// An open environment. Its path is canonical.
pub(crate) struct Engine {
    env: Env<WithoutTls>,
    path: PathBuf,
    max_databases: u32,
    max_readers: u32,
}

impl Engine {
    pub(crate) fn open(options: &Options, path: &Path) -> Result<Self> {
        let path = path.to_owned();
        let mut open = EnvOpenOptions::new().read_txn_without_tls();
        // Two more databases, for the catalog and the sequences.
        open.map_size(page_multiple(options.map_size))
            .max_dbs(options.max_databases.saturating_add(2))
            .max_readers(options.max_readers);
        #[expect(unsafe_code, reason = "heed marks the whole environment unsafe")]
        // SAFETY: the flags give up durability, which the caller chose, and none of the locking.
        // That no one else modifies the mapped files is LMDB's condition, and `Store::open`
        // passes it on in its documentation.
        let env = unsafe { open.flags(flags(options.durability)).open(&path) };
        let env = env.map_err(|error| match error {
            heed::Error::EnvAlreadyOpened => Error::AlreadyOpen {
                path: path.clone(),
                reason: "and not as a `Store`; LMDB forbids a second time".to_owned(),
            },
            heed::Error::Io(source) => Error::Io { path: path.clone(), source },
            heed::Error::Mdb(error) => damaged(&path, error.to_string()),
            error => Error::Engine(format!("{}: {error}", path.display())),
        })?;
        check_length(&env, &path)?;
        let (max_databases, max_readers) = (options.max_databases, options.max_readers);
        let engine = Self { env, path, max_databases, max_readers };
        // Those of processes that have died would keep pages from being used again.
        engine.env.clear_stale_readers().map_err(|error| engine.error(error))?;
        Ok(engine)
    }

    /// Waits for the thread that drops the last handle to the directory.
    pub(crate) fn wait_until_closed(path: &Path) {
        if let Some(closing) = heed::env_closing_event(path) {
            closing.wait_timeout(CLOSING);
        }
    }

    pub(crate) fn read(&self) -> Result<Txn<'_>> {
        let txn = match self.env.read_txn() {
            Err(heed::Error::Mdb(MdbError::ReadersFull)) => {
                self.env.clear_stale_readers().map_err(|error| self.error(error))?;
                self.env.read_txn()
            }
            txn => txn,
        };
        let txn = txn.map_err(|error| self.error(error))?;
        Ok(Txn { inner: Inner::Read(txn), engine: self })
    }

    pub(crate) fn write(&self) -> Result<Txn<'_>> {
        let txn = self.env.write_txn().map_err(|error| self.error(error))?;
        Ok(Txn { inner: Inner::Write(txn, Scratch::default()), engine: self })
    }

    pub(crate) fn open_table(
        &self,
        schema: &'static TableSchema,
        prepare: impl FnOnce(Writer<'_, '_>) -> Result<()>,
    ) -> Result<Tables<'static>> {
        let txn = self.env.write_txn().map_err(|error| self.error(error))?;
        let opened = self.env.create_databases_and_commit(txn, |opener, txn| {
            let mut database =
                |name: &str| opener.create_database(txn, Some(name)).map_err(|e| self.error(e));
            let tables = Tables {
                schema,
                catalog: database(CATALOG)?,
                sequences: database(SEQUENCES)?,
                facts: database(schema.name)?,
                indexes: schema
                    .indexes
                    .iter()
                    .map(|index| {
                        Ok(Index {
                            database: database(&format!("{}.{}", schema.name, index.name))?,
                            layout: Layout::of(schema, index),
                            forecast: Forecast::default(),
                        })
                    })
                    .collect::<Result<_>>()?,
            };
            prepare(Writer::new(self, txn, &tables, &mut Scratch::default()))?;
            Ok(CommitOrAbort::<_, ()>::Commit(tables))
        });
        match opened {
            Ok(CommitOrAbort::Commit(tables)) => Ok(tables),
            Ok(CommitOrAbort::Abort(())) => Err(Error::Engine("the table was not opened".into())),
            Err(Failure::Heed(error)) => Err(self.error(error)),
            Err(Failure::Other(error)) => Err(error),
        }
    }

    /// What heed says, in this crate's words.
    #[cold]
    pub(super) fn error(&self, error: heed::Error) -> Error {
        match error {
            heed::Error::Mdb(MdbError::MapFull) => {
                Error::MapFull { map_size: self.env.info().map_size }
            }
            heed::Error::Mdb(MdbError::MapResized) => {
                Error::MapTooSmall { map_size: self.env.info().map_size }
            }
            heed::Error::Mdb(
                error @ (MdbError::Corrupted
                | MdbError::PageNotFound
                | MdbError::Invalid
                | MdbError::VersionMismatch
                | MdbError::Panic),
            ) => damaged(&self.path, error.to_string()),
            heed::Error::Mdb(MdbError::DbsFull) => {
                Error::TooManyDatabases { max_databases: self.max_databases }
            }
            heed::Error::Mdb(MdbError::ReadersFull) => {
                Error::TooManyReaders { max_readers: self.max_readers }
            }
            heed::Error::Mdb(MdbError::BadTxn) => Error::Engine(
                "the transaction has failed before and can only be dropped".to_owned(),
            ),
            heed::Error::Io(source) => Error::Io { path: self.path.clone(), source },
            error => Error::Engine(error.to_string()),
        }
    }
}

/// An error inside a closure that heed runs: heed's own, or this crate's on its way out.
enum Failure {
    Heed(heed::Error),
    Other(Error),
}

impl From<heed::Error> for Failure {
    fn from(error: heed::Error) -> Self {
        Self::Heed(error)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

/// The databases of one table.
pub(crate) struct Tables<'d> {
    pub(super) schema: &'static TableSchema,
    pub(super) catalog: Database<'d>,
    pub(super) sequences: Database<'d>,
    pub(super) facts: Database<'d>,
    pub(super) indexes: Box<[Index<'d>]>,
}

/// The database of one index.
pub(super) struct Index<'d> {
    pub(super) database: Database<'d>,
    pub(super) layout: Layout,
    pub(super) forecast: Forecast,
}

/// A handle made inside a transaction is good for others once that one is committed.
impl OnCommit for Tables<'_> {
    type Committed = Tables<'static>;

    fn on_commit(self, token: &CommitToken) -> Tables<'static> {
        Tables {
            schema: self.schema,
            catalog: self.catalog.on_commit(token),
            sequences: self.sequences.on_commit(token),
            facts: self.facts.on_commit(token),
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

/// A transaction.
pub(crate) struct Txn<'s> {
    inner: Inner<'s>,
    engine: &'s Engine,
}

enum Inner<'s> {
    Read(RoTxn<'s, WithoutTls>),
    Write(RwTxn<'s>, Scratch),
}

impl<'s> Txn<'s> {
    pub(crate) fn reader<'t>(&'t self, tables: &'t Tables<'static>) -> Reader<'t> {
        let txn: &RoTxn<'_, AnyTls> = match &self.inner {
            Inner::Read(txn) => txn,
            Inner::Write(txn, _) => txn,
        };
        Reader::new(self.engine, txn, tables)
    }

    pub(crate) fn writer<'t>(&'t mut self, tables: &'t Tables<'static>) -> Option<Writer<'t, 's>> {
        match &mut self.inner {
            Inner::Read(_) => None,
            Inner::Write(txn, scratch) => Some(Writer::new(self.engine, txn, tables, scratch)),
        }
    }

    pub(crate) fn commit(self) -> Result<()> {
        match self.inner {
            Inner::Read(txn) => {
                drop(txn);
                Ok(())
            }
            Inner::Write(txn, _) => txn.commit().map_err(|error| self.engine.error(error)),
        }
    }
}

fn damaged(path: &Path, reason: String) -> Error {
    Error::DamagedFile { path: path.to_owned(), reason }
}

/// LMDB would map what is not there, and the first read of it would end the process.
fn check_length(env: &Env<WithoutTls>, path: &Path) -> Result<()> {
    let file = path.join("data.mdb");
    let length = std::fs::metadata(&file).map_err(|source| Error::Io { path: file, source })?.len();
    let pages = env.info().last_page_number as u64 + 1;
    let used = pages * u64::from(env.unnamed_database_stat().page_size);
    if length >= used {
        return Ok(());
    }
    Err(damaged(path, format!("data.mdb has {length} bytes, and {used} are in use")))
}

const fn flags(durability: Durability) -> EnvFlags {
    match durability {
        Durability::Full => EnvFlags::empty(),
        Durability::Relaxed => EnvFlags::NO_META_SYNC,
        Durability::None => EnvFlags::NO_SYNC,
    }
}

/// heed takes map sizes in whole pages only.
fn page_multiple(size: usize) -> usize {
    const LARGEST_PAGE: usize = 1 << 16;
    size.max(LARGEST_PAGE).checked_next_multiple_of(LARGEST_PAGE).unwrap_or(size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durability_is_what_is_synced() {
        assert_eq!(flags(Durability::Full), EnvFlags::empty());
        assert_eq!(flags(Durability::Relaxed), EnvFlags::NO_META_SYNC);
        assert_eq!(flags(Durability::None), EnvFlags::NO_SYNC);
    }

    #[test]
    fn map_sizes_are_whole_pages() {
        assert_eq!(page_multiple(0), 1 << 16);
        assert_eq!(page_multiple((1 << 16) + 1), 1 << 17);
        assert_eq!(page_multiple(1 << 30), 1 << 30);
        assert_eq!(page_multiple(usize::MAX), usize::MAX);
    }
}
