//! Read-only stores.

use std::{fs::File, io, path::Path, sync::atomic::Ordering};

use heed::{CommitOrAbort, EnvFlags};

use super::{
    begin::read_txn,
    env::Engine,
    error::{self, Failure},
    gate::Kind,
    lock,
    named::Named,
    names::{CATALOG, Database, FILE, LIST_COPIES},
    process,
    renamed::stored,
    tables::Tables,
};
use crate::{
    engine::{Options, files::FileId},
    model::{
        error::{Error, Result},
        schema::{Parts, TableSchema},
    },
};

/// Returns the flags of the environment, and the number of the lock file. Without a lock file, readers have no slots,
/// which is safe only if no process can write.
pub(super) fn flags(
    options: &Options,
    path: &Path,
    alone: bool,
) -> Result<(EnvFlags, Option<FileId>)> {
    let source = match lock::reserve(path, options.max_readers, alone) {
        Ok(file) => return Ok((EnvFlags::READ_ONLY, file)),
        Err(source) => source,
    };
    let refused = [
        io::ErrorKind::PermissionDenied,
        io::ErrorKind::ReadOnlyFilesystem,
        // Another reader, without a lock file, has the store open.
        io::ErrorKind::NotFound,
    ];
    if !refused.contains(&source.kind()) {
        return Err(error::not_opened(path, source));
    }
    let is_read_only = File::open(path.join(FILE)).and_then(|file| process::is_read_only(&file));
    if is_read_only.unwrap_or(false) {
        return Ok((EnvFlags::READ_ONLY | EnvFlags::NO_LOCK, None));
    }
    if source.kind() == io::ErrorKind::NotFound {
        return Err(error::not_reserved(path, source));
    }
    Err(Error::NoReaderSlot { path: path.to_owned(), source })
}

impl Engine {
    /// Whether this process writes a journal.
    pub(crate) fn has_journal(&self) -> bool {
        self.journal.get().is_some()
    }

    /// Whether opening has recovered the store, because the process that wrote it ended without closing it.
    pub(crate) const fn was_recovered(&self) -> bool {
        self.was_left
    }

    /// Whether this process can't write the store.
    pub(crate) fn is_read_only(&self) -> bool {
        self.read_only.load(Ordering::Acquire)
    }

    pub(crate) fn refuse_read_only(&self) -> Result<()> {
        if self.read_only.load(Ordering::Acquire) {
            return Err(Error::ReadOnly { path: self.path.clone(), source: None });
        }
        Ok(())
    }

    /// Opens the databases of a table. Returns `None` if some are missing.
    pub(crate) fn find_table(
        &self,
        schema: &'static TableSchema,
        parts: Parts,
    ) -> Result<Option<Tables<'static>>> {
        self.refuse_forked()?;
        // LMDB allows one thread at a time to open handles. Otherwise the write transaction ensures this.
        let _turn = self.lock_writing();
        let (_pass, txn) = self.begin(Kind::Writer, read_txn)?.into_parts();
        let mut is_missing = false;
        let found = self.env()?.open_databases_and_commit(txn, |opener, txn| {
            let failed = |error| self.error(error);
            let catalog: Option<Database<'_>> =
                opener.open_database(txn, Some(CATALOG)).map_err(failed)?;
            let tables = Tables::new(schema, parts, Vec::new(), |name| {
                let name = catalog.map_or(Ok(name.into()), |catalog| stored(&catalog, txn, name));
                let name = &*name.map_err(failed)?;
                let found: Option<Database<'_>> =
                    opener.open_database(txn, Some(name)).map_err(failed)?;
                is_missing |= found.is_none();
                let missing = || Error::internal(format!("there is no database `{name}`"));
                found.map(|found| Named::new(found, name)).ok_or_else(missing)
            })?;
            // A file of a release with one copy of the lists has none.
            let copies = self.open_copies(opener, txn).map_err(failed)?;
            let copies = copies.map(|copies| Named::new(copies, LIST_COPIES));
            Ok(CommitOrAbort::<_, ()>::Commit(tables.with_copies(copies)))
        });
        match found {
            _ if is_missing => Ok(None),
            Ok(CommitOrAbort::Commit(tables)) => {
                if let Some(copies) = &tables.copies {
                    let _ = self.copies.set(**copies);
                }
                Ok(Some(self.with_known(tables)))
            }
            Ok(CommitOrAbort::Abort(())) => Err(Error::internal("a table was not opened")),
            Err(Failure::Heed(error)) => Err(self.error(error)),
            Err(Failure::Other(error)) => Err(error),
        }
    }
}
