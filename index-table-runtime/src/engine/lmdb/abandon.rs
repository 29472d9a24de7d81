//! Giving up the tree of an index, so that a damaged one can be built again.
//!
//! LMDB empties a database by following its pages, which it can't do in a damaged tree. The names of the databases are keys of a
//! database of their own, whose values are the records of the trees. An empty record in the place of a damaged tree's is all that
//! is needed: the commit of any database writes its record in the same way. The pages of the tree belong to nothing from then on,
//! and a copy without free pages leaves them out.
//!
//! One commit has the record of the tree, the index state and the new number in the table's record. A process that is killed
//! before it leaves the damaged index, and one that is killed after it an empty index that queries refuse and a build continues.

use std::{ops::Bound, path::Path};

use heed::{CommitOrAbort, DatabaseOpener, PutFlags, RwTxn, WithoutTls, types::Bytes};

use super::{
    begin::read_txn,
    env::Engine,
    error::refused,
    gate::Kind,
    journal::changes::Operation,
    named::Named,
    names::{CATALOG, Database, FILE, index_of},
    pages::{self, Fault},
    process,
    renamed::stored,
};
use crate::{
    engine::{Records, Retry},
    model::error::{Error, Result, StoreError},
};

/// The flag of a value that is the record of a database. LMDB uses it when a commit writes this record.
const SUB_DATA: u32 = 0x02;

/// Lets a database begin with an empty tree, without reading the pages of its tree. The transaction must not have read the database.
/// Does nothing if there is no such database.
pub(super) fn abandon<'e>(
    opener: &DatabaseOpener<'e, WithoutTls>,
    txn: &mut RwTxn<'e>,
    name: &str,
) -> heed::Result<()> {
    let main: Option<Database<'_>> = opener.open_database(txn, None)?;
    let Some(main) = main else { return Ok(()) };
    let only = (Bound::Included(name.as_bytes()), Bound::Included(name.as_bytes()));
    let mut records = main.range_mut(txn, &only)?;
    let Some((key, record)) = records.next().transpose()? else { return Ok(()) };
    let (key, empty) = (key.to_vec(), pages::without_tree(record));
    let flags = PutFlags::from_bits_retain(SUB_DATA);
    #[expect(unsafe_code, reason = "a record of LMDB is replaced")]
    // SAFETY: the key and the record are owned. The record has the length and the flag of the one that it replaces, and describes an
    // empty database, which LMDB itself writes when a database becomes empty.
    unsafe {
        records.put_current_with_options::<Bytes>(flags, &key, &empty)
    }
}

/// Whether LMDB can't follow the pages of a database in the state of the transaction `txn`: one is damaged, or the disk can't read it.
pub(super) fn is_lost(file: &Path, txn: u64, database: &str) -> Result<bool, Fault> {
    match pages::damage_of(file, txn, database) {
        Ok(damage) => Ok(damage.is_some()),
        Err(Fault::Io(error)) if process::is_eio(&error) => Ok(true),
        Err(fault) => Err(fault),
    }
}

impl Engine {
    /// Whether the pages of an index are intact, in the last commit; `None` if the file has no such index.
    pub(crate) fn has_intact_index(&self, table: &str, index: &str) -> Result<Option<bool>> {
        self.find_later(&self.catalog, CATALOG)?;
        let txn = self.begin(Kind::Reader, read_txn)?;
        let name = match self.catalog.get() {
            Some(catalog) => stored(catalog, &txn, &index_of(table, index))
                .map_err(|error| self.error(error))?
                .into_owned(),
            None => return Ok(None),
        };
        let guard = self.guard(&txn)?;
        if !guard.has(&name) {
            return Ok(None);
        }
        let is_lost = is_lost(&self.path.join(FILE), txn.id() as u64, &name);
        is_lost.map(|is_lost| Some(!is_lost)).map_err(|fault| refused(&self.path, fault))
    }

    /// Empties an index or aggregate, and writes the records that `plan` returns. A damaged tree is given up: LMDB reads nothing of it,
    /// and its pages are lost until the file is copied without free pages. No open table may have the index, and no table may be
    /// opened until the function returns.
    ///
    /// # Errors
    ///
    /// [`Error::DamagedFile`] if the lists of free pages are damaged, without which LMDB can't write.
    pub(crate) fn give_up_index(
        &self,
        table: &str,
        index: &str,
        plan: &mut dyn FnMut(&Records) -> Result<Records>,
    ) -> Result<(), (Error, Option<Retry>)> {
        let failed = |error| (error, None);
        let (mut turn, txn) = self.begin_write().map_err(failed)?;
        let (number, mut logged) = (txn.id(), None);
        let (file, before) = (self.path.join(FILE), (number as u64).saturating_sub(1));
        pages::look_at_free_lists(&file, before)
            .map_err(|fault| failed(refused(&self.path, fault)))?;
        let env = self.env().map_err(failed)?;
        let outcome = env.create_databases_and_commit(txn, |opener, txn| {
            let catalog: Option<Database<'_>> = opener.open_database(txn, Some(CATALOG))?;
            let Some(catalog) = catalog else { return Ok(CommitOrAbort::Abort(())) };
            let recorder = &mut turn.writing.scratch.recorder;
            let records = plan(&self.records(&catalog, txn)?)?;
            let name = stored(&catalog, txn, &index_of(table, index))?.into_owned();
            let catalog = Named::new(catalog, CATALOG);
            for (key, record) in records {
                catalog.put(txn, recorder, key.as_bytes(), &record)?;
            }
            if is_lost(&file, before, &name).map_err(|fault| refused(&self.path, fault))? {
                abandon(opener, txn, &name)?;
                recorder.add(&name, Operation::Clear)?;
            } else {
                let database: Option<Database<'_>> = opener.open_database(txn, Some(&name))?;
                if let Some(database) = database {
                    Named::new(database, &name).clear(txn, recorder)?;
                }
            }
            logged = Some(self.log(&mut turn.writing).map_err(StoreError::into_error)?);
            Ok(CommitOrAbort::<(), ()>::Commit(()))
        });
        self.conclude(&mut turn.writing, (number, logged), outcome, || ())
    }
}
